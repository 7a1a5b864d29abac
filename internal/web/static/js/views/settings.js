// @ts-check
/** Settings of a dataset, with what the API says of each. */
import { reparseDialog } from "../actions.js";
import { datasetPath, get, send } from "../api.js";
import { announce, button, draw, el, name, trouble } from "../dom.js";
import { plural } from "../format.js";
import { go, title } from "../nav.js";
import { setting } from "../parts.js";

/** Settings in the order in which people look for them; those that are in none of these come last. @type {[string, string[]][]} */
const groups = [
  ["Chunks", ["chunk_method", "chunk_token_num", "overlapped_percent", "delimiter", "children_delimiter", "toc_extraction"]],
  ["Tables and images", ["html4excel", "table_context_size", "image_context_size", "ocr_pictures"]],
  ["What chunks are found by", ["auto_keywords", "auto_questions", "auto_context", "tag_kb_ids", "topn_tags"]],
  ["Personal data", ["pii"]],
  ["Reading", ["task_page_size", "table_rows", "pages", "encoding", "media_type", "password"]],
];

/** @typedef {{description?: string, type?: string[]|string, enum?: any[]}} Property */

/** Ranges as people write them: 1-10, 20-25. @param {[number, number][]} list */
const ranges = (list) => list.map(([a, b]) => (a === b ? String(a) : `${a}-${b}`)).join(", ");

/** The value of a field as the API takes it; null takes a setting back. @param {string} key @param {string} kind @param {string} text */
function valueOf(key, kind, text) {
  if (text === "") return null;
  if (kind === "boolean") return text === "true";
  if (kind === "integer") return Number(text);
  const list = text.split(",").map((x) => x.trim()).filter(Boolean);
  if (key === "pages") {
    return list.map((r) => {
      const [a, b = a] = r.split("-").map((n) => Number(n.trim()));
      if (!(a >= 1 && b >= a)) throw new Error(`“${r}” is no range of pages. Write them as 1-10, 20-25.`);
      return [a, b];
    });
  }
  return kind === "array" ? list : text;
}

/** @param {import("../types.js").Context} c */
export async function view({ root, params, signal }) {
  const base = datasetPath(params.ds);
  /** @type {[import("../types.js").Dataset, {components: {schemas: Record<string, {properties: Record<string, Property>}>}}]} */
  let [ds, api] = await Promise.all([get(base, signal), get("/openapi.json", signal)]);
  title(`${ds.name}, settings`);
  const properties = api.components.schemas.ParseConfig.properties;
  const known = groups.flatMap(([, keys]) => keys), rest = Object.keys(properties).filter((k) => !known.includes(k));
  /** What was changed since this was opened: the documents that are there may take all of it at once. @type {Set<string>} */
  const changed = new Set();
  const message = el("div"), save = el("button", { class: "primary" }, "Save");

  /** @param {string} key */
  function field(key) {
    const p = properties[key], kind = [p.type].flat().find((t) => t !== "null") || "string", id = `set-${key}`, help = `${id}-help`;
    const [text, fallback = "none"] = (p.description || "").split(/ ?\bDefault: /), [byDefault, one] = fallback.split(". One of ");
    const now = /** @type {any} */ (ds.parser_config)[key], shown = now === undefined || now === null ? "" : key === "pages" ? ranges(now) : Array.isArray(now) ? now.join(", ") : String(now);
    const choices = kind === "boolean" ? ["true", "false"] : key === "pii" ? ["none", "find", "redact"] : one?.replace(/\.$/, "").split(", ");
    const words = /** @type {Record<string, string>} */ ({ true: "Yes", false: "No" });
    const input = choices ? el("select", { id, name: key, "aria-describedby": help }, el("option", { value: "" }, `Default: ${words[byDefault] || byDefault}`), choices.map((c) => el("option", { value: c }, words[c] || c)))
      : el("input", { id, name: key, type: key === "password" ? "password" : "text", inputmode: kind === "integer" ? "numeric" : undefined, placeholder: byDefault, autocomplete: "off", "aria-describedby": help });
    input.value = shown;
    input.dataset.kind = kind;
    return el("div", { class: "setting" }, el("label", { for: id }, setting(key)), input, el("p", { id: help, class: "muted" }, text.trim().replace(/^./, (x) => x.toUpperCase())));
  }

  const called = el("input", { id: "set-name", value: ds.name, maxlength: 255, required: true, autocomplete: "off" });
  const form = el("form", { class: "dataset-settings", onsubmit: async (/** @type {Event} */ e) => {
    e.preventDefault();
    message.replaceChildren();
    for (const x of form.querySelectorAll("[aria-invalid]")) x.removeAttribute("aria-invalid");
    /** @type {Record<string, any>} */
    const config = {};
    try {
      for (const i of /** @type {NodeListOf<HTMLInputElement|HTMLSelectElement>} */ (form.querySelectorAll("[name]"))) {
        const was = /** @type {any} */ (ds.parser_config)[i.name] ?? null, to = valueOf(i.name, i.dataset.kind || "", i.value.trim());
        if (JSON.stringify(was) !== JSON.stringify(to) && !(i.name === "password" && to === null)) config[i.name] = to;
      }
      const change = { ...(called.value.trim() !== ds.name ? { name: called.value.trim() } : {}), ...(Object.keys(config).length ? { parser_config: config } : {}) };
      if (!Object.keys(change).length) return draw(message, el("p", { class: "muted", role: "status" }, "Nothing was changed."));
      save.disabled = true;
      const old = ds.name;
      ds = await send(base, change, "PATCH");
      for (const k of Object.keys(config)) changed.add(k);
      announce("Saved");
      if (ds.name !== old && params.ds === old) return go(`/datasets/${encodeURIComponent(ds.name)}/settings`, { replace: true });
      draw(message, el("p", { role: "status" }, "Saved. Documents that come from now on are read so. ", change.parser_config && ds.documents ? button(`Parse the ${plural(ds.documents, "present document")} again…`, () => void again([...changed]), { class: "link" }) : ""));
    } catch (err) {
      // The server names the setting in its sentence.
      const at = [...form.querySelectorAll("[name]")].find((i) => new RegExp(`\\b${i.getAttribute("name")}\\b`).test(/** @type {Error} */ (err).message));
      at?.setAttribute("aria-invalid", "true");
      draw(message, trouble(err));
      /** @type {HTMLElement|null|undefined} */ (at)?.focus();
    }
    save.disabled = false;
  } },
  el("section", {}, el("h2", {}, "Name"), el("div", { class: "setting" }, el("label", { for: "set-name" }, "Name of the dataset"), called, el("p", { class: "muted" }, "Addresses and programs use it; those that know the dataset by its id go on as before."))),
  groups.map(([label, keys]) => el("section", {}, el("h2", {}, label), keys.filter((k) => properties[k]).map(field))), rest.length ? el("section", {}, el("h2", {}, "More"), rest.map(field)) : null,
  el("div", { class: "actions" }, message, save));

  /** The documents that are there take what was changed. @param {string[]} keys */
  async function again(keys) {
    const done = await reparseDialog(params.ds, { count: ds.documents, body: { all: true, parser_config: Object.fromEntries(keys.map((k) => [k, null])) } });
    if (done) go(`/datasets/${encodeURIComponent(params.ds)}`);
  }

  root.replaceChildren(el("div", { class: "head" }, el("div", {}, el("p", { class: "crumbs" }, el("a", { href: `/datasets/${encodeURIComponent(params.ds)}` }, name(ds.name)), " / "), el("h1", { tabindex: "-1" }, "Settings"))),
    el("p", { class: "muted" }, "They hold for documents that come without settings of their own. What is left empty takes its default."), form);
}
