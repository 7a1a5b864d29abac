// @ts-check
/** How well search answers: saved queries of a dataset, and what evaluations measured by them. */
import { aborted, datasetPath, get, request, send } from "../api.js";
import { lines } from "../chart.js";
import { datasetHead } from "../datasetparts.js";
import { announce, button, draw, el, empty, grid, name, trouble } from "../dom.js";
import { moment, number, plural, time } from "../format.js";
import { note, title } from "../nav.js";
import { expectation, queriesPath } from "../savedqueries.js";

/** @typedef {{queries: number, hit_1: number, hit_5: number, hit_10: number, recall: number, mrr: number, ndcg: number}} Measures */
/** @typedef {{id: string, cause?: string, model: string, stale?: boolean, measures: Measures, created_at: string}} Evaluation */
/** @typedef {Evaluation & {results: {query_id: string, question?: string, rank: number}[], against?: Evaluation, differences?: string[], changes?: {query_id: string, question?: string, was: number, is: number, why?: string}[]}} Detail */
/** @typedef {import("../savedqueries.js").SavedQuery} SavedQuery */

const causes = /** @type {Record<string, string>} */ ({ request: "on request", queries: "saved queries changed", model: "the model changed", settings: "settings changed", reparse: "documents reprocessed" });
const share = (/** @type {number} */ x) => x.toFixed(2);
const rank = (/** @type {number} */ n) => (n ? number(n) : "not found");

/** Evaluations that are kept, those that are listed at first, and rows of the other tables. */
const kept = 100, runs = 20, most = 100;

/** What is drawn over time. @type {[string, string, (m: Measures) => number][]} */
const measured = [["Hit@5", "ok", (m) => m.hit_5], ["Recall@10", "run", (m) => m.recall], ["MRR", "part", (m) => m.mrr]];

/** @param {import("../types.js").Context} c */
export async function view({ root, params, query, signal }) {
  const base = datasetPath(params.ds);
  /** @type {import("../types.js").Dataset} */
  const ds = await get(base, signal);
  title(`Evaluations of ${ds.name}`);
  const problem = el("div"), history = el("section", { "aria-label": "Evaluations" }), detail = el("section", { "aria-label": "One evaluation" }), saved = el("section", { "aria-label": "Queries of the dataset" });
  /** @type {Evaluation[]} */
  let list = [];
  /** @type {string} */
  let shown = query.get("evaluation") || "";
  let every = false;
  const guard = (/** @type {() => Promise<void>} */ f) => async () => {
    try {
      await f();
      problem.replaceChildren();
    } catch (e) {
      if (!aborted(e)) draw(problem, trouble(e));
    }
  };

  const run = button("Run now", guard(async () => {
    run.disabled = true;
    run.textContent = "Running…";
    try {
      /** @type {Evaluation} */
      const made = await send(`${base}/evaluations`, {});
      shown = made.id;
      note({ evaluation: "" });
      await showHistory();
      announce(`Evaluation done: the answer is in the top five for ${Math.round(made.measures.hit_5 * 100)} % of queries`);
    } finally {
      run.disabled = false;
      run.textContent = "Run now";
    }
  }), { class: "primary" });

  async function showHistory() {
    list = (await get(`${base}/evaluations?limit=${kept}`, signal)).items;
    if (!list.length) {
      draw(history, empty("No evaluation has run yet", el("p", {}, "Save questions whose answers you know, then run an evaluation. After that, one runs automatically when the model or settings change and when documents are reprocessed.")));
      draw(detail);
      return;
    }
    const rows = every ? list : list.slice(0, runs);
    draw(history, list.length > 1 ? overTime([...list].reverse()) : null,
      grid("Evaluations, newest first", [["Ran"], ["Why", "wide"], ["Model", "wide"], ["Queries", "num"], ["Hit@1", "num"], ["Hit@5", "num"], ["Hit@10", "num"], ["Recall@10", "num"], ["MRR", "num"], ["nDCG", "num"]], rows.map((e) => [
        el("a", { href: `?evaluation=${encodeURIComponent(e.id)}`, "aria-current": e.id === (shown || list[0].id) ? "true" : undefined }, time(e.created_at)),
        [causes[e.cause || ""] || "", e.stale ? el("span", { class: "badge off" }, "search incomplete") : null], name(e.model),
        number(e.measures.queries), share(e.measures.hit_1), share(e.measures.hit_5), share(e.measures.hit_10), share(e.measures.recall), share(e.measures.mrr), share(e.measures.ndcg)])),
      rows.length < list.length ? el("p", {}, button(`Show all ${number(list.length)} evaluations`, guard(async () => {
        every = true;
        await showHistory();
      }))) : null);
    await showDetail();
  }

  /** The measures over the evaluations, which the table below has in numbers. @param {Evaluation[]} old the oldest first */
  function overTime(old) {
    const first = old[0], last = old[old.length - 1], when = (/** @type {Evaluation} */ e) => moment(new Date(e.created_at));
    return lines({ title: "Quality over time", caption: `${plural(old.length, "evaluation")}. ${measured.map(([label, , of]) => `${label} ${share(of(first.measures))} at first, now ${share(of(last.measures))}`).join("; ")}.`,
      labels: old.map(when), series: measured.map(([label, cls, of]) => ({ name: label, cls, values: old.map((e) => of(e.measures)) })),
      marks: old.map((e) => (e.cause && e.cause !== "request" ? causes[e.cause] : "")), markText: "Triggered by a change" });
  }

  async function showDetail() {
    const id = shown || list[0].id, older = list[list.findIndex((e) => e.id === id) + 1];
    /** @type {Detail} */
    const e = await get(`${base}/evaluations/${encodeURIComponent(id)}${older && older.id !== id ? `?against=${encodeURIComponent(older.id)}` : ""}`, signal);
    const changes = e.changes || [], missed = e.results.filter((r) => !r.rank);
    draw(detail, el("h2", {}, "Evaluation of ", time(e.created_at)),
      e.against ? el("p", { class: "muted" }, `Hit@5 ${share(e.measures.hit_5)}, ${share(e.against.measures.hit_5)} before; MRR ${share(e.measures.mrr)}, ${share(e.against.measures.mrr)} before.`) : null,
      e.differences?.length ? el("ul", {}, e.differences.map((d) => el("li", {}, `Since the previous evaluation: ${d}.`))) : null,
      e.against && !changes.length ? el("p", {}, "No query changed rank.") : null,
      changes.length ? grid("Queries whose rank changed", [["Query"], ["Was", "num"], ["Is", "num"], ["Why", "wide"]], changes.slice(0, most).map((c) => [search(c.question), rank(c.was), rank(c.is), el("bdi", {}, c.why || "")])) : null,
      missed.length ? [el("h3", {}, "Not found"), el("p", {}, `The answer of ${plural(missed.length, "query", "queries")} is not in the top 50 passages.`), el("ul", {}, missed.slice(0, most).map((r) => el("li", {}, search(r.question))))] : null,
      changes.length > most || missed.length > most ? el("p", { class: "muted" }, `Only the first ${most} are shown. The API returns all of them.`) : null);
  }

  /** A question that leads to its search. @param {string} [question] */
  const search = (question) => (question ? el("a", { href: `/search?${new URLSearchParams({ q: question, dataset: params.ds })}` }, name(question)) : el("span", { class: "muted" }, "a changed or deleted query"));

  /** What questions were made of. */
  const sources = /** @type {Record<string, string>} */ ({ headings: "from a heading", chunks: "by a language model" });

  const generate = button("Generate questions from headings", guard(async () => {
    generate.disabled = true;
    try {
      /** @type {{saved: number}} */
      const made = await send(`${base}/queries:generate`, { from: "headings" });
      announce(made.saved ? `Saved ${plural(made.saved, "question")}` : "No new questions can be generated from the headings");
      await showQueries();
    } finally {
      generate.disabled = false;
    }
  }));

  async function showQueries(cursor = "") {
    /** @type {{items: SavedQuery[], next_cursor: string|null}} */
    const page = await get(`${queriesPath(params.ds)}?${new URLSearchParams({ limit: String(most), ...(cursor ? { cursor } : {}) })}`, signal);
    draw(saved, el("h2", {}, "Saved queries"), form, el("p", {}, generate),
      page.items.length ? grid("Saved queries", [["Query"], ["Expected", "wide"], ["", "row-actions"]], page.items.map((q) => [[search(q.question), q.source ? [" ", el("span", { class: "badge" }, sources[q.source] || q.source)] : null].flat(), q.expected.map((e, i) => [i ? "; " : "", ...expectation(params.ds, e)]).flat(),
        button("Delete", guard(async () => {
          await request(`${queriesPath(params.ds)}/${encodeURIComponent(q.id)}`, { method: "DELETE" });
          announce("Query deleted");
          await showQueries(cursor);
        }), { "aria-label": `Delete the query ${q.question.slice(0, 80)}` })])) : null,
      page.next_cursor ? el("p", {}, button("More queries", guard(() => showQueries(page.next_cursor || "")))) : null,
      cursor ? el("p", {}, button("First queries", guard(() => showQueries()))) : null);
  }

  const field = (/** @type {string} */ label, /** @type {HTMLElement} */ input) => el("label", {}, el("span", {}, label), input);
  const question = el("input", { name: "question", required: true, maxlength: 2000, autocomplete: "off" }), document_ = el("input", { name: "document", maxlength: 512, autocomplete: "off" });
  const from = el("input", { name: "from", type: "number", min: 1, class: "page-number" }), to = el("input", { name: "to", type: "number", min: 1, class: "page-number" }), said = el("input", { name: "text", maxlength: 2000, autocomplete: "off" });
  const form = el("form", { class: "search-form", "aria-label": "Save a query", onsubmit: (/** @type {Event} */ e) => {
    e.preventDefault();
    void guard(async () => {
      const expected = { ...(document_.value.trim() ? { document: document_.value.trim() } : {}), ...(Number(from.value) ? { from: Number(from.value) } : {}), ...(Number(to.value) ? { to: Number(to.value) } : {}), ...(said.value.trim() ? { text: said.value.trim() } : {}) };
      await send(queriesPath(params.ds), { question: question.value.trim(), expected: [expected] });
      form.reset();
      announce("Query saved");
      await showQueries();
      question.focus();
    })();
  } }, el("div", { class: "search-line" }, field("Question", question), el("button", {}, "Save query")),
  el("div", { class: "search-filters open" }, field("Answer is in document", document_), field("from page", from), field("to page", to), field("or passage containing", said)));

  root.replaceChildren(...datasetHead(params.ds, ds.name, "evaluations", run), problem, history, detail, saved);
  await guard(async () => {
    await showQueries();
    await showHistory();
  })();
  return { update: (/** @type {URLSearchParams} */ q) => {
    shown = q.get("evaluation") || "";
    void guard(showHistory)();
  } };
}
