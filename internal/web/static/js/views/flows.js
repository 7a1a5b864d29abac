// @ts-check
/** Flows: their versions, what distinguishes them, their graph, and their text to change. */
import { aborted, all, get, send } from "../api.js";
import { dag } from "../dag.js";
import { dialog } from "../dialog.js";
import { announce, button, draw, el, grid, name, trouble } from "../dom.js";
import { number, plural, time } from "../format.js";
import { go, title } from "../nav.js";
import { reading, withNode } from "../flowtext.js";
import { sheet } from "../sheet.js";

/** @typedef {{ref: string, name: string, version: number, nodes: number, built_in?: boolean, created_at?: string}} Listed */
/** @typedef {Listed & {flow: {node: import("../types.js").FlowNode[]}, toml: string}} Flow */
/** @typedef {{node?: string, field?: string, message: string, line?: number}} Problem */

const sample = `name = "mine"
node = [
  { id = "read", kind = "parse" },
  { id = "cut", kind = "chunk", from = ["read"] },
  { id = "out", kind = "index", from = ["cut"] },
]
`;

/** @typedef {{name: string, doc: string, type: string, required?: boolean, values?: string[]}} Setting */
/** @typedef {{name: string, doc: string, in: string[], out?: string, config: Setting[], common: string[]}} Kind common: names of the settings of all kinds that it takes */

/** The value of a setting from what was typed, undefined for nothing. @param {Setting} s @param {string} typed */
function valueOf(s, typed) {
  if (!typed) return undefined;
  if (s.type === "strings") return typed.split(",").map((x) => x.trim()).filter(Boolean);
  if (["string", "keep", "duration"].includes(s.type)) return typed;
  try {
    return JSON.parse(typed);
  } catch {
    throw new Error(`${s.name} is not a valid ${s.type}. Write it as JSON, for example ${s.type === "object" ? '{"name": "value"}' : s.type === "bool" ? "true" : "1"}.`);
  }
}

/** How many flows are listed. */
const mostFlows = 2000;

/** @param {import("../types.js").Context} c */
export async function view({ root, params, query, signal }) {
  await sheet("/flows.css");
  const called = params.flow;
  if (!called && !query.has("new")) {
    const items = await all("/v1/flows", mostFlows, signal);
    title("Flows");
    root.replaceChildren(el("div", { class: "head" }, el("h1", { tabindex: "-1" }, "Flows"), el("div", { class: "tools" }, button("New flow", () => go("/flows?new=1"), { class: "primary" }))),
      el("p", { class: "muted" }, "A flow defines how a document is processed, as a graph of nodes. Choose one with the Flow setting of a dataset or upload."),
      grid("Flows", [["Flow"], ["Version", "num"], ["Nodes", "num"], ["Made"]], items.map((/** @type {Listed} */ f) => [[el("a", { href: `/flows/${encodeURIComponent(f.name)}` }, name(f.name)), f.built_in ? el("span", { class: "under" }, "built in") : null], number(f.version), number(f.nodes), time(f.created_at)])),
      items.length < mostFlows ? "" : el("p", { class: "muted" }, `More than ${number(mostFlows)} flows. `, el("code", {}, "sheaf flow list"), " lists all of them."));
    return;
  }
  const version = query.get("version");
  /** @type {[Flow|null, Listed[], any]} */
  const [f, versions, diff] = called ? await Promise.all([get(`/v1/flows/${encodeURIComponent(called)}${version ? `@${Number(version)}` : ""}`, signal), get(`/v1/flows/${encodeURIComponent(called)}/versions`, signal).then((l) => l.items), get(`/v1/flows/${encodeURIComponent(called)}${version ? `@${Number(version)}` : ""}/diff`, signal)]) : [null, [], null];
  title(f ? f.ref : "New flow");
  const stage = el("div", { class: "flow-drawing" }), said = el("div", { role: "status" });
  const numbers = el("pre", { class: "line-numbers", "aria-hidden": "true" });
  const text = el("textarea", { class: "mono flow-text", spellcheck: "false", wrap: "off", rows: 18, "aria-label": "The flow as TOML", readonly: f?.built_in, oninput: () => later(), onscroll: () => (numbers.scrollTop = text.scrollTop) });
  text.value = f ? f.toml : sample;
  const save = button(f ? "Save as new version" : "Create flow", () => void keep(), { class: "primary" });
  const sides = el("ol", { class: "flow-problems" });
  root.replaceChildren(el("p", { class: "crumbs" }, el("a", { href: "/flows" }, "Flows"), " / "), el("div", { class: "head" }, el("h1", { tabindex: "-1" }, f ? name(f.ref) : "New flow")),
    el("div", { class: "flow-view" }, f ? stage : null, el("h2", {}, "Text"), el("div", { class: "flow-edit" }, el("div", { class: "flow-lines" }, numbers, text), el("section", { "aria-label": "Problems" }, said, sides)), f?.built_in ? el("p", { class: "muted" }, "This flow is built in. Copy its text to create your own.") : el("div", { class: "tools" }, button("Add a node", () => void add().catch((e) => aborted(e) || draw(said, trouble(e)))), save),
      f ? [el("h2", {}, "Versions"), grid("Versions", [["Version"], ["Nodes", "num"], ["Made"]], versions.map((v) => [el("a", { href: `/flows/${encodeURIComponent(v.name)}?version=${v.version}`, "aria-current": v.version === f.version ? "page" : undefined }, v.ref), number(v.nodes), time(v.created_at)])),
        el("h2", {}, diff.from ? `Changes from ${diff.from} to ${diff.to}` : `Contents of ${diff.to}`), grid("Changes", [["Node"], ["Field"], ["Was", "mono"], ["Is", "mono"]], diff.changes.map((/** @type {any} */ c) => [c.node || "the flow", c.field, c.was === undefined ? "–" : el("del", {}, JSON.stringify(c.was)), c.is === undefined ? "–" : el("ins", {}, JSON.stringify(c.is))]))] : null));
  if (f) {
    const nodes = f.flow.node, drawing = dag({ label: `Nodes of ${f.ref}`, signal, nodes: nodes.map((n) => ({ id: n.id, from: n.from || [] })), face: (id) => {
      const n = nodes.find((x) => x.id === id);
      return { tone: n?.when ? "off" : "wait", text: [el("span", { class: "dag-name" }, id), el("span", { class: "hidden" }, ", "), el("span", { class: "dag-state" }, `${n?.kind || ""}${n?.when ? ", with a condition" : ""}`)] };
    }, pick: (id) => void known().then(() => select(lines[id] || 1)) });
    stage.append(drawing.root);
    drawing.update();
  }
  /** Selects a line of the text, counted from 1. @param {number} line */
  function select(line) {
    const lines = text.value.split("\n"), before = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    text.focus();
    text.setSelectionRange(before, before + (lines[line - 1] || "").length);
  }
  const count = () => (numbers.textContent = text.value.split("\n").map((_, i) => i + 1).join("\n"));
  count();
  let timer = 0, asked = 0;
  /** The text that the lines are of. @type {string|undefined} */
  let checked;
  /** Lines of the nodes, by id. @type {Record<string, number>} */
  let lines = {};
  signal.addEventListener("abort", () => clearTimeout(timer));
  function later() {
    count();
    clearTimeout(timer);
    timer = setTimeout(() => void check(), 400);
  }
  /** The validator's sentences, each with its line. */
  async function check() {
    const mine = ++asked, toml = text.value;
    try {
      /** @type {{valid: boolean, problems: Problem[], lines?: Record<string, number>}} */
      const r = toml.trim() ? await send("/v1/flows:validate", { toml }) : { valid: false, problems: [{ message: "The flow has no text." }] };
      if (mine !== asked || signal.aborted) return;
      lines = r.lines || {};
      checked = toml;
      save.disabled = !r.valid;
      text.setAttribute("aria-invalid", String(!r.valid));
      draw(said, el("p", { class: r.valid ? "flow-valid" : "fault" }, r.valid ? "✓ Valid" : plural(r.problems.length, "problem")));
      sides.replaceChildren(...r.problems.map((p) => ({ p, line: p.line || 1 })).sort((a, b) => a.line - b.line).map(({ p, line }) => el("li", { value: line }, button(`Line ${line}`, () => select(line), { class: "link" }), ` ${p.node ? `${p.node}${p.field ? `, ${p.field}` : ""}: ` : ""}${p.message}`)));
    } catch (e) {
      if (!aborted(e) && mine === asked) draw(said, trouble(e));
    }
  }
  /** Knows the lines of the text as it stands: they are asked for once. */
  const known = async () => {
    if (text.value !== checked) await check();
  };
  /** Asks for a node and writes it into the text. */
  async function add() {
    /** @type {[{items: Kind[], common: Setting[]}, void]} */
    const [{ items: kinds, common }] = await Promise.all([get("/v1/node-kinds", signal), known()]);
    const there = Object.keys(lines).sort((a, b) => lines[a] - lines[b]);
    /** @param {Setting} s @param {string} prefix */
    const field = (s, prefix) => {
      const help = `${prefix}${s.name}-help`, props = { name: `${prefix}${s.name}`, required: s.required, "aria-describedby": help };
      return el("div", { class: "setting" }, el("label", {}, el("span", {}, `${s.name}${s.required ? "" : " (optional)"} `),
        s.values || s.type === "bool" ? el("select", props, ["", ...(s.values || ["true", "false"])].map((v) => el("option", { value: v }, v || "–"))) : el("input", { ...props, autocomplete: "off", placeholder: s.type === "strings" ? "separated by commas" : s.type === "keep" ? "an expression over a chunk" : s.type })),
        el("p", { class: "muted", id: help }, s.doc.replace(/^./, (x) => x.toUpperCase()), "."));
    };
    const settings = el("div"), does = el("p", { class: "muted", id: "kind-does" }), choose = el("select", { name: "kind", "aria-describedby": "kind-does", onchange: () => fields() }, kinds.map((k) => el("option", { value: k.name }, k.name)));
    const shared = common.map((s) => ({ s, e: field(s, "of-") })), more = el("details", { class: "more-settings" }, el("summary", {}, "Conditions, pool and retries"), shared.map(({ e }) => e));
    const kindOf = () => /** @type {Kind} */ (kinds.find((k) => k.name === choose.value));
    const fields = () => {
      draw(does, `${kindOf().name} ${kindOf().doc}.`);
      draw(settings, kindOf().config.map((s) => field(s, "set-")));
      readers.hidden = !kindOf().out && !["branch", "merge"].includes(choose.value);
      more.hidden = !kindOf().common.length;
      for (const { s, e } of shared) {
        e.hidden = !kindOf().common.includes(s.name);
        /** @type {HTMLInputElement} */ (e.querySelector("input, select")).disabled = e.hidden;
      }
    };
    const choices = (/** @type {string} */ of) => there.map((n) => el("label", {}, el("input", { type: "checkbox", name: of, value: n }), name(n)));
    const readers = el("fieldset", { class: "facet" }, el("legend", {}, "Read by"), choices("to"), el("p", { class: "muted" }, "These nodes will read the new node instead of its inputs."));
    fields();
    let id = "";
    const done = await dialog({ title: "Add a node", no: "Cancel", action: "Insert",
      body: [el("label", { class: "field" }, "Kind", choose), does, el("label", { class: "field" }, "Name", el("input", { name: "id", required: true, maxlength: 63, autocomplete: "off" })),
        el("fieldset", { class: "facet" }, el("legend", {}, "Inputs"), choices("from")), readers, settings, more],
      run: async (form) => {
        id = String(form.get("id")).trim();
        if (!id || there.includes(id)) throw new Error(id ? `A node named ${id} already exists. Choose another name.` : "Give the node a name.");
        const typed = (/** @type {Setting} */ s, /** @type {string} */ prefix) => valueOf(s, String(form.get(`${prefix}${s.name}`) ?? "").trim());
        const from = form.getAll("from").map(String), to = readers.hidden ? [] : form.getAll("to").map(String), config = Object.fromEntries(kindOf().config.map((s) => [s.name, typed(s, "set-")]).filter(([, v]) => v !== undefined));
        const both = to.find((n) => from.includes(n));
        if (both) throw new Error(`${both} cannot be both an input and a reader of the new node. Choose one.`);
        /** @type {Record<string, any>} */
        const node = { id, kind: choose.value, ...(from.length ? { from } : {}), ...(Object.keys(config).length ? { config } : {}) };
        for (const s of common) {
          const v = typed(s, "of-"), [outer, inner] = s.name.split(".");
          if (v !== undefined) node[outer] = inner ? { ...node[outer], [inner]: v } : v;
        }
        text.value = withNode(to.reduce((t, n) => reading(t, n, id, from), text.value), node);
      } });
    if (!done) return;
    announce(`Node ${id} inserted`);
    count();
    await check();
    select(lines[id] || 1);
  }
  async function keep() {
    try {
      const v = await send("/v1/flows", { toml: text.value });
      announce(`${v.ref} is the latest version`);
      go(`/flows/${encodeURIComponent(v.name)}?version=${v.version}`);
    } catch (e) {
      draw(said, trouble(e));
    }
  }
  if (!f?.built_in) void check();
}
