// @ts-check
/** What a chunk has beside its text: its role, place, links, language, keywords, tags, questions and context. */
import { el } from "./dom.js";

/** The languages that chunks are most often in; a filter by another one is written into the address. */
const names = new Intl.DisplayNames(["en"], { type: "language" });
export const languages = /** @type {[string, string][]} */ (["ar", "zh", "cs", "da", "nl", "en", "fi", "fr", "de", "el", "he", "hi", "hu", "it", "ja", "ko", "no", "pl", "pt", "ro", "ru", "es", "sv", "tr", "uk"]
  .map((code) => [code, names.of(code) || code])).sort((a, b) => a[1].localeCompare(b[1]));

const roles = /** @type {Record<string, string>} */ ({ child: "part of a longer chunk", contents: "table of contents", summary: "summary of its section" });

/** Addresses that a page may lead to: others, such as scripts, are shown as text. */
const leads = /^(https?:|ftp:|mailto:)/i;

/**
 * @param {import("./types.js").Chunk} c
 * @param {string} mediaType of its document
 */
export function labels(c, mediaType) {
  const row = (/** @type {string} */ label, /** @type {any} */ what) => el("div", {}, el("dt", {}, label), el("dd", {}, what));
  const list = (/** @type {string[]} */ all) => all.map((x, i) => [i ? ", " : "", el("bdi", {}, x)]);
  const redacted = [...new Set([...c.text.matchAll(/\[(EMAIL|PHONE|CARD|IBAN|IP|NATIONAL_ID)\**\]/g)].map((m) => m[1].toLowerCase().replace("_", " ")))];
  const rows = [
    c.role && roles[c.role] ? row("This is a", roles[c.role]) : null,
    c.metadata?.labels ? row(mediaType === "application/pdf" ? "Printed page" : "Part", list(c.metadata.labels.split("\n"))) : null,
    c.metadata?.links ? row("Links", c.metadata.links.split("\n").map((x) => el("p", {}, leads.test(x) ? el("a", { href: x, rel: "noreferrer", target: "_blank" }, el("bdi", {}, x)) : el("bdi", {}, x)))) : null,
    c.language ? row("Language", names.of(c.language) || c.language) : null,
    c.keywords?.length ? row("Keywords", list(c.keywords)) : null,
    c.tags?.length ? row("Tags", list(c.tags.map((t) => t.name))) : null,
    c.questions?.length ? row("Answers", c.questions.map((x) => el("p", {}, el("bdi", {}, x)))) : null,
    c.context ? row("Context", el("bdi", {}, c.context)) : null,
    redacted.length ? row("Personal data", `replaced: ${redacted.join(", ")}`) : null,
  ].filter(Boolean);
  return rows.length ? el("dl", { class: "labels" }, rows) : null;
}
