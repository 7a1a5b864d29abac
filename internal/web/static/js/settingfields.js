// @ts-check
/** Fields of the settings that files are read by, with what the API says of each. */
import { all, get } from "./api.js";
import { el } from "./dom.js";
import { setting } from "./names.js";

/** Settings in the order in which people look for them; those that are in none of these come last. @type {[string, string[]][]} */
const groups = [
  ["Chunks", ["chunk_method", "chunk_token_num", "overlapped_percent", "delimiter", "children_delimiter", "toc_extraction"]],
  ["Tables and images", ["html4excel", "table_context_size", "image_context_size", "ocr_pictures"]],
  ["Search aids", ["auto_keywords", "auto_questions", "auto_context", "tag_kb_ids", "topn_tags"]],
  ["Personal data", ["pii"]],
  ["Reading", ["task_page_size", "table_rows", "pages", "encoding", "media_type", "password"]],
];

/** What datasets alone have, runs over all of one, with what has them begin by themselves. @type {Record<string, string>} */
const ofDatasets = { raptor: "use_raptor", graphrag: "use_graphrag" };

/** @typedef {{description?: string, type?: string[]|string, enum?: any[]}} Property */
/** @typedef {HTMLInputElement|HTMLSelectElement} Field */
/** @typedef {{properties: Record<string, Property>, tagSets: import("./types.js").Dataset[]}} Table */

/** Datasets among which tag sets are looked for. */
const mostDatasets = 2000;

/** @type {Promise<Table["properties"]>|undefined} */
let asked;

/** What there is to set: of this server, so that it is asked once. @returns {Promise<Table["properties"]>} */
export function settingProperties() {
  asked ??= get("/openapi.json").then((api) => api.components.schemas.ParseConfig.properties);
  asked.catch(() => (asked = undefined));
  return asked;
}

/** What there is to set, and the datasets that tags can come from. @param {AbortSignal} [signal] @returns {Promise<Table>} */
export async function settingTable(signal) {
  const [properties, datasets] = await Promise.all([settingProperties(), all("/v1/datasets", mostDatasets, signal)]);
  return { properties, tagSets: datasets.filter((d) => d.parser_config.chunk_method === "tag") };
}

/** Ranges as people write them: 1-10, 20-25. @param {[number, number][]} list */
const ranges = (list) => list.map(([a, b]) => (a === b ? String(a) : `${a}-${b}`)).join(", ");

/** What a description says of a setting, and its default. @param {Property} p @returns {{text: string, byDefault: string, one?: string}} */
function described(p) {
  const [text, fallback = "none"] = (p.description || "").split(/ ?\bDefault: /), [byDefault, one] = fallback.split(". One of ");
  return { text, byDefault: byDefault.replace(/\.$/, ""), one };
}

/** The default of a setting, in words. @param {Table["properties"]} properties @param {string} key */
export const fallback = (properties, key) => described(properties[key] || {}).byDefault;

/** The value of a field as the API takes it; null takes a setting back. @param {Field} i */
export function valueOf(i) {
  const { name: key, dataset: { kind = "" } } = i;
  if (i instanceof HTMLSelectElement && i.multiple) return i.selectedOptions.length ? [...i.selectedOptions].map((o) => o.value) : null;
  const text = i.value.trim();
  if (text === "") return null;
  if (kind === "boolean") return text === "true";
  if (kind === "integer") return Number(text);
  if (kind === "object") return JSON.parse(text);
  const list = text.split(",").map((x) => x.trim()).filter(Boolean);
  if (key === "pages") {
    return list.map((r) => {
      const [a, b = a] = r.split("-").map((n) => Number(n.trim()));
      if (!(a >= 1 && b >= a)) throw new Error(`“${r}” is not a page range. Use the form 1-10, 20-25.`);
      return [a, b];
    });
  }
  return kind === "array" ? list : text;
}

/** The fields of settings in a form. @param {ParentNode} form @returns {Field[]} */
export const fieldsOf = (form) => [...form.querySelectorAll("[data-kind]")].map((e) => /** @type {Field} */ (e));

/** What is filled in, and nothing else. @param {ParentNode} form @returns {Record<string, any>} */
export const filled = (form) => Object.fromEntries(fieldsOf(form).map((i) => [i.name, valueOf(i)]).filter(([, v]) => v !== null));

/**
 * The field of the server's error, which names the setting in its sentence: it is marked and has the focus.
 * @param {ParentNode} form @param {unknown} err
 */
export function markFault(form, err) {
  const at = fieldsOf(form).find((i) => new RegExp(`\\b${i.name}\\b`).test(err instanceof Error ? err.message : ""));
  at?.setAttribute("aria-invalid", "true");
  at?.focus();
}

/**
 * @param {Table} table @param {string} key
 * @param {{now?: any, unset?: string, id?: string}} [o] now: what it is set to; unset: what an empty field stands for, instead of the default
 */
export function settingField({ properties, tagSets }, key, { now, unset, id = `set-${key}` } = {}) {
  const p = properties[key], kind = [p.type].flat().find((t) => t !== "null") || "string", help = `${id}-help`;
  const { text, byDefault, one } = described(p), words = /** @type {Record<string, string>} */ ({ true: "Yes", false: "No" });
  const shown = now === undefined || now === null ? "" : key === "pages" ? ranges(now) : Array.isArray(now) ? now.join(", ") : String(now);
  const choices = kind === "boolean" ? ["true", "false"] : key === "pii" ? ["none", "find", "redact"] : one?.replace(/\.$/, "").split(", ");
  const props = { id, name: key, "data-kind": kind, "aria-describedby": help };
  /** @type {Field} */
  let input;
  if (key === "tag_kb_ids") {
    const chosen = /** @type {string[]} */ (now || []), unknown = chosen.filter((v) => !tagSets.some((d) => d.id === v));
    input = el("select", { ...props, multiple: true, size: Math.min(Math.max(tagSets.length + unknown.length, 2), 6) }, tagSets.map((d) => el("option", { value: d.id, selected: chosen.includes(d.id) }, d.name.slice(0, 80))), unknown.map((v) => el("option", { value: v, selected: true }, v)));
  } else if (ofDatasets[key]) { // its other options are those that it has
    const { [ofDatasets[key]]: on, ...rest } = now || {}, off = Object.keys(rest).length || on === false ? JSON.stringify(on === false ? now : rest) : "";
    const begun = JSON.stringify(on === true ? now : { ...rest, [ofDatasets[key]]: true });
    input = el("select", props, el("option", { value: off }, "Manual"), el("option", { value: begun }, "Automatic, after documents are published"));
    input.value = on === true ? begun : off;
  } else if (choices) {
    input = el("select", props, el("option", { value: "" }, unset || `Default: ${words[byDefault] || byDefault}`), choices.map((c) => el("option", { value: c }, words[c] || c)));
    input.value = shown;
  } else {
    input = el("input", { ...props, type: key === "password" ? "password" : "text", inputmode: kind === "integer" ? "numeric" : undefined, placeholder: unset || byDefault, autocomplete: "off" });
    input.value = shown;
  }
  const said = ofDatasets[key] ? (key === "raptor" ? "Summaries are rebuilt a minute after documents are added or changed." : "The chat model rebuilds the graph a minute after documents are added or changed. Without a chat model the graph is built by rules and no run starts.") : key === "tag_kb_ids" ? `Each chunk gets the tags of its nearest rows. ${tagSets.length ? "Choose up to 8." : "There are no tag sets yet. Create a dataset with the chunk method “tag” and upload a table of texts and their tags."}` : text.trim().replace(/^./, (x) => x.toUpperCase());
  return el("div", { class: "setting" }, el("label", { for: id }, setting(key)), input, el("p", { id: help, class: "muted" }, said));
}

/**
 * All settings in their groups.
 * @param {Table} table @param {{values?: Record<string, any>, unset?: string, prefix?: string, without?: string[], level?: "h2"|"h3", dataset?: boolean}} [o] dataset: with those that documents do not have
 */
export function settingFields(table, { values = {}, unset, prefix = "set-", without = [], level = "h2", dataset = false } = {}) {
  const runs = Object.keys(ofDatasets), known = [...groups.flatMap(([, keys]) => keys), ...runs], rest = Object.keys(table.properties).filter((k) => !known.includes(k));
  return [...groups, .../** @type {[string, string[]][]} */ ([["More", rest], ["Runs over the dataset", dataset ? runs : []]])].map(([label, keys]) => {
    const some = keys.filter((k) => table.properties[k] && !without.includes(k));
    return some.length ? el("section", {}, el(level, {}, label), some.map((k) => settingField(table, k, { now: values[k], unset, id: `${prefix}${k}` }))) : null;
  });
}

/**
 * All other settings behind a line that opens them; they are asked for then.
 * @param {{unset: string, prefix: string, without: string[], level: "h2"|"h3"}} o
 */
export function moreSettings({ unset, prefix, without, level }) {
  const inside = el("div", {}, el("p", { class: "muted" }, "Loading …"));
  let asked = false;
  const box = el("details", { class: "more-settings", ontoggle: async () => {
    if (asked || !box.open) return;
    asked = true;
    try {
      inside.replaceChildren(...settingFields(await settingTable(), { unset, prefix, without, level }).filter((x) => x !== null));
    } catch (e) {
      asked = false;
      inside.replaceChildren(el("p", { class: "warn" }, /** @type {Error} */ (e).message));
    }
  } }, el("summary", {}, "More settings"), inside);
  return box;
}
