// @ts-check
/** The newest jobs of all datasets. */
import { aborted, get } from "../api.js";
import { datasetField, learn, newest } from "../datasets.js";
import { announce, button, draw, el, empty, grid, gridRows, name, trouble } from "../dom.js";
import { between, duration, number, percent, plural, time } from "../format.js";
import { note, title } from "../nav.js";
import { badge, bar, states, terminal } from "../parts.js";
import { repeat } from "../repeat.js";

export const kinds = /** @type {Record<string, string>} */ ({ ingest: "Ingest", reparse: "Reprocessing", retry: "Retry" });

/** @type {import("../dom.js").Head[]} */
const heads = [["Job"], ["Dataset"], ["State"], ["Progress"], ["Failed", "num"], ["Requested by"], ["Created"], ["Duration", "num"]];

/** States a job may have, as people look for them. */
const inStates = ["running", "queued", "succeeded", "partially_succeeded", "failed", "canceled", "canceling", "unstarted"];

/** Pages without a job in the state that was asked for that are passed over at once. */
const mostEmpty = 20;

/** How often it is looked, in milliseconds. */
const pace = 2000;

/** Documents that can be read. @param {import("../types.js").Job} j */
const good = (j) => (j.documents.by_state.succeeded || 0) + (j.documents.by_state.partially_succeeded || 0);

/** @param {import("../types.js").Context} c */
export async function view({ root, query, signal }) {
  title("Jobs");
  /** Names of datasets by their id, "" for those that are gone. @type {Map<string, string>} */
  const names = new Map();
  const learnNames = async (/** @type {import("../types.js").Job[]} */ jobs) => {
    if (jobs.every((j) => names.has(j.dataset_id))) return;
    await learn(known.sets, jobs.map((j) => j.dataset_id), signal);
    for (const d of known.sets) names.set(d.id, d.name);
    for (const j of jobs) if (!names.has(j.dataset_id)) names.set(j.dataset_id, "");
  };
  /** @type {Record<"q"|"state"|"kind"|"dataset"|"requester", string>} */
  const asked = { q: query.get("q") || "", state: query.get("state") || "", kind: query.get("kind") || "", dataset: query.get("dataset") || "", requester: query.get("requester") || "" };
  // Of answers that overtake each other the one to the newest question is shown; answered and failed are the last that was.
  let question = 0, answered = -1, failed = -1;
  const path = (/** @type {Record<string, string>} */ more) => {
    const q = new URLSearchParams(more);
    for (const [k, v] of Object.entries(asked)) if (v) q.set(k, v);
    return `/v1/jobs?${q}`;
  };
  const known = await newest(signal);
  if (/^[0-9a-f]{32}$/.test(asked.dataset)) await learn(known.sets, [asked.dataset], signal);
  /** @type {string|null|undefined} */
  let cursor;
  /** All that was read, by id: newer jobs push none out of the list. @type {Map<string, import("../types.js").Job>} */
  const read = new Map();

  // ---- what is asked for ----
  const filter = el("input", { type: "search", placeholder: "Filter by name or file", "aria-label": "Filter by name or file", value: asked.q, autocomplete: "off", maxlength: 255 });
  const state = el("select", { "aria-label": "State", onchange: () => ask({ state: state.value }) }, el("option", { value: "" }, "All states"), inStates.map((k) => el("option", { value: k }, states[k][0])));
  const kind = el("select", { "aria-label": "Kind", onchange: () => ask({ kind: kind.value }) }, el("option", { value: "" }, "All kinds"), Object.entries(kinds).map(([k, v]) => el("option", { value: k }, v)));
  const { input: dataset, proposals } = datasetField(known, { "aria-label": "Dataset", onchange: () => ask({ dataset: dataset.value.trim() }) }, signal);
  const by = el("span"), clear = button("Clear filters", () => ask({ q: "", state: "", kind: "", dataset: "", requester: "" }));
  let typing = 0;
  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => ask({ q: filter.value.trim() }), 200);
  });
  signal.addEventListener("abort", () => clearTimeout(typing));
  /** @param {Partial<typeof asked>} changes */
  function ask(changes) {
    Object.assign(asked, changes);
    note(asked);
    if (changes.q === "") filter.value = "";
    question++;
    void look();
  }
  /** A page of jobs. One in which no job is in the state that was asked for is passed over. @param {Record<string, string>} more @returns {Promise<{items: import("../types.js").Job[], next_cursor: string|null}>} */
  async function pageOf(more) {
    const mine = question;
    let page = await get(path(more), signal);
    for (let n = 0; n < mostEmpty && !page.items.length && page.next_cursor && mine === question; n++) page = await get(path({ ...more, cursor: page.next_cursor }), signal);
    return page;
  }
  /** Reads the newest jobs. What is refused is said once, and stays until something else is asked. @returns {Promise<number>} */
  async function load() {
    const mine = question;
    state.value = asked.state;
    kind.value = asked.kind;
    if (document.activeElement !== dataset || !known.many) dataset.value = asked.dataset && (known.sets.find((d) => d.name === asked.dataset || d.id === asked.dataset)?.name || asked.dataset);
    try {
      const page = await pageOf({ limit: "50" });
      await learnNames(page.items);
      if (mine !== question) return pace;
      draw(problem);
      if (mine !== answered) {
        read.clear();
        cursor = page.next_cursor;
        if (mine) announce(cursor ? "Many jobs" : plural(page.items.length, "job"));
      }
      // Those that are in the state no longer leave the list.
      if (asked.state) for (const id of read.keys()) if (!page.next_cursor || id >= page.next_cursor) read.delete(id);
      [answered, failed] = [mine, -1];
      show(page.items);
    } catch (e) {
      // Jobs of another question would be taken for the answer to this one.
      if (mine !== question || mine === answered || mine === failed || aborted(e)) return pace;
      failed = mine;
      read.clear();
      cursor = "";
      show([]);
      none.hidden = noMatch.hidden = true;
      draw(problem, trouble(e, () => ask({})));
    }
    return pace;
  }

  // ---- the list ----
  const table = grid("Jobs", heads, []), list = /** @type {HTMLElement} */ (table.querySelector("tbody")), problem = el("div");
  const none = empty("No jobs yet", el("p", {}, "Every upload, re-parse and retry is a job. ", el("a", { href: "/" }, "Add documents"), " to start one."));
  const noMatch = empty("No job matches", el("p", {}, "Change or clear the filters."));
  const more = button("Show older jobs", async () => {
    const mine = question, page = await pageOf({ limit: "100", cursor: cursor || "" });
    await learnNames(page.items);
    if (mine !== question) return;
    cursor = page.next_cursor;
    show(page.items);
  });
  /** @param {import("../types.js").Job[]} jobs */
  function show(jobs) {
    for (const j of jobs) read.set(j.id, j);
    const every = [...read.values()].sort((a, b) => (a.id < b.id ? 1 : -1)), narrowed = Object.values(asked).some(Boolean);
    draw(list, gridRows(heads, every.map((j) => [[el("a", { href: `/jobs/${j.id}` }, `${kinds[j.kind] || j.kind} of ${plural(j.documents.total, "document")}`), j.name ? el("span", { class: "under" }, name(j.name)) : null],
      names.get(j.dataset_id) ? el("a", { href: `/datasets/${encodeURIComponent(names.get(j.dataset_id) || "")}` }, name(names.get(j.dataset_id) || "")) : el("span", { class: "muted" }, "deleted"),
      [badge(j.state, j.not_before), j.paused ? el("span", { class: "badge off" }, "Paused") : null],
      terminal(j.state) ? el("span", { class: "muted" }, `${number(good(j))} of ${number(j.documents.total)}`) : [bar(j.progress, "Progress of the job"), ` ${percent(j.progress)}`],
      number(j.documents.by_state.failed || 0),
      j.requester ? button(j.requester, () => ask({ requester: j.requester || "" }), { class: "link", title: "Only jobs requested with this key" }) : "",
      time(j.created_at), duration(between(j.created_at, terminal(j.state) ? j.finished_at : undefined))])));
    draw(by, asked.requester ? ["Requested by ", name(asked.requester)] : null);
    clear.hidden = !narrowed;
    table.hidden = !every.length;
    none.hidden = every.length > 0 || narrowed;
    noMatch.hidden = every.length > 0 || !narrowed;
    more.hidden = !cursor;
  }
  root.replaceChildren(el("div", { class: "head" }, el("h1", { tabindex: "-1" }, "Jobs")),
    el("div", { class: "filters" }, filter, state, kind, dataset, proposals, by, clear), problem, table, none, noMatch, more);
  const look = repeat(signal, load);
  await look();
}
