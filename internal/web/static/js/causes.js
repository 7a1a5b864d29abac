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
  { key: "locked", short: "Locked", one: "Enter its password, or upload a copy without one.", title: (n) => files(n, "is locked with a password", "are locked with a password"), cure: "Enter the password that opens them. One try is made for all of them; those of another password stay here.", act: "password" },
  { key: "part", short: "Missing part", one: "When it is installed where the executors run, retry.", title: (n) => files(n, "needs a part that is not installed", "need a part that is not installed"), cure: "Install it where the executors run, then retry.", act: "retry" },
  { key: "ocr", short: "Needs OCR", one: "Install tesseract (the packages tesseract-ocr and those of your languages) where the executors run, then retry.", title: (n) => files(n, "is a scan without text", "are scans without text"), cure: "Install tesseract (the packages tesseract-ocr and those of your languages) where the executors run, then retry.", act: "retry" },
  { key: "wait", short: "Out of reach", one: "Operations shows whether it answers again. Then retry.", title: (n) => files(n, "met something that was full or did not answer", "met something that was full or did not answer"), cure: "Operations shows whether it answers again. Then retry: nothing that was read is read twice.", act: "retry" },
  { key: "model", short: "Refused by a model", one: "Check the model and its server in the configuration, then retry.", title: (n) => files(n, "was refused by a model's server", "were refused by a model's server"), cure: "Check the model and its server in the configuration, then retry.", act: "retry" },
  { key: "slow", short: "Too slow", one: "Retry; if it happens again, parse with fewer pages per task.", title: (n) => files(n, "took longer than it may", "took longer than they may"), cure: "Parse them again with fewer pages per task, so that each piece has the whole time.", act: "reparse" },
  { key: "crash", short: "Parser stopped", one: "What else could be read was kept. Retry, and if it happens again parse with fewer pages per task.", title: (n) => files(n, "made the parser stop", "made the parser stop"), cure: "What could be read was kept. Retry once; if it stops again, parse with fewer pages per task, which keeps more.", act: "retry" },
  { key: "ours", short: "Fault of Sheaf", one: "This is a fault of Sheaf. Retry, and attach the diagnostics to a report.", title: (n) => files(n, "met a fault of Sheaf", "met a fault of Sheaf"), cure: "Retry. If it happens again, download the diagnostics of one of them and report it.", act: "retry" },
  { key: "large", short: "Too large", one: "Split the file, or raise the limit in the configuration and retry.", title: (n) => files(n, "is larger than this server takes", "are larger than this server takes"), cure: "Split the files and send the parts. A limit can be raised in the configuration; retry after that.", act: "retry" },
  { key: "rule", short: "Not allowed", one: "A rule of this server refused it. Change the settings or the rule, then try again.", title: (n) => files(n, "was refused by a rule", "were refused by a rule"), cure: "Change the settings that are named below, and parse them again.", act: "reparse" },
  { key: "empty", short: "Empty", one: "Check that the right file was sent.", title: (n) => files(n, "holds no text", "hold no text"), cure: "Nothing can be searched in them, and no retry changes that. Check that the right files were sent, or delete them.", act: "delete" },
  { key: "unknown", short: "Unknown format", one: "Save it in another format and send that.", title: (n) => files(n, "is of a format that cannot be read", "are of a format that cannot be read"), cure: "Save them in another format and send those. No retry helps.", act: "delete" },
  { key: "damaged", short: "Damaged", one: "Check the file: where it is damaged, make it anew from its source and send that.", title: (n) => files(n, "is damaged", "are damaged"), cure: "Make the files anew from their source and send them again. What could be read is searchable; no retry helps.", act: "delete" },
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
export const cure = (f) => (f.message && spoken(f.message).includes(";") ? "" : f.category === "canceled" ? "Retry it if it is wanted after all." : causeOf(f).one);

/** @typedef {{cause: Cause, codes: string[], documents: number, issues: Issue[]}} Group */

/** Issues of one cause together. @param {Issue[]} issues @returns {Group[]} */
export function grouped(issues) {
  return causes.map((cause) => {
    const of = issues.filter((i) => causeOf({ code: i.code, category: i.sample.category }) === cause);
    return { cause, issues: of, codes: of.map((i) => i.code), documents: of.reduce((n, i) => n + i.documents, 0) };
  }).filter((g) => g.documents);
}
