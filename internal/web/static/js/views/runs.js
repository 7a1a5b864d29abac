// @ts-check
/** What runs over a dataset: summaries, graph and mind map of all its documents, and the flow of each document. */
import { aborted, datasetPath, get, request, send } from "../api.js";
import { datasetHead } from "../datasetparts.js";
import { dialog } from "../dialog.js";
import { announce, button, draw, el, empty, grid, icon, name, trouble } from "../dom.js";
import { between, duration, money, number, percent, plural, time } from "../format.js";
import { go, title } from "../nav.js";
import { badge, bar, terminal } from "../parts.js";
import { repeat } from "../repeat.js";
import { cost, flowRef, modeWords } from "../run.js";
import { sheet } from "../sheet.js";

/** @typedef {import("../types.js").DatasetRun} DatasetRun */
/** @typedef {import("../types.js").FlowRunListed} FlowRunListed */

/** What runs over a dataset make, by kind. @type {Record<string, [string, string]>} */
const kinds = {
  raptor: ["Summaries", "Summaries of summaries, which are searchable too. Without a language model they consist of the most central sentences."],
  graphrag: ["Graph by a model", "A language model extracts entities and relations. Without a run the graph is built by rules."],
  mindmap: ["Mind map", "A tree of what the documents are about, from their headings and key phrases."],
};

const over = (/** @type {DatasetRun} */ r) => !["queued", "running"].includes(r.state);

/** How often it is looked while something runs, and otherwise, in milliseconds. */
const pace = 1000, idle = 5000;

/** @param {import("../types.js").Context} c */
export async function view({ root, params, query, signal }) {
  const base = datasetPath(params.ds);
  /** @type {[import("../types.js").Dataset, any]} */
  const [ds] = await Promise.all([get(base, signal), sheet("/flows.css")]);
  title(`${ds.name}, runs`);
  const whole = el("section"), documents = el("section"), problem = el("div");
  root.replaceChildren(...datasetHead(params.ds, ds.name, "runs", el("a", { class: "button", href: "/flows" }, "Flows"), button("Start a run…", () => void start(), { class: "primary" })), problem, whole, documents);

  /** What was read last, with its tag. @type {Record<string, {tag: string, body: any}>} */
  const known = {};
  /** @param {string} path @returns {Promise<boolean>} whether it is new */
  async function read(path) {
    const r = await request(path, { signal }), tag = r.headers.get("ETag") || "", text = await r.text();
    if (known[path] && known[path].tag === (tag || text)) return false;
    known[path] = { tag: tag || text, body: JSON.parse(text) };
    return true;
  }
  const runsPath = `${base}/runs?limit=50`, listPath = `${base}/documents/runs?limit=50`;
  /** @type {FlowRunListed[]} */
  let older = [];
  /** @type {string|null|undefined} */
  let cursor;

  /** A budget as two fields. @param {DatasetRun} [r] */
  const budget = (r) => el("div", { class: "grid-fields" },
    el("label", { class: "field" }, "Max tokens", el("input", { name: "max_tokens", inputmode: "numeric", autocomplete: "off", value: r?.max_tokens ? String(r.max_tokens * 2) : "", placeholder: "no limit" })),
    el("label", { class: "field" }, "Max price", el("input", { name: "max_price", inputmode: "decimal", autocomplete: "off", placeholder: "no limit" })));
  /** @param {FormData} form */
  const budgetOf = (form) => {
    /** @type {Record<string, number>} */
    const out = {};
    for (const [key, words] of [["max_tokens", "a whole number of tokens, such as 100000"], ["max_price", "a price, such as 2.50"]]) {
      const text = String(form.get(key) || "").trim().replace(/[\s,](?=\d{3}\b)/g, "");
      if (!text) continue;
      out[key] = Number(text);
      if (!(out[key] > 0) || key === "max_tokens" && !Number.isInteger(out[key])) throw new Error(`“${text}” is not ${words}.`);
    }
    return out;
  };

  /** @param {string} [chosen] */
  async function start(chosen) {
    const forecast = el("div", { class: "preview", role: "status" }), about = el("p", { class: "muted" });
    const choose = el("select", { name: "kind", onchange: () => void would() }, Object.entries(kinds).map(([k, [label]]) => el("option", { value: k, selected: k === chosen }, label)));
    async function would() {
      const kind = choose.value;
      about.textContent = kinds[kind][1];
      forecast.replaceChildren("Estimating …");
      try {
        const p = (await send(`${base}/${kind}?dry_run=true`, {})).plan;
        if (choose.value !== kind) return;
        forecast.replaceChildren(el("dl", { class: "facts" }, el("dt", {}, "Documents"), el("dd", {}, `${number(p.documents)}, ${number(p.current)} already up to date`), el("dt", {}, "Language model"),
          el("dd", {}, p.calls ? `at most ${plural(p.calls, "call")}, ${plural(p.tokens, "token")}${p.price ? `, ${money(p.price, p.currency)}` : ""}` : "not used")));
      } catch (e) {
        if (choose.value === kind) forecast.replaceChildren(trouble(e));
      }
    }
    void would();
    const done = await dialog({ title: "Start a run", no: "Cancel", action: "Start", body: [el("label", { class: "field" }, "Kind of run", choose), about, forecast, budget()],
      run: async (form) => send(`${base}/${form.get("kind")}`, budgetOf(form)) });
    if (!done) return;
    announce("Run started");
    void look();
  }

  /** @param {DatasetRun} r */
  async function stop(r) {
    const done = await dialog({ title: `Cancel the run of ${kinds[r.kind]?.[0].toLowerCase() || r.kind}`, no: "Keep it running", action: "Cancel the run", danger: true, body: [el("p", {}, "What it has produced is kept, and you can resume the run.")], run: () => send(`${base}/runs/${r.id}:cancel`) });
    if (done) void look();
  }

  /** @param {DatasetRun} r */
  async function resume(r) {
    const parked = r.state === "parked";
    const done = await dialog({ title: parked ? "Raise the cap" : "Resume the run", no: "Cancel", action: parked ? "Raise the cap and resume" : "Resume",
      body: [el("p", {}, parked ? `The run stopped at its cap with ${plural(r.tokens, "token")} spent. Nothing already paid for is paid for again.` : "What it has made stays, and what failed is tried again."), budget(r)],
      run: (form) => send(`${base}/runs/${r.id}:resume`, budgetOf(form)) });
    if (done) void look();
  }

  /** @param {DatasetRun[]} runs */
  function showRuns(runs) {
    draw(whole, el("h2", {}, "Over the whole dataset"), runs.length ? grid("Runs over the dataset", [["Run"], ["State"], ["Progress"], ["Language model"], ["Began"], ["", "row-actions"]], runs.map((r, i) => {
      const newest = runs.findIndex((x) => x.kind === r.kind) === i;
      const asked = [r.calls ? plural(r.calls, "call") : "", r.cached ? `${number(r.cached)} kept ${r.cached === 1 ? "answer" : "answers"}` : "", r.tokens ? `${number(r.tokens)}${r.max_tokens ? ` of ${number(r.max_tokens)}` : ""} tokens` : r.max_tokens ? `cap of ${number(r.max_tokens)} tokens` : "", r.price ? money(r.price, r.currency || "") : ""].filter(Boolean).join(", ");
      return [[kinds[r.kind]?.[0] || r.kind, el("span", { class: "under" }, plural(r.documents, "document"))],
        [r.state === "parked" ? el("span", { class: "badge part" }, icon("stop"), "Stopped at its cap") : badge(r.state), r.cause ? el("span", { class: "run-reason" }, r.cause) : null],
        over(r) ? el("span", { class: "muted" }, `took ${duration(between(r.started_at || r.created_at, r.finished_at || r.created_at))}`) : [bar(r.progress, `Progress of ${kinds[r.kind]?.[0] || r.kind}`), ` ${percent(r.progress)}`, r.phase ? el("span", { class: "under" }, r.phase) : null],
        asked || el("span", { class: "muted" }, "not used"), time(r.created_at),
        [...(over(r) ? newest && ["parked", "failed", "canceled", "partially_succeeded"].includes(r.state) ? [button(r.state === "parked" ? "Raise the cap…" : "Resume…", () => void resume(r))] : [] : [button("Cancel…", () => void stop(r))]),
          ...(r.kind === "raptor" || !["succeeded", "partially_succeeded"].includes(r.state) ? [] : [el("a", { class: "button", href: `/datasets/${encodeURIComponent(params.ds)}/${r.kind === "mindmap" ? "mindmap" : "graph"}` }, "Show")])]];
    })) : el("p", { class: "muted" }, "None yet. A run builds summaries, a graph or a mind map from all documents, and shows its cost before it starts."));
  }

  function showDocuments() {
    const { items, next_cursor: next } = known[listPath].body;
    if (cursor === undefined) cursor = next;
    const newest = new Set(items.map((/** @type {FlowRunListed} */ r) => r.document_id));
    const all = /** @type {FlowRunListed[]} */ ([...items, ...older.filter((r) => !newest.has(r.document_id))]);
    draw(documents, el("h2", {}, "Over single documents"), all.length ? el("div", {}, grid("Runs over documents", [["Document"], ["Flow"], ["State"], ["How"], ["Time", "num"], ["Language model"]], all.map((r) => [
      el("a", { href: `/datasets/${encodeURIComponent(params.ds)}/documents/${r.document_id}?tab=run` }, name(r.document)), [flowRef(r.flow), r.generation > 1 ? el("span", { class: "under" }, `version ${r.generation} of the document`) : null],
      badge(r.state), r.mode ? [modeWords(r.mode), el("span", { class: "run-reason" }, r.reason)] : el("span", { class: "muted" }, "not planned yet"),
      terminal(r.state) ? duration(between(r.created_at, r.finished_at)) : "–", cost(r) || el("span", { class: "muted" }, "not used")])),
    cursor ? button("Show older runs", () => void more()) : null) : empty("No runs yet", el("p", {}, "Every processed document is a run of a flow. ", el("a", { href: `/datasets/${encodeURIComponent(params.ds)}` }, "Add documents"), " to start one.")));
  }
  async function more() {
    const page = await get(`${listPath}&cursor=${encodeURIComponent(cursor || "")}`, signal);
    older.push(...page.items);
    cursor = page.next_cursor || "";
    showDocuments();
  }

  const look = repeat(signal, async () => {
    try {
      const [a, b] = await Promise.all([read(runsPath), read(listPath)]);
      problem.replaceChildren();
      if (a) showRuns(known[runsPath].body.items);
      if (b) showDocuments();
      if (known[runsPath].body.items.some((/** @type {DatasetRun} */ r) => !over(r)) || known[listPath].body.items.some((/** @type {FlowRunListed} */ r) => !terminal(r.state))) return pace;
    } catch (e) {
      if (!aborted(e) && !signal.aborted) problem.replaceChildren(trouble(e, () => void look()));
    }
    return idle;
  });
  await look();
  const asked = query.get("start") || "";
  if (asked in kinds) {
    go(`${location.pathname}`, { replace: true });
    void start(asked);
  }
  return { update() {} };
}
