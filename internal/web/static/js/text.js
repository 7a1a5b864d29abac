// @ts-check
/** Chunk texts as they look best: tables as tables, highlights as marks, never as HTML of the document's own. */
import { el } from "./dom.js";

/** @param {string} line a row of a pipe table */
const row = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split(/(?<!\\)\|/).map((c) => c.trim().replace(/\\\|/g, "|"));

const isRow = (/** @type {string} */ l) => /^\s*\|.*\|\s*$/.test(l);
const isRule = (/** @type {string} */ l) => /^\s*\|(\s*:?-{3,}:?\s*\|)+\s*$/.test(l);
/** Cells that are not worth a second line: dates, names, marks. */
const short = (/** @type {string} */ c) => c.replace(/<\/?mark>/g, "").length <= 16;
const numeric = (/** @type {string} */ c) => /^[-+(]?[\d.,  ]+[%)]?$/.test(c) && /\d/.test(c);

/**
 * @param {string} text @param {string} kind
 * @param {(s: string) => import("./dom.js").Children} [show] makes nodes of a piece of text: `marked` where it is a highlight
 */
export function chunkText(text, kind, show = (s) => s) {
  if (kind === "code") return [el("pre", {}, show(text))];
  if (kind !== "table") return [el("p", { dir: "auto", class: "prose" }, show(text))];
  /** @type {HTMLElement[]} */
  const out = [];
  const lines = text.split("\n");
  for (let i = 0; i < lines.length; ) {
    if (!isRow(lines[i])) {
      const from = i;
      while (i < lines.length && !isRow(lines[i])) i++;
      const prose = lines.slice(from, i).join("\n").trim();
      if (prose) out.push(el("p", { dir: "auto", class: "prose" }, show(prose)));
      continue;
    }
    const from = i;
    while (i < lines.length && isRow(lines[i])) i++;
    const rows = lines.slice(from, i);
    const headed = rows.length > 1 && isRule(rows[1]);
    out.push(el("div", { class: "scroll-x", tabindex: "0", role: "group", "aria-label": "Table" }, el("table", { class: "content" },
      headed ? el("thead", {}, el("tr", {}, row(rows[0]).map((c) => el("th", { scope: "col", dir: "auto" }, show(c))))) : null,
      el("tbody", {}, rows.slice(headed ? 2 : 0).map((r) => el("tr", {}, row(r).map((c) => el("td", { dir: "auto", class: numeric(c) ? "num" : short(c) ? "short" : undefined }, show(c)))))))));
  }
  return out;
}

const entities = /** @type {Record<string, string>} */ ({ "&amp;": "&", "&lt;": "<", "&gt;": ">", "&#34;": '"', "&#39;": "'", "&quot;": '"' });

/** The server's highlight: escaped text with <mark> around matches. Only the marks become elements. @param {string} html */
export function marked(html) {
  return html.split(/(<mark>.*?<\/mark>)/s).map((part) => {
    const m = /^<mark>(.*)<\/mark>$/s.exec(part);
    const text = (m ? m[1] : part).replace(/&(amp|lt|gt|quot|#34|#39);/g, (e) => entities[e]);
    return m ? el("mark", {}, text) : text;
  });
}
