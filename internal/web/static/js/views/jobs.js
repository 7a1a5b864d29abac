// @ts-check
/** The newest jobs of all datasets. */
import { all, get } from "../api.js";
import { button, draw, el, empty, grid, gridRows, name } from "../dom.js";
import { between, duration, number, percent, plural, time } from "../format.js";
import { title } from "../nav.js";
import { badge, bar, terminal } from "../parts.js";

export const kinds = /** @type {Record<string, string>} */ ({ ingest: "Ingest", reparse: "Reprocessing", retry: "Retry" });

/** @type {import("../dom.js").Head[]} */
const heads = [["Job"], ["Dataset"], ["State"], ["Progress"], ["Failed", "num"], ["Started"]];

/** @param {import("../types.js").Context} c */
export async function view({ root, signal }) {
  title("Jobs");
  /** @type {import("../types.js").Job[]} */
  let older = [];
  /** Names of datasets by their id, "" for those that are gone. @type {Map<string, string>} */
  const names = new Map();
  const learn = async (/** @type {import("../types.js").Job[]} */ jobs) => {
    if (jobs.every((j) => names.has(j.dataset_id))) return;
    for (const d of await all("/v1/datasets", 2000, signal)) names.set(d.id, d.name);
    for (const j of jobs) if (!names.has(j.dataset_id)) names.set(j.dataset_id, "");
  };
  const first = await get("/v1/jobs?limit=50", signal);
  await learn(first.items);
  let cursor = first.next_cursor;
  const table = grid("Jobs", heads, []), list = /** @type {HTMLElement} */ (table.querySelector("tbody"));
  const more = button("Show older jobs", async () => {
    const page = await get(`/v1/jobs?limit=100&cursor=${encodeURIComponent(cursor || "")}`, signal);
    await learn(page.items);
    older.push(...page.items);
    cursor = page.next_cursor;
    show(newest);
  });
  /** @type {import("../types.js").Job[]} */
  let newest = first.items;
  const show = (/** @type {import("../types.js").Job[]} */ jobs) => {
    newest = jobs;
    const known = new Set(jobs.map((j) => j.id));
    const every = [...jobs, ...older.filter((j) => !known.has(j.id))];
    draw(list, gridRows(heads, every.map((j) => [[el("a", { href: `/jobs/${j.id}` }, `${kinds[j.kind] || j.kind} of ${plural(j.documents.total, "document")}`), j.name ? el("div", { class: "muted" }, name(j.name)) : null],
      names.get(j.dataset_id) ? el("a", { href: `/datasets/${encodeURIComponent(names.get(j.dataset_id) || "")}` }, name(names.get(j.dataset_id) || "")) : el("span", { class: "muted" }, "deleted"),
      [badge(j.state, j.not_before), j.paused ? el("span", { class: "badge off" }, "Paused") : null],
      terminal(j.state) ? el("span", { class: "muted" }, `took ${duration(between(j.created_at, j.finished_at))}`) : [bar(j.progress, "Progress of the job"), ` ${percent(j.progress)}`],
      number(j.documents.by_state.failed || 0), time(j.created_at)])));
    more.hidden = !cursor;
  };
  root.replaceChildren(el("div", { class: "head" }, el("h1", { tabindex: "-1" }, "Jobs")),
    newest.length ? table
      : empty("No jobs yet", el("p", {}, "Every upload, re-parse and retry is a job. ", el("a", { href: "/" }, "Add documents"), " to start one.")), more);
  show(newest);
  const tick = setInterval(async () => {
    if (document.hidden) return;
    const page = await get("/v1/jobs?limit=50", signal).catch(() => null);
    if (!page) return;
    await learn(page.items).catch(() => {}); // at the next tick
    show(page.items);
  }, 2000);
  signal.addEventListener("abort", () => clearInterval(tick));
}
