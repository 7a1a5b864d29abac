// @ts-check
/** Building the page. Text only ever goes in as text nodes: a name that looks like HTML stays a name. */

import { spoken } from "./names.js";

/** @typedef {Node|string|number|null|undefined|false} Child */
/** @typedef {Child|Child[]|Child[][]} Children */

/**
 * Makes an element. `class` and attributes are given by name, listeners as
 * onclick and so on; false and undefined attributes are left out.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [props]
 * @param {...Children} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function el(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  apply(e, props);
  fill(e, children);
  return e;
}

/**
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...Children} children
 * @returns {SVGElement}
 */
export function svg(tag, props = {}, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  apply(e, props);
  fill(e, children);
  return e;
}

/** @param {Element} e @param {Record<string, any>} props */
function apply(e, props) {
  for (const [k, v] of Object.entries(props)) {
    if (v === false || v === undefined || v === null) continue;
    if (typeof v === "function") e.addEventListener(k.slice(2), v);
    else e.setAttribute(k, v === true ? "" : String(v));
  }
}

/** @param {Element} e @param {Children[]} children */
function fill(e, children) {
  for (const c of children.flat(2)) if (c !== null && c !== undefined && c !== false) e.append(typeof c === "number" ? String(c) : c);
}

const focusable = "a[href], button, input, select, textarea, summary, [tabindex]";

/**
 * Replaces what is inside, unless it would look the same: the reader's focus
 * and selection survive a refresh that brings nothing new. One that does gives
 * the focus to what stands where the focused element stood.
 * @param {Element} parent
 * @param {...Children} children
 */
export function draw(parent, ...children) {
  const next = document.createElement("div");
  fill(next, children);
  if (next.innerHTML === parent.innerHTML && !parent.querySelector("button,input,select")) return;
  const at = [...parent.querySelectorAll(focusable)].indexOf(/** @type {Element} */ (document.activeElement));
  parent.replaceChildren(...next.childNodes);
  if (at < 0) return;
  const can = [...parent.querySelectorAll(focusable)].slice(0, at + 1).findLast((e) => !e.matches(":disabled"));
  /** @type {HTMLElement|undefined} */ (can)?.focus({ preventScroll: true });
}

/** @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const e = document.getElementById(id);
  if (!e) throw new Error(`#${id} is missing from the page`);
  return e;
}

/** A name of unknown direction: it must not reorder what stands around it. @param {string} text @param {string} [cls] */
export const name = (text, cls) => el("bdi", { class: cls, title: text.length > 60 ? text.slice(0, 400) : undefined }, text.length > 300 ? text.slice(0, 300) + "…" : text);

/** Paths of the icons, drawn in a box of 16 by 16. @type {Record<string, string>} */
const paths = {
  check: "M3 8.5l3.2 3.2L13 4.8",
  cross: "M4 4l8 8M12 4l-8 8",
  play: "M5 3.5v9l7-4.5z",
  dot: "M8 8h.01",
  clock: "M8 4.5V8l2.5 2M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12z",
  half: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 2v12M5.8 3v10M3.8 4.8v6.4",
  stop: "M3.8 3.8l8.4 8.4M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12z",
  reuse: "M3 8a5 5 0 0 1 8.5-3.5L13 6M13 3v3h-3M13 8a5 5 0 0 1-8.5 3.5L3 10M3 13v-3h3",
  file: "M4 2h5l3 3v9H4zM9 2v3h3",
  up: "M8 13V3.5M4 7l4-4 4 4",
  down: "M8 3v9.5M4 9l4 4 4-4",
  warn: "M8 2.5l6 11H2zM8 7v3M8 12h.01",
  next: "M6 3l5 5-5 5",
  prev: "M10 3L5 8l5 5",
  hop: "M3.5 4l4 4-4 4M8.5 4l4 4-4 4",
};

/** @param {string} shape */
export function icon(shape) {
  return svg("svg", { class: `icon ${shape}`, viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" }, svg("path", { d: paths[shape] || paths.dot }));
}

/** Says something to screen readers without moving the focus. @param {string} text */
export function announce(text) {
  byId("announce").textContent = text;
}

/**
 * @param {string} label
 * @param {(e: Event) => void} onclick
 * @param {Record<string, any>} [props]
 */
export const button = (label, onclick, props = {}) => el("button", { type: "button", onclick, ...props }, label);

/** An empty state says what to do next. @param {string} title @param {...Child} rest */
export const empty = (title, ...rest) => el("div", { class: "empty" }, el("p", { class: "empty-title" }, title), ...rest);

/** A trouble that the reader should see, with its cure if it is known. @param {unknown} err @param {() => void} [again] */
export function trouble(err, again) {
  const text = spoken(err instanceof Error ? err.message : String(err));
  return el("div", { class: "trouble", role: "alert" }, icon("warn"), el("p", {}, text), again ? button("Try again", again) : null);
}

/** Title and class of a column; the class "wide" gives its cell a line of its own in a narrow window. @typedef {[string, string?]} Head */

/**
 * A table that needs no more width than there is: in a narrow window each row
 * becomes a block whose cells carry the names of their columns. The first cell
 * of a row names it.
 * @param {string} label
 * @param {Head[]} heads
 * @param {Children[][]} rows
 */
export function grid(label, heads, rows) {
  return el("div", { class: "scroll-x", tabindex: "0", role: "region", "aria-label": label }, el("table", { class: "plain stack", role: "table", "aria-label": label },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, heads.map(([h, cls]) => el("th", { scope: "col", class: cls?.replace("mono", ""), role: "columnheader" }, h || el("span", { class: "hidden" }, "Actions"))))),
    el("tbody", { role: "rowgroup" }, gridRows(heads, rows))));
}

/** Rows of a grid, to put into its body. Their roles are written out: browsers differ in what a table is that is laid out as blocks. @param {Head[]} heads @param {Children[][]} rows */
export const gridRows = (heads, rows) => rows.map((r) => el("tr", { role: "row" }, r.map((c, i) => el(i ? "td" : "th", { scope: i ? undefined : "row", class: heads[i][1], role: i ? "cell" : "rowheader", "data-label": heads[i][0] }, Array.isArray(c) ? c.flat() : c))));

/** A list that opens below its label, and closes by Escape. @param {string} label @param {...Children} items */
export function menu(label, ...items) {
  const summary = el("summary", {}, label), e = el("details", { class: "menu" }, summary, el("div", { class: "menu-list" }, ...items));
  e.addEventListener("keydown", (k) => {
    if (k.key !== "Escape" || !e.open) return;
    k.stopPropagation();
    e.open = false;
    summary.focus();
  });
  return e;
}

/** Does something once, when an element comes near the window. @param {Element} e @param {() => void} then @param {AbortSignal} signal */
export function whenSeen(e, then, signal) {
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((x) => x.isIntersecting)) return;
    seen.disconnect();
    then();
  }, { rootMargin: "200px" });
  seen.observe(e);
  signal.addEventListener("abort", () => seen.disconnect());
}
