// @ts-check
/** Small charts of the last hour. */
import { el, svg } from "./dom.js";

const width = 600, height = 90;

/**
 * Bars, one per minute; a series on top of another. The numbers are in the
 * caption too, for those who do not see the bars.
 * @param {{title: string, caption: string, labels: string[], series: {name: string, cls: string, values: number[]}[], unit: (n: number) => string}} o
 */
export function bars({ title, caption, labels, series, unit }) {
  const n = labels.length || 1;
  const sums = labels.map((_, i) => series.reduce((a, s) => a + (s.values[i] || 0), 0));
  const top = Math.max(...sums, 0);
  const w = width / n;
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${caption}` });
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
  return el("figure", { class: "chart" }, el("figcaption", {}, el("strong", {}, title), el("span", { class: "muted" }, caption)),
    el("div", { class: "chart-area" }, el("span", { class: "axis num" }, top ? unit(top) : ""), chart),
    el("div", { class: "chart-foot muted" }, el("span", {}, labels[0] || ""), el("span", {}, labels[n - 1] || "")),
    series.length > 1 ? el("p", { class: "legend muted" }, series.filter((s) => s.values.some(Boolean)).map((s) => el("span", {}, el("i", { class: s.cls }), s.name))) : null);
}
