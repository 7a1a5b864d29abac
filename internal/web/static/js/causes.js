// @ts-check
/** Causes of failures, as people tell them apart, and the one cure that helps each. */
import { plural } from "./format.js";
import { spoken } from "./names.js";

/** @typedef {import("./types.js").Issue} Issue */

const files = (/** @type {number} */ n, /** @type {string} */ one, /** @type {string} */ many) => `${plural(n, "document")} ${n === 1 ? one : many}`;

/** What helps: another try, a password, other settings, or only that the files go. @typedef {"retry"|"password"|"reparse"|"delete"} Cure */
/** @typedef {{key: string, short: string, one: string, title: (n: number) => string, cure: string, act: Cure}} Cause */

/** Causes in the order in which they are shown: first what a person can cure at once. @type {Cause[]} */
const causes = [
  { key: "locked", short: "Locked", one: "Enter its password, or upload a copy without one.", title: (n) => files(n, "is locked with a password", "are locked with a password"), cure: "Enter the password. It is tried on all of them; documents with a different password stay here.", act: "password" },
  { key: "part", short: "Missing component", one: "Install it where the executors run, then retry.", title: (n) => files(n, "needs a component that is not installed", "need a component that is not installed"), cure: "Install it where the executors run, then retry.", act: "retry" },
  { key: "ocr", short: "Needs OCR", one: "Install tesseract (the package tesseract-ocr and your language packages) where the executors run, then retry.", title: (n) => files(n, "is a scan without text", "are scans without text"), cure: "Install tesseract (the package tesseract-ocr and your language packages) where the executors run, then retry.", act: "retry" },
  { key: "wait", short: "Unavailable", one: "Check Operations to see whether it has recovered, then retry.", title: (n) => files(n, "hit a service that was full or did not respond", "hit a service that was full or did not respond"), cure: "Check Operations to see whether it has recovered, then retry. Nothing is read twice.", act: "retry" },
  { key: "model", short: "Rejected by a model", one: "Check the model and its server in the configuration, then retry.", title: (n) => files(n, "was rejected by a model server", "were rejected by a model server"), cure: "Check the model and its server in the configuration, then retry.", act: "retry" },
  { key: "slow", short: "Too slow", one: "Retry. If it happens again, use fewer pages per task.", title: (n) => files(n, "timed out", "timed out"), cure: "Reprocess them with fewer pages per task, so that each task has less to do.", act: "reparse" },
  { key: "crash", short: "Parser crashed", one: "Everything else that could be read was kept. Retry; if it happens again, use fewer pages per task.", title: (n) => files(n, "crashed the parser", "crashed the parser"), cure: "Everything that could be read was kept. Retry once; if it crashes again, use fewer pages per task to keep more.", act: "retry" },
  { key: "ours", short: "Internal error", one: "This is a bug in Sheaf. Retry, and report it with the diagnostics attached.", title: (n) => files(n, "hit a bug in Sheaf", "hit a bug in Sheaf"), cure: "Retry. If it happens again, download the diagnostics of one document and report the bug.", act: "retry" },
  { key: "large", short: "Too large", one: "Split the file, or raise the limit in the configuration, then retry.", title: (n) => files(n, "exceeds this server's size limit", "exceed this server's size limit"), cure: "Split the files and upload the parts, or raise the limit in the configuration and retry.", act: "retry" },
  { key: "rule", short: "Not allowed", one: "A server policy does not allow this. Change the settings or the policy, then try again.", title: (n) => files(n, "was blocked by a policy", "were blocked by a policy"), cure: "Change the settings named below, then reprocess them.", act: "reparse" },
  { key: "empty", short: "Empty", one: "Check that you uploaded the right file.", title: (n) => files(n, "contains no text", "contain no text"), cure: "There is nothing to search in them, and a retry will not change that. Check that you uploaded the right files, or delete them.", act: "delete" },
  { key: "unknown", short: "Unknown format", one: "Save it in another format and upload that.", title: (n) => files(n, "has an unsupported format", "have an unsupported format"), cure: "Save them in another format and upload those. A retry will not help.", act: "delete" },
  { key: "damaged", short: "Damaged", one: "If the file is damaged, recreate it from its source and upload it again.", title: (n) => files(n, "is damaged", "are damaged"), cure: "Recreate the files from their source and upload them again. Everything that could be read is searchable; a retry will not help.", act: "delete" },
];
const byKey = Object.fromEntries(causes.map((c) => [c.key, c]));

/** Codes whose category says too little. @type {[RegExp, string][]} */
const codes = [
  [/^(encrypted|password)/, "locked"], [/^part_missing$/, "part"], [/^needs_ocr$/, "ocr"], [/^(empty_|no_text$)/, "empty"],
  [/^(too_|zip_bomb$|text_too_long$|range_too_large$|tag_set_too_large$)/, "large"], [/^unsupported_/, "unknown"], [/^(embed|chat|rerank)_(refused|unauthorized|bad_answer|failed)/, "model"], [/timeout/, "slow"], [/crash|out_of_memory/, "crash"],
];
/** @type {Record<string, string>} */
const categories = { encrypted: "locked", capacity: "wait", source_unavailable: "wait", target_unavailable: "wait", timeout: "slow", parser_crash: "crash", internal: "ours", policy: "rule", bad_input: "damaged" };

/** @param {{code?: string, category?: string}} f @returns {Cause} */
export const causeOf = (f) => byKey[codes.find(([re]) => re.test(f.code || ""))?.[1] || categories[f.category || "bad_input"] || "ours"];

/**
 * What to do about one failure; "" where its own words say that.
 * @param {{code?: string, category?: string, message?: string}} f
 */
export const cure = (f) => (f.message && spoken(f.message).includes(";") ? "" : f.category === "canceled" ? "Retry to resume it." : causeOf(f).one);

/** @typedef {{cause: Cause, codes: string[], documents: number, issues: Issue[]}} Group */

/** Issues of one cause together. @param {Issue[]} issues @returns {Group[]} */
export function grouped(issues) {
  return causes.map((cause) => {
    const of = issues.filter((i) => causeOf({ code: i.code, category: i.sample.category }) === cause);
    return { cause, issues: of, codes: of.map((i) => i.code), documents: of.reduce((n, i) => n + i.documents, 0) };
  }).filter((g) => g.documents);
}
