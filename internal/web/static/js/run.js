// @ts-check
/** The run of a flow over a document: its graph with the states of its nodes, and what each of them made. */
import { aborted, download, get, request, send } from "./api.js";
import { dag } from "./dag.js";
import { announce, button, draw, el, empty, grid, icon, name, trouble } from "./dom.js";
import { between, bytes, duration, money, number, plural, time } from "./format.js";
import { note } from "./nav.js";
import { cure, failureLine, terminal } from "./parts.js";
import { repeat } from "./repeat.js";
import { sheet } from "./sheet.js";

/** @typedef {import("./types.js").FlowRun} FlowRun */
/** @typedef {import("./types.js").RunNode} RunNode */

/** Words, shape and tone of the states of nodes. @type {Record<string, [string, string, string]>} */
export const nodeStates = {
  parked: ["Waiting", "clock", "wait"],
  pending: ["Queued", "dot", "wait"],
  running: ["Running", "play", "run"],
  retry_wait: ["Retrying", "warn", "part"],
  done: ["Done", "check", "ok"],
  skipped: ["Skipped", "hop", "off"],
  failed: ["Failed", "cross", "bad"],
  canceled: ["Canceled", "stop", "off"],
  reused: ["Reused", "reuse", "ok"],
};

/** @param {string} state */
const nodeBadge = (state) => {
  const [text, shape, tone] = nodeStates[state] || [state, "dot", "wait"];
  return el("span", { class: `badge ${tone}` }, icon(shape), text);
};

/** What a language model took, as one line; "" where none was asked. @param {import("./types.js").RunCost} c */
export const cost = (c) => (c.asked ? [plural(c.asked.calls, "call"), c.asked.cached ? `${number(c.asked.cached)} kept ${c.asked.cached === 1 ? "answer" : "answers"}` : "", plural(c.asked.tokens, "token"), c.currency ? money(c.price || 0, c.currency) : ""].filter(Boolean).join(", ") : "");

/** @param {string} mode */
export const modeWords = (mode) => (mode === "nodes" ? "One task per node" : mode === "whole" ? "One task per range" : "");

/** A version of a flow. @param {string} ref */
export const flowRef = (ref) => {
  const [flow, version] = ref.split("@");
  return el("a", { href: `/flows/${encodeURIComponent(flow)}${Number(version) ? `?version=${version}` : ""}` }, ref);
};

/** How long until it is looked again, in milliseconds, while it runs and afterwards. */
const pace = 1000, idle = 5000;

/** Rows of the outputs of a node; the API has them all. */
const mostOutputs = 200;

/**
 * @param {{base: string, generation: () => number, query: URLSearchParams, signal: AbortSignal}} o base of the document, its newest version
 */
export async function runPane({ base, generation, query, signal }) {
  await sheet("/flows.css");
  const head = el("div", { class: "run-head" }), stage = el("div", { class: "run-stage" }), detail = el("section", { class: "run-detail", id: "run-detail", "aria-label": "The chosen node" }), table = el("section");
  const root = el("div", { class: "run" }, head, stage, detail, table);
  let picked = query.get("node") || "", version = Number(query.get("generation")) || 0;
  let tag = "", shape = "";
  /** @type {FlowRun|undefined} */
  let run;
  /** @type {ReturnType<typeof dag>|undefined} */
  let drawing;
  const of = () => (version ? `?generation=${version}` : "");
  const nodeOf = (/** @type {string} */ id) => run?.nodes.find((n) => n.id === id);

  /** What is typed in the form below while the run is looked at again. */
  const most = el("input", { id: "raise-tokens", inputmode: "numeric", autocomplete: "off", "aria-describedby": "raise-help" });

  /** The run waits at its cap: a form raises it. @param {import("./types.js").VersionBudget} b */
  function atBudget(b) {
    const message = el("div"), go = el("button", { class: "primary" }, "Raise the budget");
    return el("form", { class: "trouble", onsubmit: async (/** @type {Event} */ e) => {
      e.preventDefault();
      const typed = most.value.trim(), tokens = typed.replace(/[\s,.]/g, "");
      // Digits may stand in threes, as people write them; 1.5 is not 15.
      if (typed && !/^\d+$|^\d{1,3}([\s,.]\d{3})+$/.test(typed)) return draw(message, el("p", { class: "warn", role: "alert" }, "Enter a whole number of tokens, or leave the field empty for no limit."));
      go.disabled = true;
      try {
        await send(`${base}:resume`, tokens ? { max_tokens: Number(tokens) } : {});
        most.value = "";
        announce("Budget raised");
        draw(message, el("p", { role: "status" }, "Budget raised. The run resumes within 20 seconds."));
      } catch (err) {
        draw(message, trouble(err));
      }
      go.disabled = false;
    } }, icon("warn"), el("div", {}, el("p", {}, `The run waits at its budget: ${plural(b.spent, "token")} of the language model${b.currency ? `, ${money(b.price || 0, b.currency)},` : ""} are spent or on their way. What was answered is not asked again.`),
      el("p", {}, el("label", { for: "raise-tokens" }, "Total tokens "), most, " ", go), el("p", { id: "raise-help", class: "muted" }, "Leave empty for no limit. The daily cap still applies."), message));
  }

  /** @param {RunNode} n */
  function face(n) {
    const [text, shape, tone] = nodeStates[n.state] || [n.state, "dot", "wait"];
    const part = n.ranges > 1 ? `${number(n.done)} of ${number(n.ranges)}` : "";
    const hidden = (/** @type {string} */ t) => el("span", { class: "hidden" }, t); // between what is read out
    return { tone, text: [el("span", { class: "dag-name" }, n.id), ...(n.definition && n.definition.kind !== n.id ? [hidden(", "), el("span", { class: "dag-kind" }, n.definition.kind)] : []), hidden(": "),
      el("span", { class: "dag-state" }, icon(shape), text, part ? [hidden(", "), el("span", { class: "num dag-part" }, part), hidden(" ranges")] : null)] };
  }

  function pick(/** @type {string} */ id) {
    picked = id;
    note({ node: id });
    drawing?.update(id);
    void showNode().then(() => announce(`${id} is shown`));
  }

  function show() {
    if (!run) return;
    const r = run, versions = Math.max(generation(), r.generation);
    const choose = el("select", { onchange: () => {
      version = Number(choose.value) === generation() ? 0 : Number(choose.value);
      note({ generation: version ? String(version) : "" });
      tag = "";
      void look();
    } }, Array.from({ length: Math.min(versions, 100) }, (_, i) => el("option", { value: versions - i, selected: versions - i === r.generation }, `Version ${versions - i}`)));
    const typing = document.activeElement === most;
    draw(head, el("p", { class: "facts-line run-facts" },
      el("span", {}, "Flow ", flowRef(r.flow)),
      versions > 1 ? el("label", {}, el("span", { class: "hidden" }, "Document version "), choose) : null,
      el("span", { class: "badge wait" }, modeWords(r.mode)), el("span", { class: "muted" }, r.reason),
      el("span", { class: "muted" }, terminal(r.state) ? `took ${duration(between(r.created_at, r.finished_at))}` : ["began ", time(r.created_at)]),
      cost(r) ? el("span", { class: "muted" }, `language model: ${cost(r)}`) : null),
      r.unserved_pools?.length ? el("div", { class: "trouble" }, icon("warn"), el("p", {}, `No executor serves the pool ${r.unserved_pools.join(", ")}. Start one with executor.pools = ${r.unserved_pools.join(", ")}; the run goes on by itself.`)) : null,
      r.budget?.waits && r.generation === generation() ? atBudget(r.budget) : null,
      r.nodes.some((n) => n.definition) ? null : el("p", { class: "muted" }, `The version ${r.flow} was deleted: the edges and settings of its nodes are no longer available.`));
    if (typing) most.focus();
    const now = JSON.stringify([r.generation, r.flow, r.nodes.map((n) => [n.id, n.definition?.from])]);
    if (now !== shape) {
      shape = now;
      drawing = dag({ label: `Nodes of the flow ${r.flow}`, signal, pick, face: (id) => face(/** @type {RunNode} */ (nodeOf(id))), nodes: r.nodes.map((n) => ({ id: n.id, from: n.definition?.from || [] })) });
      stage.replaceChildren(drawing.root);
    }
    drawing?.update(picked);
    draw(table, el("h2", {}, "All nodes"), grid("Nodes of the run", [["Node"], ["Reads"], ["State"], ["Ranges", "num"], ["Attempts", "num"], ["Output"], ["Time", "num"], ["Language model", "wide"]], r.nodes.map((n) => [
      [button(n.id, () => {
        pick(n.id);
        detail.scrollIntoView({ block: "nearest" });
      }, { class: "link" }), n.definition ? el("span", { class: "under" }, n.definition.kind) : null],
      n.definition?.from?.join(", ") || el("span", { class: "muted" }, n.definition ? "the document" : "–"), [nodeBadge(n.state), n.reason ? el("span", { class: "run-reason" }, n.reason) : null],
      n.ranges ? `${number(n.done)} / ${number(n.ranges)}` : "–", number(n.attempts), output(n) || "–", n.ms ? duration(n.ms) : "–", cost(n) || "–"])));
    if (r.nodes.some((n) => n.shared)) table.append(el("p", { class: "muted" }, "Nodes that share a task also share its attempts and its time."));
  }

  /** @param {{chunks: number, bytes: number}} n */
  const output = (n) => [n.chunks ? plural(n.chunks, "chunk") : "", n.bytes ? bytes(n.bytes) : ""].filter(Boolean).join(", ");

  async function showNode() {
    if (!picked || !nodeOf(picked)) return detail.replaceChildren(el("p", { class: "muted" }, "Select a node to see its settings, inputs and outputs."));
    /** @type {import("./types.js").RunNodeAnswer} */
    const n = await get(`${base}/run/nodes/${encodeURIComponent(picked)}${of()}`, signal);
    if (n.id !== picked) return;
    const d = n.definition, readBy = run?.nodes.filter((m) => m.definition?.from?.includes(n.id)) || [];
    const row = (/** @type {string} */ k, /** @type {any} */ v) => (v || v === 0 ? [el("dt", {}, k), el("dd", {}, v)] : []);
    const links = (/** @type {string[]} */ ids) => ids.map((id, i) => [i ? ", " : "", button(id, () => pick(id), { class: "link" })]).flat();
    const tasks = n.tasks.slice(0, mostOutputs);
    draw(detail, el("div", { class: "head" }, el("h2", {}, name(n.id)), nodeBadge(n.state)),
      n.failure ? el("div", { class: "problem" }, el("h3", {}, failureLine(n.failure)), el("p", {}, cure(n.failure), " ", el("code", {}, n.failure.code))) : null,
      n.reason && n.reason !== n.failure?.message ? el("p", { class: "page-note" }, n.state === "skipped" ? `Skipped: ${n.reason}.`.replace(/\.\.$/, ".") : n.reason) : null,
      el("div", { class: "run-columns" },
        el("dl", { class: "facts" },
          ...row("Kind", d?.kind), ...row("Reads", d && (d.from?.length ? links(d.from) : "the document")), ...row("Read by", readBy.length ? links(readBy.map((m) => m.id)) : null),
          ...row("Runs when", d?.when && el("code", {}, d.when)), ...row("Pool", n.pool || d?.pool), ...row("On failure", d?.on_failure), ...row("Time-out", d?.timeout),
          ...row("Attempts", `${number(n.attempts)}${n.reused ? `, ${plural(n.reused, "range")} reused` : ""}${d?.retry?.attempts ? ` of at most ${number(d.retry.attempts)} a range` : ""}`),
          ...row("Output", output(n)), ...row("Time", n.ms ? `${duration(n.ms)}${n.shared ? " with the nodes that share its task" : ""}` : null), ...row("Language model", cost(n))),
        el("div", {}, el("h3", {}, "Settings"), d?.config ? el("pre", { class: "mono" }, JSON.stringify(d.config, null, 2)) : el("p", { class: "muted" }, d ? "None: uses the document's settings." : "No longer available."))),
      tasks.length ? el("div", {}, el("h3", {}, "Outputs by range"), grid(`Outputs of ${n.id}`, [["Range"], ["State"], ["Chunks", "num"], ["Size", "num"], ["Digest", "mono"], ["Attempts", "num"], ["Time", "num"]], tasks.map((t) => [
        t.range ? (t.range[0] === t.range[1] ? number(t.range[0]) : `${number(t.range[0])}–${number(t.range[1])}`) : "all", [nodeBadge(t.reused ? "reused" : t.state), t.reason || t.failure ? el("span", { class: "run-reason" }, t.reason || t.failure?.message) : null],
        number(t.chunks), t.bytes ? bytes(t.bytes) : "–", t.digest || "–", number(t.attempts), t.ms ? duration(t.ms) : "–"])),
        n.tasks.length > tasks.length ? el("p", { class: "muted" }, `and ${number(n.tasks.length - tasks.length)} more`) : null) : null,
      n.files?.length ? el("div", {}, el("h3", {}, "Files"), el("ul", { class: "files" }, n.files.slice(0, mostOutputs).map((f) => el("li", {}, button(`${f.range.join("–")}, ${plural(f.chunks, "chunk")}, ${bytes(f.bytes)}`, () => void download(f.path, `${n.id}-${f.range.join("-")}.${f.media.includes("parquet") ? "parquet" : "jsonl"}`), { class: "link" }))))) : null);
  }

  /** Looks at the run; what has not changed is not sent again, and not drawn anew. */
  const look = repeat(signal, async () => {
    try {
      const r = await request(`${base}/run${of()}`, { signal }), now = r.headers.get("ETag") || "";
      if (now !== tag || !tag) {
        tag = now;
        run = await r.json();
        detail.hidden = table.hidden = false;
        show();
        await showNode();
      }
      return run && !terminal(run.state) ? pace : idle;
    } catch (e) {
      if (aborted(e) || signal.aborted) return idle;
      tag = "";
      const unplanned = /** @type {any} */ (e).code === "no_run";
      if (!run || unplanned) {
        run = undefined;
        shape = "";
        detail.hidden = table.hidden = true;
        draw(head, unplanned ? empty("The run has not been planned yet", el("p", {}, "The graph appears here once the run is planned. Versions rebuilt from an older version's results have no run.")) : trouble(e, () => void look()));
        stage.replaceChildren();
      }
      return unplanned ? pace : idle;
    }
  });
  await look();
  return root;
}
