// @ts-check
/** One job: how far it is, what failed, where its time went. */
import { cancelJob, retryJob } from "../actions.js";
import { aborted, get, send } from "../api.js";
import { announce, button, draw, el, grid, icon, name } from "../dom.js";
import { diagnostics, tasksOf } from "../flight.js";
import { between, bytes, duration, eta, number, percent, plural, time } from "../format.js";
import { beats, follow, pacer } from "../live.js";
import { endBar } from "../overview.js";
import { go, note, title } from "../nav.js";
import { isWatched, unwatch, watch } from "../notify.js";
import { badge, bar, cure, failureLine, states, terminal, waiting } from "../parts.js";
import { waterfall } from "../waterfall.js";
import { kinds } from "./jobs.js";

/** @typedef {import("../types.js").Job} Job */

/** @typedef {{document_id: string, document: string, failure: import("../types.js").Failure}} JobError */

/** Documents that are named for an issue; a link leads to the others. */
const mostNames = 5;

/** The timeline reads the tasks of this many documents at a time. */
const mostDocuments = 40;

/** @param {import("../types.js").Context} c */
export async function view({ root, params, query, signal }) {
  const base = `/v1/jobs/${params.job}`;
  /** @type {Job} */
  let job = await get(base, signal);
  const kind = kinds[job.kind] || job.kind;
  title(`${kind} job`);
  let slowest = query.get("order") === "slowest";
  /** @type {import("../types.js").Doc[]} */
  let docs = [];
  /** @type {import("../types.js").Task[]} */
  let tasks = [];
  // The documents that the timeline shows come after this cursor; first is the place of the first of them in the job.
  let after = query.get("after") || "", first = after ? Math.max(1, Math.trunc(Number(query.get("from"))) || 1) : 1, next = "";
  const pace = pacer();
  const state = el("span"), facts = el("p", { class: "muted facts-line" }), tools = el("div", { class: "tools" });
  const progress = el("section", { class: "progress-box", "aria-label": "Progress" }), stages = el("section"), wrong = el("section"), warned = el("section"), lines = el("section"), list = el("section");
  root.replaceChildren(el("p", { class: "crumbs" }, el("a", { href: "/jobs" }, "Jobs"), " / "),
    el("div", { class: "head" }, el("h1", { tabindex: "-1" }, `${kind} of ${plural(job.documents.total, "document")}`), state, tools), facts, progress, stages, wrong, warned, lines, list);

  /** The first row of the stages: a document can fail before any of its pages is read. */
  function documents() {
    const { total, by_state: by } = job.documents, done = (by.succeeded || 0) + (by.partially_succeeded || 0);
    return ["documents", ...[done, total, by.failed || 0].map((n) => number(n)), "", bar(total ? done / total : 0, "Progress of the documents")];
  }

  function show() {
    draw(state, badge(job.state, job.not_before), job.paused ? el("span", { class: "badge off" }, "Paused") : null);
    draw(facts, job.name ? [name(job.name), " · "] : "", job.requester ? `requested by ${job.requester} · ` : "", job.open_until ? "takes more files · " : "", "started ", time(job.created_at), terminal(job.state) ? ` · took ${duration(between(job.created_at, job.finished_at))}` : "", ` · ${plural(job.usage.pages || 0, "page or row", "pages or rows")} read, ${plural(job.usage.embedded_tokens || 0, "token")} embedded${job.usage.bytes ? `, ${bytes(job.usage.bytes)}` : ""}`,
      job.reused.ranges ? ` · reused ${plural(job.reused.ranges, "range")}, ${plural(job.reused.chunks, "chunk")}` : "");
    const over = terminal(job.state);
    const key = `${job.state} ${job.paused} ${isWatched(job.id)}`;
    if (tools.dataset.key !== key) {
      tools.dataset.key = key;
      const failed = ["failed", "partially_succeeded", "canceled"].includes(job.state);
      tools.replaceChildren(...(over ? [] : [button("Notify me", () => {
        if (isWatched(job.id)) unwatch(job.id);
        else void watch(job.id);
        tools.querySelector("[aria-pressed]")?.setAttribute("aria-pressed", String(isWatched(job.id)));
        announce(isWatched(job.id) ? "You will be notified when this job ends" : "You will not be notified when this job ends");
      }, { "aria-pressed": String(isWatched(job.id)), title: "Notify me when this job ends, whichever view I am on" }), button(job.paused ? "Resume" : "Pause", () => void send(`${base}:${job.paused ? "resume" : "pause"}`).then(() => soon(), (e) => announce(e.message))), button("Cancel…", () => void cancelJob(job).then((done) => done && soon()))]),
        ...(over ? [button(failed ? "Retry what failed…" : "Run again…", () => void retryJob(job, (j) => go(`/jobs/${j.id}`)), failed ? { class: "primary" } : {})] : []),
        button("Download diagnostics", () => void diagnostics(base, job.id, signal).catch((e) => announce(e.message))));
    }
    const left = job.queue?.eta_seconds;
    draw(progress, over ? endBar(job.documents.by_state) : el("div", { class: "progress-line" }, bar(job.progress, "Progress of the job"), el("strong", { class: "num" }, percent(job.progress)),
      el("span", { class: "muted" }, eta(left?.p50, left?.p90)), ...waiting(job)),
      el("p", { class: "tally" }, Object.entries(job.documents.by_state).filter(([, n]) => n).map(([s, n]) => el("span", { class: `badge ${states[s]?.[2] || "wait"}` }, icon(states[s]?.[1] || "dot"), `${number(n)} ${(states[s]?.[0] || s).toLowerCase()}`))));
    draw(stages, job.stages?.length ? el("div", {}, el("h2", {}, "Stages"), grid("Stages", [["Stage"], ["Done", "num"], ["Of", "num"], ["Failed", "num"], ["Reused", "num"], ["Progress", "wide"]],
      [documents(), ...job.stages.map((s) => [s.name, ...[s.done, s.total, s.failed, s.reused].map((n) => number(n)), bar(s.total ? s.done / s.total : over && !s.failed ? 1 : 0, `Progress of ${s.name}`)])]), el("p", { class: "muted" }, "Stages count pages. Slides, sheets, rows and files are weighted by their cost relative to a page.")) : null);
  }

  /** Whether the job is so large that what cannot have changed is not read again. */
  const large = () => job.documents.total > mostDocuments && !terminal(job.state);
  /** How many documents had ended badly when the issues were read. */
  let bad = "";
  async function showErrors() {
    const now = ["failed", "partially_succeeded", "canceled"].map((s) => job.documents.by_state[s] || 0).join();
    if (large() && now === bad) return;
    const page = await get(`${base}/errors?limit=${terminal(job.state) ? 1000 : 100}`, signal), seen = new Set();
    bad = now;
    const by = /** @type {Map<string, JobError[]>} */ (new Map());
    for (const e of /** @type {JobError[]} */ (page.items)) {
      // A page that was tried again, alone, is listed once for each time.
      const key = [e.document_id, e.failure.code, e.failure.page || e.failure.range].join();
      if (!seen.has(key)) by.set(e.failure.code, [...by.get(e.failure.code) || [], e]);
      seen.add(key);
    }
    const codes = [...by].sort(([, a], [, b]) => b.length - a.length);
    draw(wrong, codes.length ? el("div", { class: "problems" }, el("h2", {}, "Issues"), el("p", {}, page.next_cursor ? `The first ${number(page.items.length)}. ` : "", el("a", { href: inDataset(["state", "failed"], ["state", "partial"]) }, "Show these documents in the dataset")), codes.map(([code, list]) => {
      const f = list[0].failure, ill = (/** @type {JobError} */ e) => el("a", { href: `/datasets/${job.dataset_id}/documents/${e.document_id}?tab=problems` }, name(e.document));
      return el("article", { class: "problem" }, el("h3", {}, list.length === 1 ? [ill(list[0]), ": ", failureLine(f)] : f.message), el("p", {}, cure(f), " ", el("code", {}, code)),
        list.length === 1 ? null : el("p", {}, list.slice(0, mostNames).map((e, i) => [i ? " · " : "", ill(e), e.failure.page ? `, page ${number(e.failure.page)}` : ""]), list.length > mostNames ? [" · ", el("a", { href: inDataset(["issue", code]) }, page.next_cursor ? "more" : `all ${number(list.length)}`)] : null));
    })) : null);
  }
  /** The documents of the job in the page of their dataset. @param {...[string, string]} filter */
  const inDataset = (...filter) => `/datasets/${job.dataset_id}?${new URLSearchParams([["job", job.id], ...filter])}`;

  /** What was left out of documents, by code. */
  async function showWarnings() {
    if (!terminal(job.state)) return;
    const page = await get(`${base}/warnings?limit=1000&order=oldest`, signal);
    const list = /** @type {{document_id: string, document: string, warnings: import("../types.js").Warning[]}[]} */ (page.items);
    const by = /** @type {Map<string, {message: string, documents: Set<string>}>} */ (new Map());
    for (const d of list) {
      for (const w of d.warnings.filter((w) => w.code !== "running_lines_removed")) { // most long PDFs have it
        const of = by.get(w.code) || { message: w.message, documents: new Set() };
        by.set(w.code, of);
        of.documents.add(d.document_id);
      }
    }
    const codes = [...by].sort(([, a], [, b]) => b.documents.size - a.documents.size);
    draw(warned, codes.length ? el("details", { class: "notes" }, el("summary", {}, `${page.next_cursor ? "More than " : ""}${plural(new Set([...by.values()].flatMap((of) => [...of.documents])).size, "document")} with warnings`), el("ul", {}, codes.map(([code, of]) => el("li", {}, el("a", { href: inDataset(["warning", code]) }, plural(of.documents.size, "document")), ": ", of.message, " ", el("code", {}, code))))) : null);
  }

  /** The tasks of documents that had ended when they were read, and as what. @type {Map<string, {as: string, tasks: import("../types.js").Task[]}>} */
  const ended = new Map();
  /** What the timeline and the list show. */
  let shown = "";
  /** The cursor before the documents that were read. @type {string | undefined} */
  let read;
  /** The tasks of documents: those of which something can have changed are read. @param {import("../types.js").Doc[]} some */
  async function tasksNow(some) {
    const as = (/** @type {import("../types.js").Doc} */ d) => (terminal(d.state) ? [d.state, d.generation, d.updated_at].join() : "");
    const open = some.filter((d) => !as(d) || ended.get(d.id)?.as !== as(d));
    const read = new Map(open.map((d) => [d.id, /** @type {import("../types.js").Task[]} */ ([])]));
    for (const t of await tasksOf(job.dataset_id, open, signal, job.id)) read.get(t.document_id)?.push(t);
    const all = some.map((d) => read.get(d.id) ?? ended.get(d.id)?.tasks ?? []);
    ended.clear();
    some.forEach((d, i) => as(d) && ended.set(d.id, { as: as(d), tasks: all[i] }));
    pace.spend(3 + open.length);
    return { tasks: all.flat(), changed: open.length > 0 };
  }
  async function showTasks() {
    if (large() && read === after && docs.length === mostDocuments && docs.every((d) => terminal(d.state))) return;
    const asked = after, page = await get(`${base}/documents?limit=${mostDocuments}&order=oldest${asked ? `&cursor=${encodeURIComponent(asked)}` : ""}`, signal);
    const now = await tasksNow(page.items);
    if (asked !== after) return; // other documents were asked for meanwhile
    docs = page.items;
    tasks = now.tasks;
    read = asked;
    next = page.next_cursor || "";
    const total = job.documents.total;
    part.hidden = total <= docs.length;
    draw(range, first === 1 ? `The first ${number(docs.length)} of ${plural(total, "document")}` : `Documents ${number(first)} to ${number(first + docs.length - 1)} of ${number(total)}`);
    toFirst.disabled = first === 1;
    toNext.disabled = !next;
    const key = docs.map((d) => [d.id, d.name, d.state, d.not_before].join()).join("\n") + (job.documents.total > docs.length ? job.documents.total : "");
    if (!now.changed && key === shown) return;
    shown = key;
    drawTimeline();
    draw(list, el("div", {}, el("h2", {}, "Documents"), el("ul", { class: "files" }, docs.map((d) => el("li", {}, el("a", { href: `/datasets/${job.dataset_id}/documents/${d.id}` }, name(d.name)), " ", badge(d.state, d.not_before)))),
      job.documents.total > docs.length ? el("p", {}, el("a", { href: `/datasets/${job.dataset_id}?job=${job.id}` }, `All ${number(job.documents.total)} in the dataset`)) : null));
  }
  const order = el("input", { type: "checkbox", onchange: () => {
    slowest = order.checked;
    note({ order: slowest ? "slowest" : "" });
    drawTimeline();
  } });
  order.checked = slowest;
  const chart = el("div"), range = el("span", { role: "status" });
  /** Shows the documents after a cursor. @param {string} cursor @param {number} place of the first of them */
  async function turn(cursor, place) {
    const before = /** @type {const} */ ([after, first]);
    [after, first] = [cursor, place];
    try {
      await showTasks();
      note({ after, from: after ? String(first) : "" });
    } catch (e) {
      if (after === cursor) [after, first] = before;
      if (!aborted(e)) announce(String(/** @type {Error} */ (e).message));
    }
    // A button that can no longer be pressed would lose the keyboard's place.
    if (document.activeElement === document.body || /** @type {HTMLButtonElement} */ (document.activeElement)?.disabled) (toNext.disabled ? toFirst : toNext).focus();
  }
  const toFirst = button("First documents", () => void turn("", 1)), toNext = button("Next documents", () => void turn(next, first + docs.length));
  const part = el("div", { class: "tools", hidden: true }, range, toFirst, toNext);
  lines.append(el("h2", {}, "Timeline"), part, el("label", { class: "check" }, order, " Slowest first"), chart);
  function drawTimeline() {
    draw(chart, waterfall(tasks, { slowest, names: docs.length > 1 ? new Map(docs.map((d) => [d.id, d.name])) : undefined }));
  }

  // told: the stream has brought the job since it was read.
  let due = 0, running = false, missed = false, told = false;
  async function refresh() {
    due = 0;
    running = true;
    missed = false;
    let wait = 500;
    try {
      if (!told) {
        job = await get(base, signal);
        show();
      }
      told = false;
      await Promise.all([showErrors(), showWarnings(), showTasks()]);
    } catch (e) {
      if (!aborted(e)) announce(String(/** @type {Error} */ (e).message));
      missed = true; // nothing else may happen that would ask again
      wait = 2000;
    }
    running = false;
    if (missed) soon(wait);
  }
  /** What happens while the job is being read may not be in the answer: it is read once more. */
  function soon(wait = 500) {
    if (running) missed = true;
    else if (!due && !signal.aborted) due = setTimeout(refresh, pace.wait(wait));
  }
  /** The stream brings the job itself; what goes with it is read. @param {Job} now */
  const take = (now) => {
    job = now;
    told = true;
    show();
    soon();
  };
  signal.addEventListener("abort", () => clearTimeout(due));
  show();
  await Promise.all([showErrors(), showWarnings(), showTasks()]);
  follow(base, {
    status: take,
    event: () => soon(),
    end: (now) => {
      clearTimeout(due);
      due = 0;
      pace.spend(-1000); // the last reading comes at once
      take(now);
    },
    // The state of a large job changes with every document of it, which says enough, and as often as the server reads it: drawn each time, that was most of the work of this view.
  }, signal, job.documents.total > mostDocuments ? { of: [], beat: beats.heavy } : {});
}
