// @ts-check
/** Where the time of a job or document went: one row per task, one bar per stage. */
import { cancelTask } from "./actions.js";
import { button, el, svg } from "./dom.js";
import { between, duration, time } from "./format.js";

/** @typedef {import("./types.js").Task} Task */

/** Stages in the order they run. */
export const stages = ["queue", "fetch", "plan", "parse", "chunk", "enrich", "embed", "artifact", "index", "work"];

/** What people call them. @type {Record<string, string>} */
export const words = { queue: "queue wait", fetch: "fetch", plan: "plan", parse: "parse", chunk: "chunk", enrich: "enrich", embed: "embed", artifact: "store", index: "index", work: "other work" };

/** @param {Task} t @returns {{name: string, from: number, to: number}[]} in milliseconds since the epoch */
export function parts(t) {
  const created = Date.parse(t.created_at), started = t.started_at ? Date.parse(t.started_at) : 0;
  const end = t.finished_at ? Date.parse(t.finished_at) : Date.now();
  const out = [{ name: "queue", from: created, to: started > created ? started : started ? created : end }];
  if (!started) return out;
  if (!t.stages?.length) out.push({ name: t.kind === "plan" ? "plan" : "work", from: started, to: Math.max(end, started) });
  for (const s of t.stages || []) out.push({ name: stages.includes(s.name) ? s.name : "work", from: started + s.start_ms, to: started + s.start_ms + Math.max(s.ms, 0) });
  return out;
}

const second = 1000, minute = 60 * second, hour = 60 * minute;
const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, second, 2 * second, 5 * second, 10 * second, 20 * second, minute, 2 * minute, 5 * minute, 10 * minute, 20 * minute, hour, 2 * hour, 6 * hour, 12 * hour];

/** Round times within a span, at most six. @param {number} span in milliseconds */
export function ticks(span) {
  const step = steps.find((s) => span / s < 6) || Math.ceil(span / (5 * 24 * hour)) * 24 * hour;
  return Array.from({ length: Math.floor(span / step) + 1 }, (_, i) => i * step);
}

const tick = (/** @type {number} */ span) => (/** @type {number} */ at) => {
  const e = el("span", { class: at / span > 0.94 ? "last" : undefined }, at ? duration(at).replace(/\.0 /, " ") : "0");
  e.style.left = `${(at / span) * 100}%`;
  return e;
};

/** What a task is called: one that runs a node of a flow by that. @param {Task} t */
export const taskName = (t) => (t.kind === "dataflow" && t.node ? `node ${t.node}` : t.kind);

/** Whether a task waits or runs: it can be canceled. @param {Task} t */
const open = (t) => !["done", "dead", "canceled", "superseded"].includes(t.state);

/** How long a task took, or what it waits for. @param {Task} t @param {number} took */
const state = (t, took) => (t.started_at ? duration(took) : t.state === "scheduled" ? ["from ", time(t.run_at)] : t.state);

/** At most this many rows are drawn at once. */
const most = 200;

/**
 * @param {Task[]} tasks @param {{slowest: boolean, names?: Map<string, string>}} options
 */
export function waterfall(tasks, { slowest, names }) {
  const begun = tasks.filter((t) => t.created_at);
  if (!begun.length) return el("p", { class: "muted" }, "Nothing has run yet.");
  const rows = begun.map((t) => ({ t, parts: parts(t) }));
  const from = Math.min(...rows.map((r) => r.parts[0].from)), to = Math.max(...rows.map((r) => Math.max(...r.parts.map((p) => p.to))), from + 1);
  const took = (/** @type {Task} */ t) => t.duration_ms ?? between(t.started_at, t.finished_at);
  rows.sort((a, b) => (slowest ? took(b.t) - took(a.t) : a.parts[0].from - b.parts[0].from || (a.t.range?.[0] || 0) - (b.t.range?.[0] || 0)));
  const span = to - from;
  const label = (/** @type {Task} */ t) => `${taskName(t)}${t.range ? ` ${t.unit || ""} ${t.range[0] === t.range[1] ? t.range[0] : `${t.range[0]}–${t.range[1]}`}` : ""}`;
  return el("div", { class: "waterfall" },
    el("p", { class: "legend" }, stages.filter((s) => rows.some((r) => r.parts.some((p) => p.name === s))).map((s) => el("span", {}, el("i", { class: `stage ${s}` }), words[s]))),
    el("div", { class: "scroll-x", tabindex: "0", role: "region", "aria-label": "Timeline" }, el("table", { role: "table", "aria-label": "Timeline" },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ["Task", "Executor"].map((h) => el("th", { scope: "col", role: "columnheader" }, h)), el("th", { scope: "col", class: "num", role: "columnheader" }, "Took"),
        el("th", { scope: "col", class: "lane", role: "columnheader" }, el("span", { class: "hidden" }, "Time line"), el("span", { class: "ticks", "aria-hidden": "true" }, ticks(span).map(tick(span)))))),
      el("tbody", { role: "rowgroup" }, rows.slice(0, most).map(({ t, parts: ps }) => el("tr", { role: "row" },
        el("th", { scope: "row", role: "rowheader" }, label(t), names?.get(t.document_id) ? el("bdi", { class: "muted" }, ` ${names.get(t.document_id)?.slice(0, 60)}`) : null, t.attempts > 1 ? el("span", { class: "muted" }, ` attempt ${t.attempts}`) : null),
        el("td", { class: "muted mono", role: "cell" }, t.worker ? el("span", { title: t.worker }, t.worker.length > 18 ? "…" + t.worker.slice(-16) : t.worker) : t.reused ? "reused" : "–"),
        el("td", { class: "num", role: "cell" }, state(t, took(t)), open(t) ? [" ", button("Cancel…", () => void cancelTask(t.id, label(t)), { "aria-label": `Cancel ${label(t)}` })] : null),
        el("td", { class: "lane", role: "cell" }, svg("svg", { class: "bars", viewBox: "0 0 1000 16", preserveAspectRatio: "none", role: "img", "aria-label": ps.filter((p) => p.to > p.from).map((p) => `${words[p.name]} ${duration(p.to - p.from)}`).join(", ") || "no time" },
          ps.map((p) => svg("rect", { class: `stage ${p.name}`, x: ((p.from - from) / span) * 1000, width: Math.max(((p.to - p.from) / span) * 1000, p.to > p.from ? 2 : 0), y: p.name === "queue" ? 6 : 1, height: p.name === "queue" ? 4 : 14 }, svg("title", {}, `${words[p.name]}: ${duration(p.to - p.from)}`))))))))))
    , rows.length > most ? el("p", { class: "muted" }, `${most} of ${rows.length} tasks shown${slowest ? ", the slowest" : ""}; the diagnostics hold all.`) : null);
}
