// @ts-check
/** How a dataset stands: one bar of all its documents, how fast it goes and how long it takes. */
import { announce, draw, el } from "./dom.js";
import { eta, number, plural } from "./format.js";

/** @typedef {import("./types.js").Facets} Facets */

/** Word, tone and states of the parts of the bar, in its order. @type {[string, string, string[]][]} */
const parts = [
  ["searchable", "ok", ["succeeded"]],
  ["partial", "part", ["partially_succeeded"]],
  ["running", "run", ["running", "finalizing", "canceling"]],
  ["waiting", "wait", ["queued", "unstarted"]],
  ["canceled", "off", ["canceled"]],
  ["failed", "bad", ["failed"]],
];

/** How often those who do not see the bar are told how far it is, in milliseconds. */
const tellEvery = 60_000;

/** How many documents are in each part. @param {(state: string) => number} of */
const counted = (of) => parts.map(([word, tone, states]) => /** @type {const} */ ([word, tone, states.reduce((n, s) => n + of(s), 0)])).filter(([, , n]) => n);

/** Draws a bar of all documents. @param {Element} bar @param {ReturnType<typeof counted>} counts */
function drawBar(bar, counts) {
  bar.setAttribute("aria-label", counts.map(([word, , n]) => `${number(n)} ${word}`).join(", "));
  draw(bar, counts.map(([word, tone, n]) => {
    const e = el("span", { class: `cell ${tone}`, title: `${plural(n, "document")} ${word}` });
    e.style.flexGrow = String(n);
    return e;
  }));
}

/** One bar of the documents of a job that has ended: what failed is not drawn as done. @param {Record<string, number>} by state */
export function endBar(by) {
  const bar = el("div", { class: "whole-bar", role: "img" });
  drawBar(bar, counted((s) => by[s] || 0));
  return bar;
}

export function overview() {
  const bar = el("div", { class: "whole-bar", role: "img" }), legend = el("ul", { class: "whole-legend" }), pace = el("p", { class: "muted num" });
  let told = Date.now(), before = 0;
  const root = el("section", { class: "overview", "aria-label": "Progress of the dataset", hidden: true }, bar, el("div", { class: "whole-line" }, legend, pace));

  /**
   * @param {Facets} f of the whole dataset
   * @param {{p50?: number|null, p90?: number|null}} left seconds, as its jobs say
   * @param {boolean} paused
   */
  function update(f, left, paused) {
    root.hidden = !f.documents;
    const counts = counted((state) => f.state.find((s) => s.value === state)?.documents || 0);
    drawBar(bar, counts);
    draw(legend, counts.map(([word, tone, n]) => el("li", {}, el("i", { class: `key ${tone}`, "aria-hidden": "true" }), el("span", { class: "num" }, number(n)), ` ${word}`)));
    const open = f.state.filter((s) => !["succeeded", "partially_succeeded", "failed", "canceled"].includes(s.value)).reduce((n, s) => n + s.documents, 0);
    const rate = f.ended_last_minute ? `${plural(f.ended_last_minute, "document")} in the last minute` : "";
    // The jobs know what their documents cost; without them the rate of the last minute has to do.
    const guess = left.p50 ?? (f.ended_last_minute ? (open / f.ended_last_minute) * 60 : undefined);
    const time = !open ? "" : paused ? "paused" : guess === undefined ? "estimating the time left" : eta(guess, left.p90 ?? guess);
    draw(pace, open ? [rate, time].filter(Boolean).join(" · ") : "");
    // The line changes every few seconds: read out each time it would drown all else.
    if (open && Date.now() - told >= tellEvery) {
      told = Date.now();
      announce(`${number(f.documents - open)} of ${plural(f.documents, "document")} processed, ${time}`);
    } else if (!open && before) announce(`All ${plural(f.documents, "document")} processed`);
    before = open;
  }
  return { root, update };
}
