// @ts-check
/** Hits that are ticked as expected, are saved with their question, and are looked for again under other settings. */
import { aborted, all, datasetPath, documentNames, send } from "./api.js";
import { announce, button, draw, el, grid, name, trouble } from "./dom.js";
import { number, plural } from "./format.js";
import { expectation, expectedOf, given, keyOf, maxExpected, maxQueries, meets, queriesPath, rankOf } from "./savedqueries.js";

/** @typedef {import("./types.js").Hit} Hit */
/** @typedef {import("./savedqueries.js").Expected} Expected */
/** @typedef {import("./savedqueries.js").SavedQuery} SavedQuery */

/** Queries that are listed, each time that more are asked for, and how many are asked at once when all are run. */
const step = 50, together = 3;

/**
 * @param {object} o
 * @param {import("./types.js").Dataset[]} o.sets the datasets that are known; those of hits are, once they are on show
 * @param {boolean} o.many whether there are others
 * @param {(h: Hit) => string} o.unit what the places of a hit are called, "" when it has none
 * @param {(question: string, ds: string) => string} o.address where a question is asked with the settings on show
 * @param {(question: string, ds: string) => Promise<Hit[][]>} o.ask asks it: one list of hits, or those of A and B
 * @param {AbortSignal} o.signal
 */
export function expecting({ sets, many, unit, address, ask, signal }) {
  const panel = el("section", { "aria-label": "Expected hits", class: "expected-panel" }), list = el("div"), label = el("summary", {}, "Saved queries"), problem = el("div");
  const listed = el("details", { class: "saved-queries" }, label, list);
  /** What is on show: a question, its dataset if it is asked of one, and the answers. */
  let question = "", home = "", /** @type {Hit[][]} */ answers = [], under = "";
  /** @type {Map<string, {e: Expected, ds: string}>} */
  let ticked = new Map();
  /** @type {{query: SavedQuery, ds: string}|undefined} */
  let saved;
  /** @type {[HTMLInputElement, Hit][]} */
  let boxes = [];
  /** Ranks of queries under the settings on show, by id. @type {Map<string, number[]>} */
  let ranks = new Map();
  /** @type {Map<string, Promise<SavedQuery[]>>} */
  const cache = new Map();
  /** Documents by id. @type {Map<string, {name: string, unit?: string}>} */
  const names = new Map();
  let shown = step, sum = "", stop = new AbortController(), running = false;

  const known = (/** @type {string} */ ds) => sets.find((s) => s.id === ds || s.name === ds), called = (/** @type {string} */ ds) => known(ds)?.name || ds;
  /** The queries of a dataset. @param {string} ds */
  function queriesOf(ds) {
    const id = known(ds)?.id || ds, have = cache.get(id);
    if (have) return have;
    const made = all(queriesPath(id), maxQueries, signal);
    cache.set(id, made);
    made.catch(() => cache.delete(id));
    return made;
  }
  /** The dataset that the ticked hits are of; nothing when they are of several, or there is none. */
  const target = () => home || (new Set([...ticked.values()].map((t) => t.ds)).size === 1 ? [...ticked.values()][0].ds : "");
  const fail = (/** @type {unknown} */ e) => {
    if (!aborted(e) && !signal.aborted) draw(problem, trouble(e));
  };

  const said = (/** @type {number[]} */ at) => at.map((n, i) => [" ", el("span", { class: `badge ${n ? "ok" : "part"}` }, `${at.length > 1 ? `${"AB"[i]}: ` : ""}${n ? `${at.length > 1 ? "rank" : "Rank"} ${number(n)}` : at.length > 1 ? "not found" : "Not found"}`)]).flat();

  /** @param {Hit} h @param {string} where */
  function box(h, where) {
    const input = el("input", { type: "checkbox", onchange: () => {
      if (input.checked) {
        const e = expectedOf(h, unit(h) !== "");
        ticked.set(keyOf(e), { e, ds: h.document.dataset_id });
      } else for (const [k, { e }] of ticked) if (meets(e, h)) ticked.delete(k);
      drawPanel();
    } });
    boxes.push([input, h]);
    return el("label", { class: "check expect" }, input, "Expected", el("span", { class: "hidden" }, `: ${h.document.name.slice(0, 80)}${where}`));
  }

  async function save() {
    const ds = target();
    if (!ds || !question) return;
    try {
      /** @type {SavedQuery} */
      const query = await send(queriesPath(ds), { question, expected: [...ticked.values()].map(({ e }) => given(e)) });
      announce(`Query saved in ${called(ds)}`);
      problem.replaceChildren();
      cache.clear();
      saved = { query, ds };
      ticked = new Map(query.expected.map((e) => [keyOf(e), { e, ds }]));
      ranks.set(query.id, answers.map((hits) => rankOf(query.expected, hits)));
      drawPanel();
      await drawList();
    } catch (e) {
      fail(e);
    }
  }

  function drawPanel() {
    for (const [input, h] of boxes) input.checked = [...ticked.values()].some(({ e }) => meets(e, h));
    if (!question || (!saved && !answers.some((hits) => hits.length))) return draw(panel, problem);
    const n = ticked.size, ds = target(), keys = new Set(saved?.query.expected.map(keyOf)), changed = n !== keys.size || [...ticked.keys()].some((k) => !keys.has(k));
    const evaluations = (/** @type {string} */ to) => el("a", { href: `/datasets/${encodeURIComponent(to)}/evaluations` }, "evaluations");
    /** @type {import("./dom.js").Child[]} */
    const hint = n > maxExpected ? [`A query can have at most ${maxExpected} expected hits. Clear some of them.`]
      : n && !ds ? ["A query belongs to one dataset. Select hits from one dataset only."]
      : saved && !n ? ["A query needs at least one expected hit. Select one, or delete the query in ", evaluations(saved.ds), "."]
      : saved ? [changed ? "Expected hits changed. " : "", "Saved in ", name(called(saved.ds)), "; ", evaluations(saved.ds), " track how well it is found."]
      : n ? [`with ${plural(n, "expected hit")} in `, name(called(ds)), "."]
      : ["Select the hits that answer the question and save the query. Evaluations then track how well search finds them."];
    draw(panel, el("p", { class: "save-line" }, saved ? el("span", { class: "badge ok" }, "Saved query") : null,
      button(saved ? "Save changes" : "Save query", () => void save(), { disabled: !n || !ds || n > maxExpected || !changed }), el("span", { class: "muted" }, hint)),
    n ? el("ul", { class: "expected-list" }, [...ticked.values()].map(({ e, ds }) => el("li", {}, expectation(ds, e, names.get(e.document_id || "")), said(answers.map((hits) => rankOf([e], hits)))))) : null, problem);
  }

  async function drawList() {
    const ds = home || (sets.length === 1 && !many ? sets[0].name : ""), of = question;
    if (!ds) {
      label.textContent = "Saved queries";
      return draw(list, el("p", { class: "muted" }, "Choose a dataset to see its saved queries."));
    }
    const queries = await queriesOf(ds);
    if (signal.aborted || of !== question) return;
    label.textContent = `Saved queries (${number(queries.length)})`;
    if (!queries.length) return draw(list, el("p", { class: "muted" }, "No saved queries in ", name(called(ds)), " yet. Search, select the hits that answer the question, and save the query."));
    draw(list, el("p", { class: "save-line" }, running ? button("Stop", () => stop.abort()) : button("Run all", () => void runAll(ds, queries)), el("span", { class: "muted" }, sum || "Runs each query with the settings above.")),
      grid("Saved queries", [["Query"], ["Found", "wide"]], queries.slice(0, shown).map((q) => [el("a", { href: address(q.question, called(ds)), "aria-current": q.question === question ? "true" : undefined }, name(q.question)),
        ranks.has(q.id) ? said(ranks.get(q.id) || []) : q.expected.length ? el("span", { class: "muted" }, "not run with these settings") : el("span", { class: "muted" }, "expected hits no longer exist")])),
      queries.length > shown ? el("p", {}, button("More queries", () => {
        shown += step;
        void drawList().catch(fail);
      })) : null);
  }

  /** How many of the queries that were run are found, by each of the settings. @param {SavedQuery[]} queries */
  function summed(queries) {
    const run = queries.filter((q) => ranks.has(q.id)).map((q) => ranks.get(q.id) || []), sides = run[0]?.length || 0;
    return Array.from({ length: sides }, (_, i) => {
      const at = run.map((r) => r[i]), found = at.filter(Boolean);
      return `${sides > 1 ? `${"AB"[i]}: ` : ""}${number(found.length)} of ${number(at.length)} found, ${number(found.filter((n) => n === 1).length)} of them first`;
    }).join("; ");
  }

  /** @param {string} ds @param {SavedQuery[]} queries */
  async function runAll(ds, queries) {
    stop = new AbortController();
    const now = AbortSignal.any([stop.signal, signal]), left = queries.filter((q) => q.expected.length), many = left.length, settings = under;
    running = true;
    const one = async () => {
      for (let q = left.shift(); q && !now.aborted; q = left.shift()) {
        const found = await ask(q.question, ds);
        if (now.aborted || settings !== under) return;
        ranks.set(q.id, found.map((hits) => rankOf(q.expected, hits)));
        sum = `${number(many - left.length)} of ${number(many)}…`;
        if (!(left.length % step)) await drawList();
      }
    };
    try {
      await drawList();
      await Promise.all(Array.from({ length: together }, one));
      problem.replaceChildren();
    } catch (e) {
      stop.abort();
      fail(e);
    } finally {
      running = false;
      if (!signal.aborted && settings === under) {
        sum = `${summed(queries)}.`;
        announce(sum);
      }
      if (!signal.aborted) await drawList().catch(fail);
    }
  }

  /**
   * Takes what is asked now; the boxes of what was asked before are gone.
   * @param {string} q @param {string} ds the dataset that is asked, "" for all @param {string} settings what else is in the address
   */
  function begin(q, ds, settings) {
    if (q !== question || ds !== home) {
      ticked = new Map();
      saved = undefined;
    }
    if (settings !== under || ds !== home) {
      stop.abort();
      ranks = new Map();
      sum = "";
    }
    if (!q) listed.open = true;
    question = q;
    home = ds;
    under = settings;
    answers = [];
    boxes = [];
    if (!q) {
      draw(panel, problem);
      void drawList().catch(fail);
    }
  }

  /** Takes the answers, whose boxes are drawn. @param {Hit[][]} found */
  async function show(found) {
    answers = found;
    for (const h of found.flat()) names.set(h.document.id, { name: h.document.name, unit: unit(h) });
    drawPanel();
    const of = question, at = home;
    try {
      // Asked of all datasets, a question may be saved in any that a hit is of.
      for (const ds of home ? [home] : [...new Set(found.flat().map((h) => h.document.dataset_id))].slice(0, 10)) {
        const query = (await queriesOf(ds)).find((q) => q.question === of);
        if (signal.aborted || of !== question || at !== home) return;
        if (!query) continue;
        ranks.set(query.id, answers.map((hits) => rankOf(query.expected, hits)));
        if (!saved) {
          saved = { query, ds };
          for (const e of query.expected) ticked.set(keyOf(e), { e, ds });
        }
        const unknown = query.expected.flatMap((/** @type {Expected} */ e) => (e.document_id && !names.has(e.document_id) ? [e.document_id] : []));
        for (const d of await documentNames(ds, [...new Set(unknown)], signal)) names.set(d.id, d);
        break;
      }
      if (of !== question || at !== home) return;
      drawPanel();
      await drawList();
    } catch (e) {
      fail(e);
    }
  }

  return { panel, listed, box, begin, show };
}
