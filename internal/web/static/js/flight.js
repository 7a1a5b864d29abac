// @ts-check
/** The flight record: all that is known of a run except what the documents say. */
import { get, save } from "./api.js";

/** @typedef {import("./types.js").Task} Task */

/** Saves the diagnostics of a job or a document as a file and returns them. @param {string} path of the job or document @param {string} id @param {AbortSignal} signal */
export async function diagnostics(path, id, signal) {
  const record = { ...(await get(`${path}/diagnostics`, signal)), browser: navigator.userAgent };
  const url = URL.createObjectURL(new Blob([JSON.stringify(record, null, 1)], { type: "application/json" }));
  save(url, `sheaf-diagnostics-${id}.json`);
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
