// @ts-check
/** Markdown as elements. Nothing of a document becomes HTML: what is not known stays text. */
import { el } from "./dom.js";
import { chunkText } from "./text.js";

/** @typedef {import("./dom.js").Children} Children */

/** How deep lists and emphasis are followed. */
const deepest = 6;

// What is between two marks has a bound: else a text of marks that nothing ends,
// which anybody may upload, would be read to its end once for each of them.
const inlines = /(`{1,8})([\s\S]{1,500}?)\1|!?\[([^\]\n]{0,500})\]\(<?([^\s)>]{1,2000})>?(?:\s+"[^"]*")?\)|(\*\*|__)(?=\S)([\s\S]{0,500}?\S)\5|(?<![\w*])([*_])(?=[^\s*_])([\s\S]{0,500}?[^\s])\7(?![\w*])|<?(https?:\/\/[^\s<>")\]]+[^\s<>")\].,;:!?])>?/;

/**
 * Emphasis, code and links of a line of text.
 * @param {string} text @param {number} [deep]
 * @returns {(Node|string)[]}
 */
export function inline(text, deep = 0) {
  /** @type {(Node|string)[]} */
  const out = [];
  for (let rest = text; rest; ) {
    const m = deep < deepest ? inlines.exec(rest) : null;
    if (!m) {
      out.push(rest);
      break;
    }
    if (m.index) out.push(rest.slice(0, m.index));
    const [whole, , code, label, target, , strong, , weak, bare] = m;
    if (code !== undefined) out.push(el("code", {}, code));
    else if (target !== undefined) out.push(/^(https?:|mailto:)/i.test(target) ? el("a", { href: target, rel: "noreferrer", target: "_blank" }, label || target) : label || whole);
    else if (strong !== undefined) out.push(el("strong", {}, ...inline(strong, deep + 1)));
    else if (weak !== undefined) out.push(el("em", {}, ...inline(weak, deep + 1)));
    else out.push(el("a", { href: bare, rel: "noreferrer", target: "_blank" }, bare));
    rest = rest.slice(m.index + whole.length);
  }
  return out;
}

const item = /^(\s*)([-*+•]|\d{1,9}[.)])\s+(.*)$/;

/**
 * @param {string} text
 * @returns {HTMLElement[]}
 */
export function markdown(text) {
  /** @type {HTMLElement[]} */
  const out = [];
  const lines = text.split("\n");
  for (let i = 0; i < lines.length; ) {
    const line = lines[i];
    const fence = /^\s{0,3}(`{3,}|~{3,})/.exec(line)?.[1];
    if (!line.trim()) i++;
    else if (fence) {
      const from = ++i;
      while (i < lines.length && !lines[i].trim().startsWith(fence)) i++;
      out.push(el("pre", { tabindex: "0", "aria-label": "Code" }, lines.slice(from, i++).join("\n")));
    } else if (/^\s{0,3}#{1,6}\s/.test(line)) {
      const [, marks, title] = /** @type {RegExpExecArray} */ (/^\s*(#+)\s+(.*?)\s*#*$/.exec(line));
      out.push(heading(marks.length, title));
      i++;
    } else if (/^\s{0,3}([-*_])(\s*\1){2,}\s*$/.test(line)) {
      out.push(el("hr"));
      i++;
    } else if (/^\s*\|.*\|\s*$/.test(line)) {
      const from = i;
      while (i < lines.length && /^\s*\|.*\|\s*$/.test(lines[i])) i++;
      out.push(...chunkText(lines.slice(from, i).join("\n"), "table", (s) => inline(s)));
    } else if (/^\s{0,3}>/.test(line)) {
      const from = i;
      while (i < lines.length && /^\s{0,3}>/.test(lines[i])) i++;
      out.push(el("blockquote", {}, ...lines.slice(from, i).map((l) => el("p", { dir: "auto" }, ...inline(l.replace(/^\s*>\s?/, ""))))));
    } else if (item.test(line)) {
      const from = i;
      while (i < lines.length && lines[i].trim() && (item.test(lines[i]) || /^\s{2,}\S/.test(lines[i]))) i++;
      out.push(list(lines.slice(from, i), 0));
    } else {
      const from = i;
      while (i < lines.length && lines[i].trim() && (i === from || !/^\s{0,3}(#{1,6}\s|```|~~~|>|\|.*\|\s*$)/.test(lines[i]) && !item.test(lines[i]))) i++;
      out.push(el("p", { dir: "auto", class: "prose" }, ...inline(lines.slice(from, i).join("\n"))));
    }
  }
  return out;
}

/** The page has its own h1: those of a document begin below it. @param {number} level @param {string} title */
export const heading = (level, title) => el(level <= 1 ? "h2" : level === 2 ? "h3" : "h4", { dir: "auto" }, ...inline(title));

/** @param {string[]} lines @param {number} deep @returns {HTMLElement} */
function list(lines, deep) {
  const first = /** @type {RegExpExecArray} */ (item.exec(lines[0])), indent = first[1].length;
  const out = el(/\d/.test(first[2]) ? "ol" : "ul", { dir: "auto", start: /\d/.test(first[2]) && parseInt(first[2]) !== 1 ? parseInt(first[2]) : undefined });
  for (let i = 0; i < lines.length; ) {
    const m = item.exec(lines[i]);
    const text = [m ? m[3] : lines[i].trim()], inner = [];
    for (i++; i < lines.length; i++) {
      const next = item.exec(lines[i]);
      if (next && (next[1].length <= indent || deep >= deepest)) break;
      if (next || inner.length) inner.push(lines[i]);
      else text.push(lines[i].trim());
    }
    out.append(el("li", {}, ...inline(text.join("\n")), inner.length ? list(inner, deep + 1) : null));
  }
  return out;
}
