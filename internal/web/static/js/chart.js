// @ts-check
/** Small charts. */
import { el, svg } from "./dom.js";

const width = 600, height = 90;

const picture = (/** @type {string} */ label) => svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label });

/**
 * A chart with its title, what its height is, what stands below its ends, and what is below that.
 * @param {{title: string, caption: string, axis: string, chart: Element, ends: [string, string], cls?: string}} o @param {...import("./dom.js").Child} below
 */
const frame = ({ title, caption, axis, chart, ends, cls = "" }, ...below) => el("figure", { class: "chart" }, el("figcaption", {}, el("strong", {}, title), el("span", { class: "muted" }, caption)),
  el("div", { class: `chart-area${cls}` }, el("span", { class: "axis num" }, axis), chart), el("div", { class: "chart-foot muted" }, ends.map((end) => el("span", {}, end))), below);

/**
 * Bars, one per label; a series on top of another. The numbers are in the
 * caption too, for those who do not see the bars.
 * @param {{title: string, caption: string, labels: string[], series: {name: string, cls: string, values: number[]}[], unit: (n: number) => string}} o
 */
export function bars({ title, caption, labels, series, unit }) {
  const n = labels.length || 1;
  const sums = labels.map((_, i) => series.reduce((a, s) => a + (s.values[i] || 0), 0));
  const top = Math.max(...sums, 0);
  const w = width / n;
  const chart = picture(`${title}: ${caption}`);
  labels.forEach((label, i) => {
    if (!sums[i]) return;
    let y = height;
    const g = svg("g", {}, svg("title", {}, `${label}: ${series.filter((s) => s.values[i]).map((s) => `${s.name} ${unit(s.values[i])}`).join(", ")}`));
    for (const s of series) {
      const h = ((s.values[i] || 0) / top) * (height - 4);
      y -= h;
      if (h > 0) g.append(svg("rect", { class: s.cls, x: i * w + 0.5, width: Math.max(w - 1, 1), y, height: h }));
    }
    chart.append(g);
  });
  return frame({ title, caption, axis: top ? unit(top) : "", chart, ends: [labels[0] || "", labels[n - 1] || ""] },
    series.length > 1 ? el("p", { class: "legend muted" }, series.filter((s) => s.values.some(Boolean)).map((s) => el("span", {}, el("i", { class: s.cls }), s.name))) : null);
}

/**
 * A number from 0 to 1, as a bar that is filled so far.
 * @param {{title: string, caption: string, value: number}} o
 */
export function gauge({ title, caption, value }) {
  const chart = picture(`${title} ${value.toFixed(2)}: ${caption}`);
  chart.append(svg("rect", { class: "rest", x: 0, y: 0, width, height }), svg("rect", { class: "ok", x: 0, y: 0, width: width * value, height }));
  return frame({ title, caption, axis: value.toFixed(2), chart, ends: ["0", "1"], cls: " gauge" });
}

/**
 * Lines over runs that stand evenly apart, of values from 0 to 1. Lines are told
 * apart by their dashes as well as their colours. A mark is a thin line across
 * where something changed. The picture says its sum in words; who needs each
 * number finds a table beside it.
 * @param {{title: string, caption: string, labels: string[], series: {name: string, cls: string, values: number[]}[], marks?: string[], markText?: string}} o
 */
export function lines({ title, caption, labels, series, marks = [], markText = "" }) {
  const n = labels.length, x = (/** @type {number} */ i) => (n > 1 ? 20 + (i / (n - 1)) * (width - 24) : width / 2), y = (/** @type {number} */ v) => 4 + (1 - v) * (height - 8);
  const chart = picture(`${title}: ${caption}`);
  marks.forEach((m, i) => m && chart.append(svg("line", { class: "mark-line", x1: x(i), x2: x(i), y1: 0, y2: height }, svg("title", {}, `${labels[i]}: ${m}`))));
  for (const s of series) chart.append(svg("polyline", { class: `line ${s.cls}`, points: s.values.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" ") }));
  // What the pointer is over is told of all lines at once.
  labels.forEach((label, i) => chart.append(svg("rect", { class: "feel", x: x(i) - width / n / 2, y: 0, width: width / n, height }, svg("title", {}, `${label}: ${series.map((s) => `${s.name} ${s.values[i].toFixed(2)}`).join(", ")}${marks[i] ? ` (${marks[i]})` : ""}`))));
  const key = (/** @type {string} */ cls) => svg("svg", { class: "line-key", viewBox: "0 0 24 6", "aria-hidden": "true" }, svg("polyline", { class: `line ${cls}`, points: "0,3 24,3" }));
  return frame({ title, caption, axis: "1", chart, ends: [labels[0] || "", labels[n - 1] || ""] },
    el("p", { class: "legend muted" }, series.map((s) => el("span", {}, key(s.cls), s.name)), marks.some(Boolean) ? el("span", {}, svg("svg", { class: "line-key", viewBox: "0 0 24 6", "aria-hidden": "true" }, svg("line", { class: "mark-line", x1: 12, x2: 12, y1: -6, y2: 12 })), markText) : null));
}
