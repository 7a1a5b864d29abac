// @ts-check
/** The newest jobs of all datasets. */
import { get } from "../api.js";
import { button, draw, el, empty } from "../dom.js";
import { between, duration, number, percent, time } from "../format.js";
import { title } from "../nav.js";
import { badge, bar, terminal } from "../parts.js";

export const kinds = /** @type {Record<string, string>} */ ({ ingest: "Ingest", reparse: "Parse again", retry: "Retry" });

/** @param {import("../types.js").Context} c */
export async function view({ root, signal }) {
  title("Jobs");
  /** @type {import("../types.js").Job[]} */
  let older = [];
  const first = await get("/v1/jobs?limit=50", signal);
  let cursor = first.next_cursor;
  const list = el("tbody");
  const more = button("Show older jobs", async () => {
    const page = await get(`/v1/jobs?limit=100&cursor=${encodeURIComponent(cursor || "")}`, signal);
    older.push(...page.items);
    cursor = page.next_cursor;
    show(newest);
  });
  /** @type {import("../types.js").Job[]} */
  let newest = first.items;
  const show = (/** @type {import("../types.js").Job[]} */ jobs) => {
    newest = jobs;
    const known = new Set(jobs.map((j) => j.id));
    const all = [...jobs, ...older.filter((j) => !known.has(j.id))];
    draw(list, all.map((j) => el("tr", {}, el("th", { scope: "row" }, el("a", { href: `/jobs/${j.id}` }, kinds[j.kind] || j.kind), el("span", { class: "muted" }, ` ${number(j.documents.total)}`)),
      el("td", {}, badge(j.state), j.paused ? el("span", { class: "badge off" }, "Paused") : null),
      el("td", {}, terminal(j.state) ? el("span", { class: "muted" }, `took ${duration(between(j.created_at, j.finished_at))}`) : [bar(j.progress, "Progress of the job"), ` ${percent(j.progress)}`]),
      el("td", { class: "num" }, number(j.documents.by_state.failed || 0)), el("td", {}, time(j.created_at)))));
    more.hidden = !cursor;
  };
  root.replaceChildren(el("div", { class: "head" }, el("h1", { tabindex: "-1" }, "Jobs")),
    newest.length ? el("div", { class: "scroll-x", tabindex: "0", role: "region", "aria-label": "Jobs" }, el("table", { class: "plain" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Job, documents"), el("th", { scope: "col" }, "State"), el("th", { scope: "col" }, "Progress"), el("th", { scope: "col", class: "num" }, "Failed"), el("th", { scope: "col" }, "Started"))), list))
      : empty("No jobs yet", el("p", {}, "Every upload, re-parse and retry is a job. ", el("a", { href: "/" }, "Add documents"), " to start one.")), more);
  show(newest);
  const tick = setInterval(async () => {
    if (document.hidden) return;
    const page = await get("/v1/jobs?limit=50", signal).catch(() => null);
    if (page) show(page.items);
  }, 2000);
  signal.addEventListener("abort", () => clearInterval(tick));
}
