// @ts-check
/** What can be done to chosen documents and to jobs. Each asks first and says what will happen. */
import { datasetPath, get, send } from "./api.js";
import { dialog } from "./dialog.js";
import { announce, draw, el, name, trouble } from "./dom.js";
import { bytes, duration, money, number, plural } from "./format.js";
import { setting, settingNames, spoken } from "./names.js";
import { terminal } from "./parts.js";

/** @typedef {import("./types.js").Doc} Doc */
/** @typedef {import("./types.js").Plan} Plan */
/** @typedef {import("./types.js").Forecast} Forecast */

/**
 * Documents that something is done to: some by their ids, or all that a query
 * selects, of which not all need be known here.
 * @typedef {{count: number, body: Record<string, any>, docs?: Doc[], has?: (d: Doc) => boolean}} Chosen
 */

/** @param {Doc[]|Chosen} of @param {(d: Doc) => boolean} [only] of those that are known @returns {Chosen} */
function chosen(of, only = () => true) {
  if (!Array.isArray(of)) return of;
  const docs = of.filter(only), ids = new Set(docs.map((d) => d.id));
  return { count: docs.length, docs, body: { filter: { document_ids: [...ids] } }, has: (d) => ids.has(d.id) };
}

/** @param {Chosen} c */
function names(c) {
  const some = (c.docs || []).slice(0, 5);
  return el("ul", { class: "names" }, some.map((d) => el("li", {}, name(d.name))), c.count > some.length && some.length ? el("li", { class: "muted" }, `and ${number(c.count - some.length)} more`) : null);
}

/** @param {string} ds @param {string} verb */
export const documentsPath = (ds, verb) => `${datasetPath(ds)}/documents:${verb}`;

/**
 * What the server says that an action would do, asked before it is done.
 * @param {string} action its path @param {() => Record<string, any>|null} body null when the question is gone
 */
function asks(action, body) {
  const preview = el("div", { class: "preview", role: "status" }, el("p", { class: "muted" }, "Checking what this would do …"));
  let asked = 0;
  const look = async () => {
    const mine = ++asked, b = body();
    if (!b) return;
    preview.setAttribute("aria-busy", "true");
    try {
      /** @type {{forecast: Forecast, plans?: Plan[]}} */
      const answer = await send(`${action}?dry_run=true`, b);
      if (mine !== asked) return;
      draw(preview, forecast(answer.forecast, answer.plans || []));
    } catch (e) {
      if (mine === asked) preview.replaceChildren(trouble(e));
    }
    if (mine === asked) preview.removeAttribute("aria-busy");
  };
  return { preview, look };
}

/** @param {Forecast} f @param {Plan[]} plans */
function forecast(f, plans) {
  const line = (/** @type {string} */ k, /** @type {string} */ v) => [el("dt", {}, k), el("dd", {}, v)];
  const some = f.estimated ? "~" : "";
  const expected = (/** @type {import("./types.js").Expected} */ e) => (e.count === null ? "unknown: nothing similar has been processed yet" : `${e.estimated ? "~" : ""}${number(e.count)}${e.estimated && e.basis ? ` (estimated from ${e.basis})` : ""}`);
  const skipped = f.skipped ? el("p", { class: "muted" }, `${plural(f.skipped, "document")} will be skipped: this does not apply to ${f.skipped === 1 ? "its" : "their"} current state.`) : null;
  if (f.stopped) return el("div", {}, el("dl", { class: "facts" }, line("Stops", `${plural(f.stopped.running, "running task")} and ${plural(f.stopped.queued, "queued one")} of ${plural(f.documents, "document")}`)), skipped);
  if (f.removed) return el("div", {}, el("dl", { class: "facts" }, line("Removes", `${plural(f.documents, "file")} (${bytes(f.removed.bytes)}), ${plural(f.removed.chunks, "indexed chunk")}, ${plural(f.removed.generations, "version")}`)));
  const bad = plans.find((p) => p.failure);
  const { p50, p90 } = f.seconds;
  const a = duration((p50 || 0) * 1000), b = duration((p90 || 0) * 1000);
  return el("div", {},
    el("dl", { class: "facts" },
      line("Ranges", `${some}${number(f.ranges)} over ${some}${f.unit ? plural(f.units, f.unit) : plural(f.units, "page or row", "pages or rows")}`),
      line("Reused", f.reused.ranges ? `${some}${number(f.reused.ranges)} of ${number(f.ranges)} ranges (${plural(f.reused.chunks, "chunk")}), already parsed${f.reused.chunks && !f.reused.tokens ? "; embeddings are recomputed" : " and embedded"}` : "nothing"),
      line("Chunks", expected(f.chunks)), line("Tokens", f.tokens.count === null ? "unknown" : `${f.tokens.estimated ? "~" : ""}${number(f.tokens.count)}`),
      line("Time", p50 === null ? "unknown until something has been processed" : p90 === 0 ? "none: nothing to do" : a === b ? `~${a}` : `${a} to ${b}`),
      f.price ? line("Price", `${f.price.estimated ? "~" : ""}${money(f.price.amount, f.price.currency)}`) : null),
    skipped, bad ? el("p", { class: "warn" }, `${plural(f.unplanned, "document")} cannot be planned: ${spoken(bad.failure?.message || "")}`) : null);
}

/**
 * Tries again what failed, or only some of it.
 * @param {string} ds @param {Doc[]|Chosen} docs
 * @param {{units?: [number, number][], codes?: string[], what?: string}} [only] what: these units in words
 */
export function retryDocuments(ds, docs, only = {}) {
  const again = chosen(docs, (d) => ["failed", "partially_succeeded", "canceled"].includes(d.state));
  const { what, ...narrow } = only;
  const body = { ...again.body, scope: "failed", ...narrow };
  const { preview, look } = asks(documentsPath(ds, "retry"), () => body);
  void look();
  return dialog({
    title: what ? `Retry ${what}` : `Retry ${plural(again.count, "document")}`,
    body: [names(again), preview, el("p", {}, what ? `Retries ${what} only. What has been read is kept, and other failures are left as they are.` : "What could not be read is tried again. What was read stays and is not parsed again.")],
    action: "Retry",
    run: async () => {
      const r = await send(documentsPath(ds, "retry"), body);
      if (!r.documents) throw new Error("There is nothing left to retry: the documents have changed in the meantime. Close this dialog and check them again.");
      announce("Retry queued");
    },
  });
}

/** Another try for one task that has used up its attempts. @param {string} id @param {string} what */
export function retryTask(id, what) {
  return dialog({
    title: `Retry ${what}`,
    body: [el("p", {}, "Only this task is retried, with a fresh set of attempts, as soon as a slot is free.")],
    action: "Retry",
    run: async () => {
      const r = await send("/v1/dead-letters:retry", { ids: [id] });
      if (!r.count) throw new Error("This task can no longer run: a newer version has replaced it. Retry the document instead.");
      announce("Task queued again");
    },
  });
}

/** Stops one task of a document, and leaves the others. @param {string} id @param {string} what */
export function cancelTask(id, what) {
  const action = `/v1/tasks/${id}:cancel`;
  const preview = el("p", { role: "status" }, "Checking what this would do …");
  void send(`${action}?dry_run=true`).then((r) => draw(preview, r.running ? "It is running and will be asked to stop." : "It is queued and will be dropped."), (e) => preview.replaceChildren(trouble(e)));
  return dialog({
    title: `Cancel ${what}`,
    body: [preview, el("p", {}, "This version will lack what the task would have read. Other tasks continue. Retry the document to get it back.")],
    action: "Cancel the task",
    danger: true,
    run: async () => {
      await send(action);
      announce("Task canceled");
    },
  });
}

/** @param {string} ds @param {Doc[]|Chosen} docs */
export function cancelDocuments(ds, docs) {
  const running = chosen(docs, (d) => !terminal(d.state));
  const { preview, look } = asks(documentsPath(ds, "cancel"), () => running.body);
  void look();
  return dialog({
    title: `Cancel ${plural(running.count, "document")}`,
    body: [names(running), preview, el("p", {}, "Running tasks stop within seconds and queued tasks are dropped. A version that is already live stays live. Canceled documents can be retried.")],
    action: "Cancel processing",
    danger: true,
    run: async () => {
      const r = await send(documentsPath(ds, "cancel"), running.body);
      announce(`${plural(r.documents, "document")} canceled`);
    },
  });
}

/** @param {import("./types.js").Job} job */
export function cancelJob(job) {
  const action = `/v1/jobs/${job.id}:cancel`;
  const { preview, look } = asks(action, () => ({}));
  void look();
  return dialog({
    title: "Cancel the job",
    body: [preview, el("p", {}, "All unfinished documents of this job are canceled. Live versions stay live. Canceled documents can be retried.")],
    action: "Cancel processing",
    danger: true,
    run: async () => {
      const r = await send(action);
      announce(`${plural(r.documents, "document")} canceled`);
    },
  });
}

/** What a retry of a job may repeat, as people say it. @type {[string, string][]} */
const scopes = [["failed", "Only what failed"], ["stage:index", "Index: write the stored chunks again"], ["stage:embed", "Embeddings: embed the stored chunks again"], ["all", "Everything: parse the files again"]];

/**
 * Reads what failed in a job again, or repeats some of it for all its documents.
 * @param {import("./types.js").Job} job @param {(started: import("./types.js").Job) => void} then
 */
export function retryJob(job, then) {
  const action = `/v1/jobs/${job.id}:retry`;
  const failed = ["failed", "partially_succeeded", "canceled"].includes(job.state);
  const scope = el("select", { name: "scope" }, scopes.filter(([k]) => failed || k !== "failed").map(([k, label]) => el("option", { value: k }, label)));
  const body = () => ({ scope: scope.value });
  const { preview, look } = asks(action, body);
  scope.addEventListener("change", () => void look());
  void look();
  return dialog({
    title: "Run the job again",
    body: [el("label", { class: "field" }, "What to run", scope), preview, el("p", { class: "muted" }, "Search keeps using the current versions until the new ones are complete.")],
    action: "Retry",
    run: async () => {
      const { job: started } = await send(action, body());
      if (!started) throw new Error("Nothing in this job can be run again: its documents have newer versions or are still being processed.");
      then(started);
    },
  });
}

/** @param {string} ds @param {Doc[]} docs */
export function deleteDocuments(ds, docs) {
  const all = chosen(docs);
  return asksDelete(ds, all, "Files, chunks and all versions are deleted. This cannot be undone.", async () => {
    await send(documentsPath(ds, "delete"), all.body);
    announce(`${plural(all.count, "document")} deleted`);
  });
}

/** Asks before documents are deleted in a while. @param {string} ds @param {Chosen} all */
export const askDelete = (ds, all) => asksDelete(ds, all, "Files, chunks and all versions are deleted. You can undo this for ten seconds.", async () => {});

/** @param {string} ds @param {Chosen} all @param {string} words @param {() => Promise<void>} run */
function asksDelete(ds, all, words, run) {
  const { preview, look } = asks(documentsPath(ds, "delete"), () => all.body);
  void look();
  return dialog({ title: `Delete ${plural(all.count, "document")}`, body: [names(all), preview, el("p", {}, words)], action: all.count === 1 ? "Delete" : `Delete all ${number(all.count)}`, danger: true, run });
}

/**
 * Gives documents a tag in place of the one that they have.
 * @param {string} ds @param {Chosen} of @param {string[]} tags that there are
 */
export function tagDocuments(ds, of, tags) {
  return dialog({
    title: `Tag ${plural(of.count, "document")}`,
    body: [names(of), el("label", { class: "field" }, "Tag", el("input", { name: "tag", maxlength: 64, autocomplete: "off", list: "tags" })), el("datalist", { id: "tags" }, tags.map((t) => el("option", { value: t }))),
      el("p", { class: "muted" }, "A document has one tag, such as a folder name. The new tag replaces it; leave the field empty to remove it. Nothing is reprocessed.")],
    action: "Tag",
    run: async (form) => {
      const r = await send(documentsPath(ds, "tag"), { ...of.body, tag: String(form.get("tag") || "").trim() });
      announce(`${plural(r.documents, "document")} tagged`);
    },
  });
}

/** @param {string} label @param {string} name @param {Record<string, any>} props */
const field = (label, name, props) => el("label", { class: "field" }, label, el("input", { name, ...props }));

/** Settings that may be taken back from documents that are not all known here. */
const patchable = settingNames.filter((k) => k !== "password" && k !== "parser");

/** Names of the chunk methods, in the order of the handbook. */
const methods = ["general", "naive", "one", "qa", "table", "tag", "paper", "book", "laws", "manual", "presentation", "picture", "email", "resume", "audio", "semantic", "hierarchical", "late", "code"];

/**
 * Parses again, perhaps with other settings. What it would cost is asked of the
 * server first and shown while the settings are changed.
 * @param {string} ds @param {Doc[]|Chosen} of
 */
export async function reparseDialog(ds, of) {
  const { fallback, fieldsOf, filled, moreSettings, settingProperties } = await import("./settingfields.js");
  const all = chosen(of), docs = all.docs || [], whole = docs.length === all.count; // all of them are known
  const first = whole ? docs[0].parser_config : {};
  const same = (/** @type {keyof import("./types.js").ParseConfig} */ k) => (docs.every((d) => d.parser_config[k] === first[k]) && first[k] !== undefined ? String(first[k]) : "");
  const basics = ["chunk_method", "chunk_token_num", "overlapped_percent", "task_page_size", "password"];
  const settings = el("div", { class: "grid-fields" },
    el("label", { class: "field" }, setting("chunk_method"), el("select", { name: "chunk_method", "data-kind": "string" }, el("option", { value: "" }, same("chunk_method") ? `${same("chunk_method")} (now)` : "as now"), methods.map((m) => el("option", { value: m }, m)))),
    ...[["chunk_token_num", 16, 8191], ["overlapped_percent", 0, 50], ["task_page_size", 1, 1000]].map(([k, min, max]) => field(setting(String(k)), String(k), { "data-kind": "integer", type: "number", min, max, placeholder: same(/** @type {any} */ (k)) || "as now", inputmode: "numeric" })),
    field("File password", "password", { "data-kind": "string", type: "password", autocomplete: "off", placeholder: "if it is locked" }));
  const others = moreSettings({ unset: "as now", prefix: "again-", without: basics, level: "h3" });
  void sayNow();

  /** Says what each setting is now, where all documents are known. */
  async function sayNow() {
    const [own, properties] = await Promise.all([get(datasetPath(ds)), settingProperties()]).catch(() => [null, null]);
    if (!own || !properties) return;
    const now = (/** @type {string} */ k) => {
      if (!whole) return "as now";
      const all = new Set(docs.map((d) => String(/** @type {any} */ (d.parser_config)[k] ?? own.parser_config[k] ?? fallback(properties, k))));
      return all.size === 1 ? `${[...all][0]} (now)` : "mixed";
    };
    for (const i of fieldsOf(settings)) {
      if (i instanceof HTMLSelectElement) i.options[0].textContent = now(i.name);
      else if (i.name !== "password") i.placeholder = now(i.name);
    }
  }
  const back = el("label", { class: "check" }, el("input", { type: "checkbox", name: "back" }), " Use the dataset's settings, except for those above");
  const fresh = el("label", { class: "check" }, el("input", { type: "checkbox", name: "fresh" }), " Ignore cached results");
  const request = (/** @type {FormData} */ form) => {
    /** @type {Record<string, any>} */
    const config = { ...all.body.parser_config };
    if (form.get("back")) for (const k of whole ? docs.flatMap((d) => Object.keys(d.parser_config)) : patchable) config[k] = null; // null: as the dataset says
    Object.assign(config, filled(settings), filled(others));
    return { ...all.body, ...(Object.keys(config).length ? { parser_config: config } : {}), fresh: form.get("fresh") === "on" };
  };
  let timer = 0;
  const { preview, look } = asks(documentsPath(ds, "reparse"), () => {
    const form = settings.closest("form");
    return form ? request(new FormData(form)) : null;
  });
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(look, 300);
    tried?.soon();
  };
  const gone = new AbortController();
  const one = whole && docs.length === 1 && docs[0].live_generation ? docs[0] : null;
  const tried = one ? (await import("./trysettings.js")).tryBehind({ ds, over: "document", doc: one, level: "h3", signal: gone.signal, config() {
    const form = settings.closest("form");
    return (form && request(new FormData(form)).parser_config) || {};
  } }) : null;
  settings.addEventListener("input", soon);
  others.addEventListener("input", soon);
  back.addEventListener("change", soon);
  fresh.addEventListener("change", soon);
  const done = dialog({
    title: `Reprocess ${all.count === 1 ? "the document" : plural(all.count, "document")}`,
    body: [all.count !== 1 || !docs.length ? names(all) : el("p", {}, name(docs[0].name)), settings, others, back, fresh, preview, ...(tried ? [tried.root] : []), el("p", { class: "muted" }, "Search keeps using the current version until the new one is complete.")],
    action: "Reprocess",
    run: async (form) => {
      const r = await send(documentsPath(ds, "reparse"), request(form));
      if (!r.documents) throw new Error("The documents no longer exist. Close this dialog and check the list.");
      announce("Documents queued for reprocessing");
    },
  });
  void look();
  void done.then(() => gone.abort());
  return done;
}
