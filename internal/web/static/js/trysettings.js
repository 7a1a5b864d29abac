// @ts-check
/** Settings tried on one page of one document before they are saved: its chunks, drawn over the page, as the settings change. */
import { aborted, all, ApiError, datasetPath, documentPath, request } from "./api.js";
import { button, draw, el, name, trouble } from "./dom.js";
import { drawable, number, plural } from "./format.js";
import { drawBoxes, figures, pageImage, pictures } from "./page.js";
import { chunkText } from "./text.js";

/** @typedef {import("./types.js").Doc} Doc */
/** @typedef {{chunks: number, tokens: number, median_tokens: number}} Counts */
/** @typedef {{unit: string, shown: [number, number], range: [number, number], chunks: import("./types.js").Chunk[], left_off: number, before: {page: Counts, range: Counts}|null, after: {page: Counts, range: Counts}, failures: import("./types.js").LedgerRun[], notes: string[]}} Tried */

/** How long nothing is changed before the server is asked, in milliseconds; documents to choose from. */
const pause = 350, choices = 100;

/** What was beside what is. @param {number} a @param {number} b */
const change = (a, b) => (a === b ? number(b) : `${number(a)} → ${number(b)}`);

/** The differences in words. @param {Counts|undefined} a @param {Counts} b */
const differ = (a, b) => (a ? `${change(a.chunks, b.chunks)} ${a.chunks === b.chunks && b.chunks === 1 ? "chunk" : "chunks"}, median ${change(a.median_tokens, b.median_tokens)} tokens` : `${plural(b.chunks, "chunk")}, median ${number(b.median_tokens)} tokens`);

/** @param {string} unit @param {[number, number]} r */
const units = (unit, [a, b]) => (a === b ? `${unit} ${number(a)}` : `${unit}s ${number(a)}–${number(b)}`);

/** At the beginning of a sentence. @param {string} text */
const begin = (text) => text.replace(/^./, (x) => x.toUpperCase());

/**
 * A box that shows what settings would make of a page. `soon` is told of each change of them.
 * @param {{ds: string, over: "dataset"|"document", doc?: Doc, config: () => Record<string, any>, signal: AbortSignal, level?: "h2"|"h3"}} o
 *   doc: the one to try them on, else one is chosen; config: the settings that are changed, it may throw what is wrong with them
 */
export function trySettings({ ds, over, doc, config, signal, level = "h2" }) {
  /** @type {Doc|undefined} */
  let d = doc;
  let page = 1, timer = 0, image = "";
  let stop = new AbortController();
  /** @type {HTMLElement|null} */
  let figure = null;
  const said = el("p", { class: "tried-sum num", role: "status" }), notes = el("div"), side = el("div", { class: "page-side", role: "group", tabindex: "0", "aria-label": "The page" }), list = el("ol", { class: "chunks" });
  const column = el("section", { class: "chunk-column", "aria-label": "Chunks with these settings", tabindex: "0" }, list), both = el("div", { class: "beside" }, side, column);
  const before = button("Previous", () => turn(page - 1)), behind = button("Next", () => turn(page + 1));
  const field = el("input", { type: "number", min: 1, value: 1, class: "page-number", onchange: () => turn(Number(field.value)) }), unitName = el("span"), of = el("span", { class: "muted num" });
  const pager = el("div", { class: "pager" }, before, el("label", {}, unitName, " ", field), of, behind);
  const find = el("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter the documents by name", maxlength: 255, oninput: () => {
    clearTimeout(finding);
    finding = setTimeout(() => void documents(), pause);
  } });
  let finding = 0;
  const select = el("select", { "aria-label": "Document to try the settings on", onchange: () => choose(docs.find((x) => x.id === select.value)) });
  /** @type {Doc[]} */
  let docs = [];
  const chooser = doc ? null : el("div", { class: "tools" }, select, find);
  const root = el("section", { class: "tried", "aria-labelledby": `tried-${over}` }, el(level, { id: `tried-${over}`, class: doc ? "hidden" : undefined }, "Preview"),
    el("p", { class: "muted" }, "Shows how one page would be split into chunks. Nothing is stored."), chooser, pager, said, notes, both);

  /** @param {Doc|undefined} to */
  function choose(to) {
    d = to;
    page = 1;
    image = "";
    side.replaceChildren();
    list.replaceChildren();
    pager.hidden = both.hidden = !d;
    if (d) now();
  }

  function turn(/** @type {number} */ n) {
    if (!d || !Number.isInteger(n)) return;
    page = Math.min(Math.max(n, 1), Math.max(d.units, 1));
    now();
  }

  /** Those that have been read, newest first. */
  async function documents() {
    const p = new URLSearchParams();
    for (const s of ["succeeded", "partially_succeeded"]) p.append("state", s);
    if (find.value.trim()) p.set("q", find.value.trim());
    try {
      docs = await all(`${datasetPath(ds)}/documents?${p}`, choices, signal);
    } catch (e) {
      if (!aborted(e)) notes.replaceChildren(trouble(e, () => void documents()));
      return;
    }
    select.replaceChildren(...docs.map((x) => el("option", { value: x.id }, x.name.length > 80 ? `${x.name.slice(0, 80)}…` : x.name)));
    select.disabled = !docs.length;
    if (docs.some((x) => x.id === d?.id)) {
      select.value = d?.id || "";
      return;
    }
    if (!docs.length) said.textContent = find.value.trim() ? "No document matches." : "Preview needs a document in this dataset. Upload one first.";
    choose(docs[0]);
  }

  const soon = (wait = pause) => {
    clearTimeout(timer);
    timer = setTimeout(now, wait);
  };
  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    clearTimeout(finding);
    stop.abort();
  });

  /** Asks for the page, in place of what was asked before. */
  async function now() {
    clearTimeout(timer);
    if (!d || signal.aborted) return;
    stop.abort();
    stop = new AbortController();
    const mine = AbortSignal.any([signal, stop.signal]), doc = d;
    const unit = doc.unit && doc.unit !== "file" ? doc.unit : "page";
    unitName.textContent = begin(unit);
    of.textContent = `of ${number(doc.units)}`;
    field.max = String(doc.units);
    field.value = String(page);
    before.setAttribute("aria-label", `Previous ${unit}`);
    behind.setAttribute("aria-label", `Next ${unit}`);
    const focus = document.activeElement;
    before.disabled = page <= 1;
    behind.disabled = page >= doc.units;
    if (focus === behind && behind.disabled) before.focus();
    if (focus === before && before.disabled) behind.focus();
    pager.hidden = doc.units < 2;
    both.setAttribute("aria-busy", "true");
    try {
      const body = JSON.stringify({ page, over, parser_config: config() });
      const r = await request(`${documentPath(ds, doc.id)}:preview`, { method: "POST", headers: { "Content-Type": "application/json" }, body, signal: mine });
      const tried = /** @type {Tried} */ (await r.json());
      if (!mine.aborted) show(doc, tried);
    } catch (e) {
      if (mine.aborted) return;
      if (e instanceof ApiError && e.status === 429) soon(Math.max(e.retryAfter, 1) * 1000);
      said.textContent = "";
      notes.replaceChildren(trouble(e));
      column.classList.add("old"); // what is shown was made before
    }
    if (!mine.aborted) both.removeAttribute("aria-busy");
  }

  /** @param {Doc} doc @param {Tried} t */
  function show(doc, t) {
    const unit = t.unit === "file" ? "page" : t.unit, here = begin(units(unit, t.shown)), around = begin(units(unit, t.range));
    column.classList.remove("old");
    said.textContent = `${here}: ${differ(t.before?.page, t.after.page)}.${here === around ? "" : ` ${around}: ${differ(t.before?.range, t.after.range)}.`}`;
    draw(notes, [
      t.before ? null : "This page cannot be read with the current settings, so there is nothing to compare with.",
      ...t.notes, ...t.failures.slice(0, 5).map((r) => `${begin(units(unit, [r.from, r.to]))}: ${r.message || r.code}`),
      t.left_off ? `${plural(t.left_off, "more chunk")} of this ${unit} not listed.` : null,
    ].filter((x) => x !== null).map((x) => el("p", { class: "muted" }, x)));
    const light = (/** @type {string} */ key, /** @type {boolean} */ on) => {
      for (const r of figure?.querySelectorAll("rect") || []) if (r.dataset.key === key) r.classList.toggle("on", on);
    };
    list.replaceChildren(...t.chunks.map((c, i) => {
      const li = el("li", { tabindex: "0", class: `chunk ${c.kind}`, "aria-label": `Chunk ${i + 1} of ${t.chunks.length}, ${plural(c.tokens, "token")}` },
        c.heading_path?.length ? el("p", { class: "path" }, c.heading_path.map((h, k) => [k ? " › " : "", el("bdi", {}, h)])) : null,
        drawable(doc.media_type) ? figures({ ds, doc: doc.id, chunk: c, signal }) : pictures({ ds, doc: doc.id, chunk: c, signal }),
        chunkText(c.text, c.kind), el("div", { class: "meta" }, el("span", { class: "muted num" }, `${plural(c.tokens, "token")}${c.pages.length > 1 ? `, ${units(unit, [c.pages[0], c.pages[c.pages.length - 1]])}` : ""}`)));
      for (const on of ["mouseenter", "focus"]) li.addEventListener(on, () => light(String(i), true));
      for (const off of ["mouseleave", "blur"]) li.addEventListener(off, () => light(String(i), false));
      return li;
    }));
    if (!t.chunks.length) list.replaceChildren(el("li", { class: "muted" }, `No text on this ${unit}.`));
    const boxes = t.chunks.flatMap((c, i) => c.boxes.filter((b) => b.page === page).map((box) => ({ box, key: String(i), label: c.text.slice(0, 120) })));
    side.hidden = !drawable(doc.media_type);
    both.classList.toggle("beside", !side.hidden);
    if (side.hidden) return;
    const pick = (/** @type {string} */ key) => {
      const li = /** @type {HTMLElement|undefined} */ (list.children[Number(key)]);
      li?.scrollIntoView({ block: "nearest", behavior: "auto" });
      li?.focus({ preventScroll: true });
    };
    const over = figure?.querySelector("svg.boxes"), at = `${doc.id} ${page}`;
    if (at === image && over) return drawBoxes(over, boxes, pick); // the picture stays
    image = at;
    figure = pageImage({ ds, doc: doc.id, name: doc.name, page, dpi: 96, boxes, signal, pick });
    side.replaceChildren(figure);
  }

  pager.hidden = both.hidden = !d;
  if (doc) void now();
  else void documents();
  return { root, soon: () => soon() };
}

/**
 * The same behind a line that opens it; nothing is asked before.
 * @param {Parameters<typeof trySettings>[0]} o
 */
export function tryBehind(o) {
  /** @type {ReturnType<typeof trySettings>|null} */
  let made = null;
  const box = el("details", { class: "try", ontoggle: () => {
    if (!box.open || made) return;
    made = trySettings(o);
    box.append(made.root);
  } }, el("summary", {}, "Preview on a page of ", name(o.doc?.name || "a document")));
  return { root: box, soon: () => box.open && made?.soon() };
}
