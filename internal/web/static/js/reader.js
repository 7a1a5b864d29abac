// @ts-check
/** Parts of the reader: outline and thumbnails, views of the text, find, scrolling in step, what a chunk can be taken for. */
import { documentPath, get, image, save } from "./api.js";
import { copyBy } from "./clipboard.js";
import { button, el, name, trouble } from "./dom.js";
import { number, plural } from "./format.js";
import { heading, markdown } from "./markdown.js";
import { cells } from "./parts.js";

/** @typedef {import("./types.js").Chunk} Chunk */
/** @typedef {import("./types.js").Doc} Doc */
/** @typedef {import("./types.js").LedgerRun} LedgerRun */

/** Chunks that the outline, an export and a search inside a document read at most, and pages with a thumbnail around the one on show. */
const outlined = 20_000, exported = 200_000, thumbnails = 300;

/** Ways to show the text: key in the address, what it is called. @type {[string, string][]} */
export const modes = [["", "Chunks"], ["markdown", "Markdown"], ["json", "JSON"]];

/**
 * Every chunk of a document, a thousand at a time, until the callback has enough.
 * @param {string} path of the chunks, with parameters @param {number} most @param {AbortSignal} signal
 * @returns {AsyncGenerator<Chunk[]>}
 */
async function* pagesOf(path, most, signal) {
  let cursor = "";
  for (let n = 0; n < most; ) {
    const page = await get(`${path}${path.includes("?") ? "&" : "?"}limit=1000${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`, signal);
    yield page.items;
    n += page.items.length;
    cursor = page.next_cursor || "";
    if (!cursor) return;
  }
}

// ---- the rail ----

/** @typedef {{title: string, level: number, page: number, chunk: string}} Heading */

/** Headings in the order of the text. @param {string} base @param {number} generation @param {AbortSignal} signal @returns {Promise<Heading[]>} */
async function headingsOf(base, generation, signal) {
  /** @type {Heading[]} */
  const out = [];
  /** @type {string[]} */
  let before = [];
  for await (const some of pagesOf(`${base}/chunks?generation=${generation}&fields=id,heading_path,pages`, outlined, signal)) {
    for (const c of some) {
      const path = c.heading_path || [];
      let same = 0;
      while (same < path.length && path[same] === before[same]) same++;
      for (let i = same; i < path.length; i++) out.push({ title: path[i], level: i, page: c.pages?.[0] || 1, chunk: c.id });
      before = path;
    }
  }
  return out;
}

/**
 * The rail beside the page: the outline of the text, or its pages as they look, each with the ledger's colour.
 * @param {{ds: string, d: Doc, unit: string, paged: boolean, pictured: boolean, runs: LedgerRun[], generation: number, signal: AbortSignal}} o
 * Where it is not seen, it asks for nothing.
 * @returns {{root: HTMLElement, toggle: HTMLButtonElement, at: (page: number) => void}} toggle opens it in a narrow window, where it stands above the page
 */
export function rail({ ds, d, unit, paged, pictured, runs, generation, signal }) {
  const base = documentPath(ds, d.id), body = el("div", { class: "rail-body" });
  const can = /** @type {[string, string][]} */ ([["outline", "Outline"], ...(paged ? [["pages", pictured ? "Thumbnails" : `${unit[0].toUpperCase()}${unit.slice(1)}s`]] : [])]);
  let shown = localStorage.getItem("sheaf-rail") || "outline", page = 1;
  if (!can.some(([k]) => k === shown)) shown = "outline";
  const choices = can.map(([k, label]) => button(label, () => {
    shown = k;
    localStorage.setItem("sheaf-rail", k);
    void show();
  }, { "data-rail": k, "aria-pressed": "false" }));
  const root = el("aside", { class: "rail", "aria-label": "Outline and pages" }, el("div", { class: "segments", role: "group", "aria-label": "Beside the page" }, choices), body);
  /** @type {Promise<Heading[]>|undefined} */
  let headings;
  const runOf = (/** @type {number} */ n) => runs.find((r) => n >= r.from && n <= r.to);

  const wide = matchMedia("(min-width: 1101px)");
  let begun = false;
  const begin = () => {
    if (!begun) void show();
  };
  const toggle = button("Outline and pages", () => {
    toggle.setAttribute("aria-expanded", String(root.classList.toggle("open")));
    begin();
    mark();
  }, { class: "rail-toggle", "aria-expanded": "false", "aria-controls": "reader-rail" });
  root.id = "reader-rail";
  if (!paged) toggle.textContent = "Outline";

  async function show() {
    begun = true;
    for (const c of choices) c.setAttribute("aria-pressed", String(c.dataset.rail === shown));
    const what = shown;
    if (what === "pages") return body.replaceChildren(pages());
    body.setAttribute("aria-busy", "true");
    try {
      const list = await (headings ||= headingsOf(base, generation, signal));
      if (what !== shown || signal.aborted) return;
      const levels = Math.min(...list.map((h) => h.level), 9);
      body.replaceChildren(list.length ? el("ul", { class: "outline" }, list.slice(0, 2000).map((h) => {
        const r = runOf(h.page), li = el("li", { class: `level-${Math.min(h.level - levels, 5)}` }, el("a", { href: `?${new URLSearchParams({ ...(paged ? { page: String(h.page) } : {}), chunk: h.chunk })}`, "data-page": h.page, title: h.title.length > 28 ? h.title : undefined }, name(h.title), paged ? el("span", { class: "num muted" }, number(h.page)) : null));
        if (r && r.status !== "ok") li.classList.add(cells[r.status][1]);
        return li;
      }), list.length > 2000 ? el("li", { class: "muted" }, `and ${number(list.length - 2000)} more`) : null) : el("p", { class: "muted" }, "The text has no headings."));
      mark();
    } catch (e) {
      headings = undefined;
      if (!signal.aborted) body.replaceChildren(trouble(e, () => void show()));
    } finally {
      body.removeAttribute("aria-busy");
    }
  }

  function pages() {
    const from = Math.max(1, page - thumbnails / 2), to = Math.min(d.units, from + thumbnails - 1);
    const seen = new IntersectionObserver((all) => {
      for (const x of all) {
        const img = /** @type {HTMLImageElement} */ (x.target);
        if (!x.isIntersecting) continue;
        seen.unobserve(img);
        image(`${base}/pages/${img.dataset.page}/image?dpi=40`, signal).then((src) => (img.src = src), () => img.remove());
      }
    }, { rootMargin: "300px" });
    signal.addEventListener("abort", () => seen.disconnect());
    const list = el("ol", { class: "thumbs" });
    for (let n = from; n <= to; n++) {
      const r = runOf(n), [text, tone, sign] = cells[r?.status || "blank"];
      const img = pictured ? el("img", { alt: "", "data-page": n, decoding: "async" }) : null;
      img?.addEventListener("error", () => img.remove());
      if (img) seen.observe(img);
      list.append(el("li", {}, el("a", { href: `?page=${n}`, "data-page": n, "aria-label": `${unit} ${n}, ${text}`, title: `${text}${r?.message ? `: ${r.message}` : ""}` }, img, el("span", { class: `cell ${tone}` }, sign), el("span", { class: "num" }, number(n)))));
    }
    queueMicrotask(mark);
    return el("div", {}, from > 1 ? el("p", { class: "muted" }, el("a", { href: `?page=${from - 1}` }, `Earlier ${unit}s`)) : null, list, to < d.units ? el("p", { class: "muted" }, el("a", { href: `?page=${to + 1}` }, `Later ${unit}s`)) : null);
  }

  /** Marks where the reader is. */
  function mark() {
    const links = /** @type {HTMLElement[]} */ ([...body.querySelectorAll("a[data-page]")]);
    const on = shown === "pages" ? links.find((a) => Number(a.dataset.page) === page) : links.find((a) => Number(a.dataset.page) === page) || links.findLast((a) => Number(a.dataset.page) < page);
    for (const a of links) a.toggleAttribute("aria-current", a === on);
    if (!on) return;
    on.setAttribute("aria-current", "true");
    // Not scrollIntoView, which would move the window as well.
    const top = on.getBoundingClientRect().top - body.getBoundingClientRect().top;
    if (top < 0 || top > body.clientHeight - 40) body.scrollTop += top - body.clientHeight / 2;
    const left = on.getBoundingClientRect().left - body.getBoundingClientRect().left;
    if (left < 0 || left > body.clientWidth - 40) body.scrollLeft += left - body.clientWidth / 2;
  }
  if (wide.matches) begin();
  else wide.addEventListener("change", begin, { signal });
  return { root, toggle, at(n) {
    page = n;
    if (!begun) return;
    if (shown === "pages" && !body.querySelector(`a[href="?page=${n}"][aria-label]`)) void show();
    else mark();
  } };
}

// ---- views of the text ----

/** Chunks as one text, with the headings where they begin. @param {Chunk[]} chunks @returns {HTMLElement[]} */
export function rendered(chunks) {
  /** @type {string[]} */
  let before = [];
  return chunks.filter((c) => !c.role).map((c) => {
    const path = c.heading_path || [], part = el("section", { class: "md", id: `c-${c.id}`, "data-key": c.id, tabindex: "-1" });
    let same = 0;
    while (same < path.length && path[same] === before[same]) same++;
    for (let i = same; i < path.length; i++) part.append(heading(i + 1, path[i]));
    before = path;
    part.append(...(c.kind === "code" && !/^\s*(```|~~~)/.test(c.text) ? [el("pre", { tabindex: "0", "aria-label": "Code" }, c.text)] : markdown(withoutHeading(c.text, path))));
    return part;
  });
}

/** The text of a chunk without the headings that stand above it already. @param {string} text @param {string[]} path */
function withoutHeading(text, path) {
  const lines = text.split("\n");
  while (lines.length > 1 && (!lines[0].trim() || path.includes(lines[0].replace(/^\s*#+\s+/, "").trim()))) lines.shift();
  return lines.join("\n");
}

/** @param {Chunk[]} chunks @returns {HTMLElement[]} */
export const asJSON = (chunks) => chunks.map((c) => {
  const text = JSON.stringify(c, null, 2), pre = el("pre", { tabindex: "0", "aria-label": `JSON of chunk ${c.ordinal}` }, text);
  return el("section", { class: "json", id: `c-${c.id}`, "data-key": c.id, tabindex: "-1" }, el("div", { class: "tools" }, el("code", {}, c.id), button("Copy", (e) => void copyBy(/** @type {HTMLElement} */ (e.currentTarget), text, pre))), pre);
});

/** A chunk of text as Markdown, with the headings that are new. @param {Chunk} c @param {string[]} before headings of the chunk before */
function asMarkdown(c, before) {
  const path = c.heading_path || [];
  let same = 0;
  while (same < path.length && path[same] === before[same]) same++;
  const text = withoutHeading(c.text, path);
  return `${path.slice(same).map((h, i) => `${"#".repeat(Math.min(same + i + 1, 6))} ${h}\n\n`).join("")}${c.kind === "code" && !text.includes("```") ? `\`\`\`\n${text}\n\`\`\`` : text}\n\n`;
}

/**
 * Saves the text of a document, read from its chunks.
 * @param {string} base @param {Doc} d @param {"md"|"jsonl"} to @param {AbortSignal} signal
 */
export async function exportText(base, d, to, signal) {
  /** @type {string[]} */
  const parts = [];
  /** @type {string[]} */
  let before = [];
  let n = 0;
  for await (const some of pagesOf(`${base}/chunks`, exported, signal)) {
    for (const c of some) {
      if (to === "jsonl") parts.push(JSON.stringify(c) + "\n");
      else if (!c.role) {
        parts.push(asMarkdown(c, before));
        before = c.heading_path || [];
      }
    }
    n += some.length;
  }
  if (n < d.chunks && n >= exported) throw new Error(`The document has more than ${number(exported)} chunks. Read them with GET ${base}/chunks.`);
  const url = URL.createObjectURL(new Blob(parts, { type: to === "md" ? "text/markdown" : "application/x-ndjson" }));
  save(url, `${d.name.replace(/\.[^.]{1,8}$/, "")}.${to}`);
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

// ---- find inside ----

/**
 * Finds words in the whole document, page by page, and marks them where they are shown.
 * @param {{ds: string, doc: string, unit: string, paged: boolean, signal: AbortSignal, show: (page: number, chunk: string) => void}} o
 */
export function finder({ ds, doc, unit, paged, signal, show }) {
  const field = el("input", { type: "search", "aria-label": "Find in this document", placeholder: "Find in this document", autocomplete: "off", enterkeyhint: "search" });
  const sum = el("span", { class: "muted num", role: "status" });
  const back = button("↑", () => void move(-1), { "aria-label": "Previous match", disabled: true }), on = button("↓", () => void move(1), { "aria-label": "Next match", disabled: true });
  const form = el("form", { class: "find", role: "search", "aria-label": "Find in this document", onsubmit: (/** @type {Event} */ e) => {
    e.preventDefault();
    void move(1);
  } }, field, sum, back, on);
  let asked = "", here = -1;
  /** @type {{page: number, chunk: string}[]} */
  let found = [];
  /** @param {number} step */
  async function move(step) {
    const text = field.value.trim().toLowerCase();
    if (!text) return clear();
    if (text !== asked) {
      asked = text;
      found = [];
      here = -1;
      sum.textContent = "Searching …";
      let n = 0;
      try {
        for await (const some of pagesOf(`${documentPath(ds, doc)}/chunks?fields=id,text,pages,role`, outlined, signal)) {
          for (const c of some) if (!c.role && c.text.toLowerCase().includes(text)) found.push({ page: c.pages?.[0] || 1, chunk: c.id });
          n += some.length;
          if (text !== asked || found.length >= 1000) break;
        }
      } catch (e) {
        asked = "";
        sum.textContent = signal.aborted ? "" : String(/** @type {Error} */ (e).message);
        return;
      }
      if (text !== asked) return;
      back.disabled = on.disabled = !found.length;
      if (!found.length) sum.textContent = n >= outlined ? `Not in the first ${plural(n, "chunk")}` : "Not found";
    }
    if (!found.length) return;
    here = (here + step + found.length) % found.length;
    sum.textContent = `${number(here + 1)} of ${number(found.length)}${paged ? `, ${unit} ${number(found[here].page)}` : ""}`;
    show(found[here].page, found[here].chunk);
  }
  function clear() {
    asked = "";
    found = [];
    sum.textContent = "";
    back.disabled = on.disabled = true;
    highlight(null, "");
  }
  field.addEventListener("input", () => field.value.trim() || clear());
  return { root: form, field, text: () => asked };
}

/** Marks every place of a text inside an element, without changing what stands there. @param {Element|null} within @param {string} text in lower case */
export function highlight(within, text) {
  if (!("highlights" in CSS)) return; // the chunk is framed all the same
  CSS.highlights.delete("find");
  if (!within || !text) return;
  const ranges = [], nodes = document.createTreeWalker(within, NodeFilter.SHOW_TEXT);
  for (let node = nodes.nextNode(); node && ranges.length < 2000; node = nodes.nextNode()) {
    const there = (node.textContent || "").toLowerCase();
    for (let at = there.indexOf(text); at >= 0; at = there.indexOf(text, at + text.length)) {
      const r = document.createRange();
      try {
        r.setStart(node, at);
        r.setEnd(node, at + text.length);
        ranges.push(r);
      } catch { /* a letter whose lower case is longer */ }
    }
  }
  CSS.highlights.set("find", new Highlight(...ranges));
}

// ---- in step ----

/**
 * Scrolls the page and its text together: what a chunk says stays beside where it stands.
 * @param {HTMLElement} left holds the drawn page @param {HTMLElement} right holds the chunks, each with data-key
 * @param {Chunk[]} chunks @param {number} page @param {AbortSignal} signal
 */
export function inStep(left, right, chunks, page, signal) {
  /** Places that belong together, in pixels of either side. @returns {[number, number][]} */
  const places = () => {
    const box = left.querySelector("svg.boxes")?.getAttribute("viewBox")?.split(" ").map(Number), figure = /** @type {HTMLElement|null} */ (left.querySelector(".page"));
    /** @type {[number, number][]} */
    const out = [[0, 0]];
    if (box?.[3] && figure) for (const c of chunks) {
      const tops = c.boxes.filter((b) => b.page === page).map((b) => b.y0), e = /** @type {HTMLElement|null} */ (right.querySelector(`[data-key="${c.id}"]`));
      if (!tops.length || !e) continue;
      const y = figure.offsetTop + (Math.min(...tops) / box[3]) * figure.offsetHeight, at = e.offsetTop, last = out[out.length - 1];
      if (y > last[0] && at > last[1]) out.push([y, at]); // of columns that lie side by side the first leads
    }
    return [...out, [Math.max(left.scrollHeight, out[out.length - 1][0] + 1), Math.max(right.scrollHeight, out[out.length - 1][1] + 1)]];
  };
  /** Where each side was put; it leads when it is elsewhere. @type {Map<HTMLElement, number>} */
  const put = new Map();
  let frame = 0;
  const lead = (/** @type {HTMLElement} */ from, /** @type {HTMLElement} */ to, /** @type {0|1} */ side) => {
    if (Math.abs(from.scrollTop - (put.get(from) ?? -9)) < 2) return; // it moves because the other one does
    put.delete(from);
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      // The ends meet; between them a line at the same share of both windows is followed.
      const most = from.scrollHeight - from.clientHeight, share = most <= 0 ? 0 : from.scrollTop >= most - 1.5 ? 1 : from.scrollTop / most; // the end may be a part of a pixel away
      const y = from.scrollTop + share * from.clientHeight, all = places();
      const n = all.findIndex((p) => p[side] > y), i = n < 0 ? all.length - 1 : Math.max(1, n), a = all[i - 1], b = all[i];
      const there = a[1 - side] + ((y - a[side]) / (b[side] - a[side] || 1)) * (b[1 - side] - a[1 - side]);
      to.scrollTop = share >= 1 ? to.scrollHeight : there - share * to.clientHeight;
      put.set(to, to.scrollTop);
    });
  };
  left.addEventListener("scroll", () => lead(left, right, 0), { passive: true, signal });
  right.addEventListener("scroll", () => lead(right, left, 1), { passive: true, signal });
}

// ---- one chunk ----

/**
 * What a chunk can be taken for: copied, linked, cited, explained.
 * @param {{c: Chunk, d: Doc, ds: string, unit: string, paged: boolean}} o
 */
export function chunkTools({ c, d, ds, unit, paged }) {
  const url = `${location.origin}/datasets/${encodeURIComponent(ds)}/documents/${d.id}?${new URLSearchParams({ ...(paged ? { page: String(c.pages?.[0] || 1) } : {}), chunk: c.id })}`;
  const pages = paged && c.pages?.length ? `, ${unit} ${c.pages.length > 1 ? `${c.pages[0]}–${c.pages[c.pages.length - 1]}` : c.pages[0]}` : "";
  const cite = `${d.name}${pages}${c.heading_path?.length ? `, “${c.heading_path[c.heading_path.length - 1]}”` : ""}, ${url}`;
  const copier = (/** @type {string} */ label, /** @type {string} */ title, /** @type {string} */ text) => button(label, (e) => void copyBy(/** @type {HTMLElement} */ (e.currentTarget), text), { class: "link", tabindex: "-1", title, "data-act": label.toLowerCase() });
  return [copier("Copy", "Copy the text", c.text), copier("Link", "Copy a link to this chunk", url), copier("Cite", "Copy a citation: name, location and link", cite),
    button("Why here?", () => void explain(c, d, ds, unit, paged), { class: "link", tabindex: "-1", title: "Why the text was split here", "data-act": "why" })];
}

/** The chunks beside one: those of its page and of the pages around it. @param {Chunk} c @param {Doc} d @param {string} ds @param {boolean} paged */
async function neighbors(c, d, ds, paged) {
  /** @type {Chunk[]} */
  const list = [];
  const from = c.pages?.[0] || 1, to = c.pages?.[c.pages.length - 1] || 1, signal = AbortSignal.timeout(30_000);
  if (paged) for (const p of [from - 1, from, to, to + 1]) {
    if (p < 1 || p > d.units) continue;
    for (const x of (await get(`${documentPath(ds, d.id)}/chunks?limit=1000&page=${p}`, signal)).items) if (!list.some((y) => y.id === x.id)) list.push(x);
  } else for await (const some of pagesOf(`${documentPath(ds, d.id)}/chunks`, outlined, signal)) {
    list.push(...some);
    const at = list.findIndex((x) => x.id === c.id);
    if (at >= 0 && at < list.length - 1) break;
  }
  const at = list.findIndex((x) => x.id === c.id);
  return { before: list[at - 1], after: at < 0 ? undefined : list[at + 1] };
}

/** What separates two chunks, as far as they and the settings show. @param {Chunk|undefined} a @param {Chunk|undefined} b @param {Doc} d @param {string} unit @returns {string} */
export function border(a, b, d, unit) {
  const with_ = /** @type {Record<string, any>} */ (d.made_with || d.parser_config), limit = with_.chunk_token_num || 512;
  if (!a) return "The text begins here.";
  if (!b) return "The text ends here.";
  if (a.edit?.added || b.edit?.added) return "One of the two was added by hand.";
  if (a.role === "child" || b.role === "child") return "The child delimiter splits a longer chunk here.";
  if (JSON.stringify(a.heading_path || []) !== JSON.stringify(b.heading_path || [])) return `A new section begins: “${(b.heading_path || [])[(b.heading_path || []).length - 1] || "text without a heading"}”. A chunk never spans two sections.`;
  if (a.kind !== b.kind) return `${b.kind === "table" ? "A table begins" : a.kind === "table" ? "A table ends" : "Text of another kind begins"}: ${a.kind} and ${b.kind} are kept apart.`;
  if (a.range_id !== b.range_id) return `A range of ${unit}s ends here. Each range is a separate task, and no chunk spans two ranges.`;
  if (with_.chunk_method && with_.chunk_method !== "naive" && with_.chunk_method !== "general") return `The chunk method “${with_.chunk_method}” begins a new chunk here.`;
  if (a.tokens + b.tokens > limit) return `Together they have ${number(a.tokens + b.tokens)} tokens, more than the limit of ${number(limit)}. The text was split at the best boundary in the second half of the chunk: a paragraph if possible, otherwise a sentence.`;
  return "The parser found a boundary here: the two are separate in the source, or a configured delimiter stands between them.";
}

/** @param {Chunk} c @param {Doc} d @param {string} ds @param {string} unit @param {boolean} paged */
async function explain(c, d, ds, unit, paged) {
  const body = el("div", { class: "why-cut" }, el("p", { class: "muted" }, "Loading …"));
  const d_ = el("dialog", { "aria-labelledby": "why-title", onclose: () => d_.remove() }, el("h2", { id: "why-title", tabindex: "-1" }, "Why was it split here?"), body, el("div", { class: "actions" }, button("Close", () => d_.close(), { class: "primary" })));
  document.body.append(d_);
  d_.showModal();
  try {
    const { before, after } = await neighbors(c, d, ds, paged), with_ = /** @type {Record<string, any>} */ (d.made_with || d.parser_config);
    const end = (/** @type {string} */ text) => (text.length > 90 ? "…" + text.slice(-90) : text), start = (/** @type {string} */ text) => (text.length > 90 ? text.slice(0, 90) + "…" : text);
    body.replaceChildren(el("dl", { class: "facts" },
      el("dt", {}, "Start"), el("dd", {}, el("p", {}, border(before, c, d, unit)), before ? el("p", { class: "muted" }, "Before it: ", el("bdi", {}, end(before.text))) : null),
      el("dt", {}, "End"), el("dd", {}, el("p", {}, border(c, after, d, unit)), after ? el("p", { class: "muted" }, "After it: ", el("bdi", {}, start(after.text))) : null),
      el("dt", {}, "Size"), el("dd", {}, `${plural(c.tokens, "token")} of at most ${number(with_.chunk_token_num || 512)}`)),
    el("p", { class: "muted" }, "Derived from the chunks and the settings used. Reprocess the document with other settings to split it elsewhere."));
  } catch (e) {
    body.replaceChildren(trouble(e));
  }
}
