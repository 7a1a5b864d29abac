// @ts-check
/** Tasks that have used up their attempts, by cause: what an operator can cure, with the documents that wait for it. */
import { documentNames, download, get, send } from "./api.js";
import { causeOf } from "./causes.js";
import { dialog } from "./dialog.js";
import { announce, button, el, grid, name, trouble } from "./dom.js";
import { between, duration, number, plural, time } from "./format.js";
import { spoken } from "./names.js";
import { unitsAt } from "./parts.js";
import { taskName as called } from "./waterfall.js";

/** @typedef {import("./types.js").Task & {tenant_id?: string}} Dead */
/** @typedef {{cause: import("./causes.js").Cause, code: string, tasks: Dead[]}} Group */

/** Causes that lie with the file: whoever sent it is told, and no operator can do anything about it. */
const ofTheFile = new Set(["locked", "empty", "unknown", "damaged"]);

/** Tasks that are read at once, names of documents that are asked for at once, and rows of a group. */
const most = 500, namesAtOnce = 50, rows = 50;

/** Milliseconds after which the list is read again though the number of dead tasks is the same. */
const every = 10_000;

/** @param {Dead} t */
const taskName = (t) => (t.range ? `${called(t)} of ${unitsAt(t.unit || "unit", t.range[0], t.range[1])}` : called(t));

/**
 * @param {{signal: AbortSignal, everybody: () => boolean, failed: (err: unknown) => void}} o everybody: whether those of all tenants are shown
 */
export function deadLetters({ signal, everybody, failed }) {
  const list = el("ul", { class: "issues" }), none = el("p", { class: "muted" }), more = el("p", { class: "muted" });
  const only = { kind: "", category: "" };
  let withFiles = false, read = -Infinity, readFor = "", drawn = "";
  /** @type {{items: Dead[], next_cursor: string|null}} */
  let page = { items: [], next_cursor: null };
  /** Documents of dead tasks; null while they are asked for, and for those of others. @type {Map<string, {name: string, href: string}|null>} */
  const owners = new Map();
  const letters = () => (everybody() ? "/v1/admin/dead-letters" : "/v1/dead-letters");

  const choice = (/** @type {"kind"|"category"} */ key, /** @type {string} */ label, /** @type {string[]} */ values) => el("label", {}, `${label} `, el("select", { name: key, onchange: (/** @type {Event} */ e) => {
    only[key] = /** @type {HTMLSelectElement} */ (e.target).value;
    again();
  } }, el("option", { value: "" }, "any"), values.map((v) => el("option", { value: v }, v.replace(/_/g, " ")))));
  const files = el("label", { class: "check" }, el("input", { type: "checkbox", name: "files", onchange: (/** @type {Event} */ e) => {
    withFiles = /** @type {HTMLInputElement} */ (e.target).checked;
    show();
  } }), " Include file errors");
  const filters = el("div", { class: "tools" }, choice("kind", "Kind", ["plan", "parse", "index", "finalize"]), choice("category", "Class", ["policy", "capacity", "bad_input", "encrypted", "source_unavailable", "target_unavailable", "timeout", "parser_crash", "internal"]), files);
  const root = el("section", { "aria-label": "Dead letters" }, el("h2", {}, "Dead letters"), none, filters, list, more);

  /** Reads the list anew, whatever is known. */
  function again() {
    read = -Infinity;
    void update(readFor).catch(failed);
  }

  /** Reads the list where it may be another. @param {string} seen what tells whether it is: the number of dead tasks */
  async function update(seen) {
    const now = Date.now();
    if (seen === readFor && now - read < every) return;
    readFor = seen;
    read = now;
    const query = new URLSearchParams({ limit: String(most), ...Object.fromEntries(Object.entries(only).filter(([, v]) => v)) });
    page = await get(`${letters()}?${query}`, signal);
    show();
    if (!everybody()) await nameOwners();
  }

  /** Asks what the documents are called, those of a request together. */
  async function nameOwners() {
    const unknown = [...new Set(page.items.map((t) => t.document_id))].filter((id) => id && !owners.has(id)).slice(0, namesAtOnce);
    if (!unknown.length) return;
    for (const id of unknown) owners.set(id, null);
    for (const d of await documentNames("-", unknown, signal)) owners.set(d.id, { name: d.name, href: `/datasets/${d.dataset_id}/documents/${d.id}?tab=problems` });
    show();
  }

  /** @param {Dead} t */
  const owner = (t) => {
    const d = owners.get(t.document_id);
    return d ? el("a", { href: d.href }, name(d.name)) : el("code", {}, (t.document_id || t.id).slice(0, 12));
  };

  /** @param {"retry"|"purge"} verb @param {Dead[]} tasks */
  const act = (verb, tasks) => dialog({
    title: `${verb === "retry" ? "Retry" : "Remove"} ${plural(tasks.length, "dead task")}`, danger: verb === "purge", action: verb === "retry" ? "Retry" : "Remove",
    body: [el("p", {}, verb === "retry" ? "They are retried with a fresh set of attempts as soon as a slot is free." : "The failure records are deleted permanently. The documents are not changed.")],
    run: async () => {
      const r = await send(`${letters()}:${verb}`, { ids: tasks.map((t) => t.id) });
      announce(`${plural(r.count, "task")} ${verb === "retry" ? "queued again" : "removed"}`);
      again();
    },
  });

  /** All that is known of one dead task, and another try for it. @param {Dead} of */
  async function showTask(of) {
    /** @type {import("./types.js").TaskHistory} */
    const t = await get(of.tenant_id ? `/v1/admin/tenants/${encodeURIComponent(of.tenant_id)}/tasks/${of.id}` : `/v1/tasks/${of.id}`, signal);
    const f = t.failure;
    await dialog({
      title: `Dead task: ${taskName(t)}`, action: "Retry",
      body: [
        el("p", {}, spoken(f?.message || ""), " ", el("code", {}, f?.code || ""), f?.category ? ` (${f.category.replace(/_/g, " ")})` : ""),
        t.content ? el("p", {}, el("a", { href: t.content.replace(/^\/v1/, "").replace(/\/content$/, "") }, "Document"), " · ", button("Original", () => void download(/** @type {string} */ (t.content), t.document_id))) : "",
        grid("Attempts", [["Began"], ["Took", "num wide"], ["Executor", "mono"], ["Outcome"]], t.tries.map((a) => [time(a.started_at), a.ended_at ? duration(between(a.started_at, a.ended_at)) : "–", a.worker, [a.outcome || "running", " ", el("code", {}, a.failure?.code || "")]])),
        f?.detail ? el("pre", { class: "scroll-x", tabindex: "0", "aria-label": "Last parser output" }, f.detail) : "",
      ],
      run: () => send(`${letters()}:retry`, { ids: [t.id] }).then(again),
    });
  }

  /** @returns {Group[]} those of most tasks first */
  function groups() {
    /** @type {Map<string, Group>} */
    const by = new Map();
    for (const t of page.items) {
      const code = t.failure?.code || "", g = by.get(code) || { cause: causeOf(t.failure || { category: "internal" }), code, tasks: [] };
      g.tasks.push(t);
      by.set(code, g);
    }
    return [...by.values()].sort((a, b) => b.tasks.length - a.tasks.length || (a.code < b.code ? -1 : 1));
  }

  /** @param {Group} g */
  function row(g) {
    const ids = [...new Set(g.tasks.map((t) => t.document_id))], n = g.tasks.length;
    const some = ids.slice(0, 3).map((id) => g.tasks.find((t) => t.document_id === id)).filter((t) => t !== undefined);
    return el("li", { "data-code": g.code }, el("div", { class: "issue-text" },
      el("details", {}, el("summary", {}, el("strong", {}, g.cause.short), ` · ${plural(n, "task")} of ${plural(ids.length, "document")} `, el("code", {}, g.code)),
        grid(`Dead tasks of ${g.code}`, [["Task"], ...(everybody() ? [/** @type {[string]} */ (["Tenant"])] : []), ["Document", "wide"], ["What happened", "wide"], ["Attempts", "num"], ["When"], ["", "row-actions"]], g.tasks.slice(0, rows).map((t) => [
          taskName(t), ...(everybody() ? [el("bdi", {}, t.tenant_id || "")] : []), owner(t), spoken(t.failure?.message || ""), number(t.attempts), time(t.finished_at), button("Details…", () => void showTask(t).catch(failed), { "aria-label": `Details of ${taskName(t)}` })])),
        n > rows ? el("p", { class: "muted" }, `and ${number(n - rows)} more`) : null),
      el("p", {}, g.cause.cure), el("p", { class: "owners" }, some.map((t, i) => [i ? ", " : "", owner(t)]), ids.length > some.length ? ` and ${number(ids.length - some.length)} more` : "")),
    el("div", { class: "tools" }, button(`Retry ${number(n)}…`, () => void act("retry", g.tasks)), button(`Remove ${number(n)}…`, () => void act("purge", g.tasks), { class: "danger" })));
  }

  function show() {
    const every = groups(), shown = every.filter((g) => withFiles || !ofTheFile.has(g.cause.key)), left = every.filter((g) => !shown.includes(g)).reduce((n, g) => n + g.tasks.length, 0);
    const state = JSON.stringify([everybody(), withFiles, page.items.map((t) => [t.id, t.attempts, t.finished_at, owners.get(t.document_id)])]);
    if (state === drawn) return;
    drawn = state;
    filters.hidden = !page.items.length && !only.kind && !only.category && !everybody();
    files.hidden = !left && !withFiles;
    none.textContent = shown.length ? "Grouped by cause, largest group first." : `None${left ? " that an operator can fix" : ""}. A task becomes a dead letter when it has used up its attempts; its document shows the effect.`;
    more.textContent = [left ? `${plural(left, "task")} failed because of ${left === 1 ? "its file" : "their files"}. They are listed under the dataset's issues.` : "", page.next_cursor ? `Only the newest ${number(most)} are shown.` : ""].filter(Boolean).join(" ");
    const opened = new Set([...list.querySelectorAll("details[open]")].map((d) => d.closest("li")?.dataset.code));
    const focused = document.activeElement?.closest("li") && list.contains(document.activeElement) ? { code: document.activeElement.closest("li")?.dataset.code, text: document.activeElement.textContent } : null;
    list.replaceChildren(...shown.map((g) => {
      const li = row(g);
      li.querySelector("details")?.toggleAttribute("open", opened.has(g.code));
      return li;
    }));
    if (focused) /** @type {HTMLElement|undefined} */ ([...list.querySelectorAll("li")].filter((li) => li.dataset.code === focused.code).flatMap((li) => [...li.querySelectorAll("a, button, summary")]).find((e) => e.textContent === focused.text))?.focus({ preventScroll: true });
  }
  return { root, update, again };
}
