// @ts-check
/** What can be done to chosen documents. Each asks first and says what will happen. */
import { datasetPath, get, send } from "./api.js";
import { dialog } from "./dialog.js";
import { announce, draw, el, name, trouble } from "./dom.js";
import { duration, number, plural } from "./format.js";
import { terminal } from "./parts.js";

/** @typedef {import("./types.js").Doc} Doc */
/** @typedef {import("./types.js").Plan} Plan */

/** @param {Doc[]} docs */
const ids = (docs) => ({ filter: { document_ids: docs.map((d) => d.id) } });

/** @param {Doc[]} docs */
function names(docs) {
  return el("ul", { class: "names" }, docs.slice(0, 5).map((d) => el("li", {}, name(d.name))), docs.length > 5 ? el("li", { class: "muted" }, `and ${number(docs.length - 5)} more`) : null);
}

/** @param {string} ds @param {Doc[]} docs */
export function retryDocuments(ds, docs) {
  const again = docs.filter((d) => ["failed", "partially_succeeded", "canceled"].includes(d.state));
  const failed = again.reduce((n, d) => n + d.ledger.failed, 0);
  return dialog({
    title: `Retry ${plural(again.length, "document")}`,
    body: [names(again), el("p", {}, failed ? `${plural(failed, "page or row", "pages or rows")} that could not be read are tried again. What was read stays and is not parsed again.` : "What failed is tried again. What was read stays.")],
    action: "Retry",
    run: async () => {
      await send(`${datasetPath(ds)}/documents:retry`, { ...ids(again), scope: "failed" });
      announce("The retry is queued");
    },
  });
}

/** @param {string} ds @param {Doc[]} docs */
export function cancelDocuments(ds, docs) {
  const running = docs.filter((d) => !terminal(d.state));
  return dialog({
    title: `Cancel ${plural(running.length, "document")}`,
    body: [names(running), el("p", {}, "Running work stops within seconds and queued work is dropped. A version that search shows already stays. A canceled document can be retried.")],
    action: "Stop the work",
    danger: true,
    run: async () => {
      const r = await send(`${datasetPath(ds)}/documents:cancel`, ids(running));
      announce(`${plural(r.documents, "document")} canceled`);
    },
  });
}

/** @param {string} ds @param {Doc[]} docs */
export function deleteDocuments(ds, docs) {
  const chunks = docs.reduce((n, d) => n + d.chunks, 0);
  return dialog({
    title: `Delete ${plural(docs.length, "document")}`,
    body: [names(docs), el("p", {}, `The ${docs.length === 1 ? "file" : "files"}, ${plural(chunks, "chunk")} and all versions are removed. This cannot be undone.`)],
    action: docs.length === 1 ? "Delete it" : `Delete all ${number(docs.length)}`,
    danger: true,
    run: async () => {
      await send(`${datasetPath(ds)}/documents:delete`, ids(docs));
      announce(`${plural(docs.length, "document")} deleted`);
    },
  });
}

/** @param {string} label @param {string} name @param {Record<string, any>} props */
const field = (label, name, props) => el("label", { class: "field" }, label, el("input", { name, ...props }));

/**
 * Parses again, perhaps with other settings. What it would cost is asked of the
 * server first and shown while the settings are changed.
 * @param {string} ds @param {Doc[]} docs
 */
export function reparseDialog(ds, docs) {
  const first = docs[0].parser_config;
  const same = (/** @type {keyof import("./types.js").ParseConfig} */ k) => (docs.every((d) => d.parser_config[k] === first[k]) && first[k] !== undefined ? String(first[k]) : "");
  const preview = el("div", { class: "preview", role: "status" });
  const settings = el("div", { class: "grid-fields" },
    field("Tokens per chunk", "chunk_token_num", { type: "number", min: 16, max: 8192, placeholder: same("chunk_token_num") || "as now", inputmode: "numeric" }),
    field("Overlap, percent", "overlapped_percent", { type: "number", min: 0, max: 50, placeholder: same("overlapped_percent") || "as now", inputmode: "numeric" }),
    field("Pages per task", "task_page_size", { type: "number", min: 1, max: 1000, placeholder: same("task_page_size") || "as now", inputmode: "numeric" }),
    field("Password of the file", "password", { type: "password", autocomplete: "off", placeholder: "if it is locked" }));
  const fresh = el("label", { class: "check" }, el("input", { type: "checkbox", name: "fresh" }), " Read everything anew, reuse nothing");
  const request = (/** @type {FormData} */ form) => {
    /** @type {Record<string, any>} */
    const config = {};
    for (const k of ["chunk_token_num", "overlapped_percent", "task_page_size"]) if (form.get(k)) config[k] = Number(form.get(k));
    if (form.get("password")) config.password = form.get("password");
    return { ...ids(docs), ...(Object.keys(config).length ? { parser_config: config } : {}), fresh: form.get("fresh") === "on" };
  };
  let asked = 0, timer = 0;
  const look = async () => {
    const mine = ++asked;
    preview.setAttribute("aria-busy", "true");
    const form = settings.closest("form");
    if (!form) return;
    const body = request(new FormData(form));
    try {
      const [answer, stats] = await Promise.all([send(`${datasetPath(ds)}/documents:reparse`, { ...body, dry_run: true }), get("/v1/stats").catch(() => null)]);
      if (mine !== asked) return;
      draw(preview, plan(answer.plans || [], docs, stats?.cost_per_second || 0, body.parser_config?.chunk_token_num));
    } catch (e) {
      if (mine === asked) preview.replaceChildren(trouble(e));
    }
    preview.removeAttribute("aria-busy");
  };
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(look, 300);
  };
  settings.addEventListener("input", soon);
  fresh.addEventListener("change", soon);
  preview.append(el("p", { class: "muted" }, "Asking what this would take …"));
  const done = dialog({
    title: `Parse ${docs.length === 1 ? "the document" : plural(docs.length, "document")} again`,
    body: [docs.length > 1 ? names(docs) : el("p", {}, name(docs[0].name)), settings, fresh, preview, el("p", { class: "muted" }, "Search keeps showing the present version until the new one is complete.")],
    action: "Parse again",
    run: async (form) => {
      await send(`${datasetPath(ds)}/documents:reparse`, request(form));
      announce("The documents are queued to be parsed again");
    },
  });
  void look();
  return done;
}

/** @param {Plan[]} plans @param {Doc[]} docs @param {number} speed cost per second @param {number} [tokens] new chunk size */
function plan(plans, docs, speed, tokens) {
  const ranges = plans.reduce((n, p) => n + (p.ranges?.length || 0), 0), reused = plans.reduce((n, p) => n + p.reused.ranges, 0);
  const cost = plans.reduce((n, p) => n + (p.ranges || []).reduce((m, r) => m + (r.reused ? 0 : r.cost), 0), 0);
  const units = plans.reduce((n, p) => n + p.units, 0);
  const scale = plans.length ? docs.length / plans.length : 1; // the server plans the first hundred
  const some = scale > 1 ? "about " : "";
  const before = docs.reduce((n, d) => n + d.chunks, 0);
  const old = docs[0].parser_config.chunk_token_num || 512;
  const chunks = cost ? `about ${number(Math.max(docs.length, Math.round(before * (tokens ? old / tokens : 1))))}` : `${number(before)}, unchanged`;
  const bad = plans.filter((p) => p.failure);
  const line = (/** @type {string} */ k, /** @type {string} */ v) => [el("dt", {}, k), el("dd", {}, v)];
  return el("div", {},
    el("dl", { class: "facts" },
      line("Ranges", `${some}${number(Math.round(ranges * scale))} over ${number(Math.round(units * scale))} pages or rows`),
      line("Reused", ranges ? `${some}${number(Math.round(reused * scale))} of ${number(Math.round(ranges * scale))} ranges, parsed and embedded before` : "nothing"),
      line("Chunks", chunks),
      line("Time", !cost ? "at once: nothing has to be read" : speed > 0 ? `about ${duration(Math.max((cost * scale / speed) * 1000, 1000))} at the speed of the last hour` : "not known yet: nothing was parsed in the last hour")),
    bad.length ? el("p", { class: "warn" }, `${plural(bad.length, "document")} cannot be planned: ${bad[0].failure?.message}`) : null);
}
