// @ts-check
/** The flight record: all that is known of a run except what the documents say. */
import { get, save } from "./api.js";

/** @typedef {import("./types.js").Task} Task */
/** @typedef {import("./types.js").SheafEvent} SheafEvent */

/** A bound on what one file gathers. */
const mostEvents = 50_000, mostDocuments = 200;

/**
 * Names, texts and the parser's own output may quote a document, so they stay out.
 * @param {string} path of the job or document @param {import("./types.js").Doc[]} docs @param {Task[]} tasks @param {any} subject @param {AbortSignal} signal
 */
export async function flightRecord(path, docs, tasks, subject, signal) {
  /** @type {SheafEvent[]} */
  const events = [];
  for (let after = 0; events.length < mostEvents; ) {
    const page = await get(`${path}/events?limit=3000&after=${after}`, signal);
    if (!page.items.length) break;
    events.push(...page.items.filter((/** @type {SheafEvent} */ e) => e.kind !== "output"));
    after = page.last;
  }
  const [health, executors, ready] = await Promise.all([get("/healthz", signal), get("/v1/executors", signal).catch(() => ({ items: [] })), fetch("/readyz", { signal }).then((r) => r.json(), () => null)]);
  const failure = (/** @type {any} */ f) => f && { code: f.code, category: f.category, retryable: f.retryable, phase: f.phase, page: f.page, range: f.range, attempt: f.attempt };
  const { documents, failure: whole, name: _, metadata: __, warnings: ___, ...rest } = subject;
  const record = {
    what: "Sheaf flight record; holds no document text, names or metadata",
    made_at: new Date().toISOString(),
    version: health.version,
    browser: navigator.userAgent,
    subject: { ...rest, ...(documents ? { documents } : {}), ...(whole ? { failure: failure(whole) } : {}) },
    executors: executors.items.map((/** @type {any} */ e) => ({ id: e.id, version: e.version, slots: e.slots, rss_bytes: e.rss_bytes, started_at: e.started_at })),
    dependencies: ready?.dependencies,
    documents: docs.slice(0, mostDocuments).map((d) => ({ id: d.id, media_type: d.media_type, size: d.size, state: d.state, units: d.units, unit: d.unit, generation: d.generation, live_generation: d.live_generation,
      chunks: d.chunks, tokens: d.tokens, ledger: d.ledger, parser: d.parser, parser_config: d.parser_config, failure: failure(d.failure), warnings: d.warnings.map((w) => ({ code: w.code, page: w.page })), created_at: d.created_at, started_at: d.started_at, finished_at: d.finished_at })),
    tasks: tasks.map(({ failure: f, ledger, warnings, ...t }) => ({ ...t, ledger: ledger?.map((r) => ({ from: r.from, to: r.to, status: r.status, code: r.code })), warnings: warnings?.map((w) => ({ code: w.code, page: w.page })), failure: failure(f) })),
    events: events.map(({ text: _, detail, ...e }) => ({ ...e, detail: e.kind === "progress" ? detail : detail?.state ? { state: detail.state, progress: detail.progress } : undefined })),
  };
  const url = URL.createObjectURL(new Blob([JSON.stringify(record, null, 1)], { type: "application/json" }));
  save(url, `sheaf-flight-${subject.id}.json`);
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
  return record;
}

/** The tasks of many documents, newest generation each. @param {string} ds @param {import("./types.js").Doc[]} docs @param {AbortSignal} signal @param {string} [job] only tasks of this job */
export async function tasksOf(ds, docs, signal, job) {
  /** @type {Task[]} */
  const out = [];
  for (let i = 0; i < docs.length; i += 4) {
    const some = await Promise.all(docs.slice(i, i + 4).map((d) => get(`/v1/datasets/${ds}/documents/${d.id}/tasks`, signal)));
    for (const s of some) out.push(...s.items.filter((/** @type {Task} */ t) => !job || t.job_id === job));
  }
  return out;
}
