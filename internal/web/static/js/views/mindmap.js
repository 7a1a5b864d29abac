// @ts-check
/** The mind map of a dataset or a document, as a tree whose nodes lead to the chunks that say so. */
import { ApiError, datasetPath, documentPath, download, get } from "../api.js";
import { datasetHead } from "../datasetparts.js";
import { announce, button, el, empty, icon, name } from "../dom.js";
import { plural } from "../format.js";
import { frame, go, title } from "../nav.js";
import { repeat } from "../repeat.js";
import { sheet } from "../sheet.js";

/** @typedef {{label: string, document_id?: string, chunks?: string[], pages?: number[], children?: MapNode[]}} MapNode */

/** How often it is seen whether a map is made, in milliseconds. */
const pace = 2000;

/** Levels that are open at first. */
const openLevels = 2;

/** @param {import("../types.js").Context} c */
export async function view({ root, params, query, signal }) {
  const base = datasetPath(params.ds), of = query.get("document") || "", runsPath = `${base}/runs?kind=mindmap&limit=20`;
  /** @type {[import("../types.js").Dataset, {items: import("../types.js").DatasetRun[]}, any, any]} */
  const [ds, runs, doc] = await Promise.all([get(base, signal), get(runsPath, signal), of ? get(documentPath(params.ds, of), signal) : null, sheet("/flows.css")]);
  title(`${doc ? doc.name : ds.name}, mind map`);
  const path = `${base}/mindmap${of ? `?document=${encodeURIComponent(of)}` : ""}`, file = (/** @type {string} */ format) => `${path}${of ? "&" : "?"}format=${format}`;
  const start = () => go(`/datasets/${encodeURIComponent(params.ds)}/runs?start=mindmap`);
  const making = (/** @type {import("../types.js").DatasetRun|undefined} */ r) => !!r && ["queued", "running"].includes(r.state);
  /** @type {MapNode|null} */
  const map = runs.items.every(making) ? null : await get(path, signal).catch((e) => {
    if (e instanceof ApiError && e.code === "no_mindmap") return null;
    throw e;
  });
  if (!map) {
    root.replaceChildren(...datasetHead(params.ds, ds.name, "mindmap"), empty("No mind map yet", el("p", {}, "A run builds it from the headings and key phrases of the documents, with or without a language model."),
      making(runs.items[0]) ? el("p", {}, "One is being built: ", el("a", { href: `/datasets/${encodeURIComponent(params.ds)}/runs` }, "see its progress"), ".") : button("Create…", start, { class: "primary" })));
    if (making(runs.items[0])) await repeat(signal, async () => {
      if (!making((await get(runsPath, signal).catch(() => runs)).items[0])) frame.show();
      return pace;
    })();
    return;
  }
  const said = (/** @type {string} */ to) => void download(file(to === "md" ? "markdown" : to), `${(doc ? doc.name : ds.name).slice(0, 100)}.${to}`).catch((e) => announce(e.message));
  const tree = el("ul", { class: "map-tree", role: "tree", "aria-label": `Mind map of ${(doc ? doc.name : ds.name).slice(0, 100)}` });
  root.replaceChildren(...datasetHead(params.ds, ds.name, "mindmap", button("Expand all", () => all(true)), button("Collapse all", () => all(false)), button("Markdown", () => said("md")), button("SVG", () => said("svg")), button("Rebuild…", start)),
    doc ? el("p", { class: "facts-line" }, "Of ", el("a", { href: `/datasets/${encodeURIComponent(params.ds)}/documents/${of}` }, name(doc.name)), " · ", el("a", { href: location.pathname }, "all documents")) : "", tree,
    el("p", { class: "muted" }, "Use the arrow keys to move and expand. Press Enter to read the sources of a node."));

  /** Pages of chunks that were asked for. @type {Map<string, number>} */
  const pages = new Map();
  /** A chunk where it stands. @param {string} document @param {string} chunk @param {number} [known] */
  async function read(document, chunk, known) {
    let page = known ?? pages.get(chunk);
    if (page === undefined) {
      try {
        page = (await get(`${documentPath(params.ds, document)}/chunks/${encodeURIComponent(chunk)}`, signal)).chunk?.pages?.[0] || 1;
      } catch (e) {
        return announce(/** @type {Error} */ (e).message);
      }
      pages.set(chunk, page || 1);
    }
    go(`/datasets/${encodeURIComponent(params.ds)}/documents/${document}?${new URLSearchParams({ page: String(page || 1), chunk })}`);
  }

  /** @param {MapNode} n @param {number} level @param {number} at @param {number} size @returns {HTMLLIElement} */
  function item(n, level, at, size) {
    const below = n.children || [], document = n.document_id || "", chunks = document ? n.chunks || [] : [];
    // One page: all its chunks stand there, and the address is known.
    const page = n.pages?.length === 1 ? n.pages[0] : undefined;
    const where = n.pages?.length ? ` p. ${n.pages[0]}${n.pages.length > 1 ? `–${n.pages[n.pages.length - 1]}` : ""}` : "";
    const li = el("li", { role: "treeitem", tabindex: "-1", "aria-level": level, "aria-setsize": size, "aria-posinset": at, "aria-expanded": below.length ? String(level <= openLevels) : undefined },
      el("span", { class: "map-row" }, el("span", { class: "map-twist", "aria-hidden": "true" }, below.length ? icon("next") : null), el("bdi", { class: "map-label" }, n.label),
        chunks.length ? el("span", { class: "map-cites" }, where ? el("span", { class: "muted" }, where.trim()) : null, chunks.map((chunk, i) => el("a", { tabindex: "-1", href: `/datasets/${encodeURIComponent(params.ds)}/documents/${document}?${new URLSearchParams({ ...(page ? { page: String(page) } : n.pages?.[0] ? { page: String(n.pages[0]) } : {}), chunk })}`, "data-chunk": i, title: "Read the source chunk", onclick: (/** @type {MouseEvent} */ e) => {
          e.stopPropagation();
          if (e.ctrlKey || e.metaKey || e.shiftKey) return;
          e.preventDefault();
          void read(document, chunk, page);
        } }, `[${i + 1}]`))) : null),
      below.length ? el("ul", { role: "group" }, below.map((c, i) => item(c, level + 1, i + 1, below.length))) : null);
    return li;
  }
  tree.append(item(map, 1, 1, 1));
  const items = () => /** @type {HTMLElement[]} */ ([...tree.querySelectorAll("[role=treeitem]")]).filter((e) => !e.parentElement?.closest('[aria-expanded="false"]'));
  const held = () => /** @type {HTMLElement|null} */ (tree.querySelector('[role=treeitem][tabindex="0"]'));
  /** @param {HTMLElement|null|undefined} e */
  function focus(e) {
    if (!e) return;
    held()?.setAttribute("tabindex", "-1");
    e.setAttribute("tabindex", "0");
    e.focus();
  }
  items()[0].setAttribute("tabindex", "0");
  const open = (/** @type {HTMLElement} */ e, /** @type {boolean} */ yes) => e.hasAttribute("aria-expanded") && e.setAttribute("aria-expanded", String(yes));
  function all(/** @type {boolean} */ yes) {
    for (const e of /** @type {NodeListOf<HTMLElement>} */ (tree.querySelectorAll("[aria-expanded]"))) open(e, yes || e.getAttribute("aria-level") === "1");
    const here = held();
    if (here && !items().includes(here)) { // what is closed holds no focus
      here.setAttribute("tabindex", "-1");
      items()[0].setAttribute("tabindex", "0");
    }
    announce(`${plural(items().length, "node")} shown`);
  }
  tree.addEventListener("click", (e) => {
    const at = /** @type {HTMLElement|null} */ (e.target instanceof Element ? e.target.closest("[role=treeitem]") : null);
    if (!at) return;
    open(at, at.getAttribute("aria-expanded") !== "true");
    focus(at);
  });
  let typed = "", last = 0;
  tree.addEventListener("keydown", (e) => {
    const here = /** @type {HTMLElement|null} */ (e.target instanceof Element ? e.target.closest("[role=treeitem]") : null);
    if (!here || e.ctrlKey || e.metaKey || e.altKey) return;
    const list = items(), i = list.indexOf(here), wide = here.getAttribute("aria-expanded");
    if (e.key === "ArrowDown") focus(list[i + 1]);
    else if (e.key === "ArrowUp") focus(list[i - 1]);
    else if (e.key === "Home") focus(list[0]);
    else if (e.key === "End") focus(list[list.length - 1]);
    else if (e.key === "ArrowRight") wide === "false" ? open(here, true) : wide === "true" && focus(list[i + 1]);
    else if (e.key === "ArrowLeft") wide === "true" ? open(here, false) : focus(/** @type {HTMLElement|null|undefined} */ (here.parentElement?.closest("[role=treeitem]")));
    else if (e.key === "Enter") /** @type {HTMLElement|null} */ (here.querySelector(":scope > .map-row a"))?.click();
    else if (e.key === " " && !(typed && e.timeStamp - last < 700)) open(here, wide !== "true");
    else if (e.key === "*") for (const s of here.parentElement?.children || []) open(/** @type {HTMLElement} */ (s), true);
    else if (e.key.length === 1 && !e.shiftKey) { // what begins with what is typed
      typed = e.timeStamp - last < 700 ? typed + e.key : e.key;
      last = e.timeStamp;
      const from = typed.length > 1 ? i : i + 1;
      focus([...list.slice(from), ...list.slice(0, from)].find((x) => x.querySelector(".map-label")?.textContent?.toLowerCase().startsWith(typed.toLowerCase())));
    } else return;
    e.preventDefault();
    e.stopPropagation();
  });
}
