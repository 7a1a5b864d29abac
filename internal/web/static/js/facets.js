// @ts-check
/** The column that documents are narrowed by: what there is, and how many of each. */
import { causeOf } from "./causes.js";
import { button, el, name } from "./dom.js";
import { format, number } from "./format.js";

/** @typedef {import("./types.js").Facets} Facets */
/** @typedef {{q: string, state: string[], type: string[], issue: string[], warning: string[], job: string[], language: string[], tag: string[], sort: string, desc: boolean}} Asked */
/** @typedef {"state"|"type"|"issue"|"warning"|"job"|"language"|"tag"} Key */

/** What people call groups of states, and the states in each. @type {Record<string, [string, string[]]>} */
export const stateGroups = {
  active: ["In progress", ["unstarted", "queued", "running", "finalizing", "canceling"]],
  succeeded: ["Succeeded", ["succeeded"]],
  partial: ["Partial", ["partially_succeeded"]],
  failed: ["Failed", ["failed"]],
  canceled: ["Canceled", ["canceled"]],
};

/** The states that chosen groups stand for. @param {string[]} groups */
export const statesOf = (groups) => groups.flatMap((g) => stateGroups[g]?.[1] || []);

/** Keys of the address, their titles and the parameter of the API. @type {[Key, string, string][]} */
const kinds = [["state", "State", "state"], ["issue", "Issue", "failure_code"], ["type", "Format", "media_type"], ["warning", "Warning", "warning"], ["tag", "Tag", "tag"], ["language", "Language", "language"], ["job", "Job", "job"]];

export const facetKeys = /** @type {Key[]} */ (kinds.map(([k]) => k));

/** Whether anything narrows the list. @param {Asked} a */
export const narrowed = (a) => !!a.q || facetKeys.some((k) => a[k].length);

/** Parameters of the list for what is asked. @param {Asked} a @param {URLSearchParams} p */
export function parameters(a, p) {
  if (a.q) p.set("q", a.q);
  for (const [key, , of] of kinds) for (const v of key === "state" ? statesOf(a.state) : a[key]) p.append(of, v);
  return p;
}

/** What an action selects that is for all of the list. @param {Asked} a @returns {Record<string, any>} */
export function selection(a) {
  if (!narrowed(a)) return { all: true };
  /** @type {Record<string, any>} */
  const filter = a.q ? { q: a.q } : {};
  for (const [key, , of] of kinds) if (a[key].length) filter[{ warning: "warnings", job: "job_ids", language: "languages", tag: "tags" }[of] || of] = key === "state" ? statesOf(a.state) : a[key];
  return { filter };
}

/** A code in words. @param {string} code */
const words = (code) => code.slice(0, 1).toUpperCase() + code.slice(1).replaceAll("_", " ");

let languages = /** @type {Intl.DisplayNames|undefined} */ (undefined);

/** What a value is called. @param {Key} key @param {import("./types.js").Facet & {sample?: any}} f */
function label(key, f) {
  if (key === "type") return format(f.value);
  if (key === "job") return f.name || f.value;
  if (key === "issue") return causeOf({ code: f.value, category: f.sample?.category }).short;
  if (key === "warning") return words(f.value);
  if (key === "language" && /^[a-z]{2,3}([-_][a-z0-9]+)*$/i.test(f.value)) {
    try {
      return (languages ||= new Intl.DisplayNames(["en"], { type: "language" })).of(f.value.replaceAll("_", "-")) || f.value;
    } catch {
      return f.value;
    }
  }
  return f.value;
}

const firstShown = 6;

/**
 * @param {{ask: (change: Partial<Asked>) => void, views: string}} o views: where saved views of the dataset are kept
 */
export function facetColumn({ ask, views }) {
  const lists = el("div", { class: "facet-lists", id: "facet-lists" });
  const clear = button("Clear", () => ask({ q: "", ...Object.fromEntries(facetKeys.map((k) => [k, []])) }), { class: "link", "aria-label": "Clear all filters", hidden: true });
  const toggle = button("Filters", () => toggle.setAttribute("aria-expanded", String(root.classList.toggle("open"))), { class: "facet-toggle", "aria-expanded": "false", "aria-controls": "facet-lists" });
  const saved = el("div", { class: "saved" });
  const root = el("aside", { class: "facets", "aria-label": "Filters" }, el("div", { class: "facet-head" }, el("h2", {}, "Filters"), toggle, clear), lists);
  /** Values in the order in which they were first seen: nothing moves under the pointer. @type {Record<string, string[]>} */
  const order = { state: Object.keys(stateGroups) };
  /** What values are called; one that no document has any more keeps its name. @type {Record<string, Map<string, string>>} */
  const names = Object.fromEntries(facetKeys.map((k) => [k, new Map()]));
  /** @type {Set<string>} lists that are shown whole */
  const whole = new Set();
  let drawn = "";
  /** @type {[Facets, Asked]|undefined} */
  let last;

  function views_() {
    /** @type {unknown} */
    let list;
    try {
      list = JSON.parse(localStorage.getItem(views) || "[]");
    } catch { /* another version of this page, or a person, wrote it */ }
    // What is no view is left out; the next that is saved drops it.
    return /** @type {[string, string][]} */ (Array.isArray(list) ? list.filter((v) => Array.isArray(v) && v.length === 2 && v.every((x) => typeof x === "string")) : []);
  }
  function drawSaved() {
    const list = views_(), here = location.search;
    const keep = (/** @type {[string, string][]} */ to) => {
      localStorage.setItem(views, JSON.stringify(to.slice(-30)));
      drawSaved();
    };
    const field = el("input", { "aria-label": "Name of the view", placeholder: "Name", maxlength: 60, required: true, autocomplete: "off" });
    const form = el("form", { class: "save-view", hidden: true, onsubmit: (/** @type {Event} */ e) => {
      e.preventDefault();
      keep([...list.filter(([n]) => n !== field.value.trim()), [field.value.trim(), location.search]]);
    } }, field, el("button", {}, "Save"));
    const save = button("Save this view", () => {
      form.hidden = false;
      save.hidden = true;
      field.focus();
    }, { class: "link" });
    save.hidden = !here || list.some(([, at]) => at === here);
    saved.replaceChildren(...(list.length || !save.hidden ? [el("h3", {}, "Saved views"), el("ul", {}, list.map(([n, at]) => el("li", {}, el("a", { href: location.pathname + at, "aria-current": at === here ? "true" : undefined }, name(n)), button("×", () => keep(list.filter(([x]) => x !== n)), { class: "remove", "aria-label": `Remove the view ${n}` })))), save, form] : []));
  }

  /** @param {Facets} f @param {Asked} a */
  function update(f, a) {
    last = [f, a];
    const chosen = facetKeys.reduce((n, k) => n + a[k].length, a.q ? 1 : 0);
    clear.hidden = !chosen;
    toggle.textContent = chosen ? `Filters (${chosen} set)` : "Filters";
    const state = JSON.stringify([f, a, [...whole], location.search]);
    if (state === drawn) return;
    drawn = state;
    const focus = document.activeElement instanceof HTMLInputElement && lists.contains(document.activeElement) ? document.activeElement.dataset.value : undefined;
    lists.replaceChildren(...kinds.map(([key, title, of]) => {
      /** @type {(import("./types.js").Facet & {sample?: any})[]} */
      let values = key === "state" ? Object.entries(stateGroups).map(([value, [, states]]) => ({ value, documents: f.state.filter((s) => states.includes(s.value)).reduce((n, s) => n + s.documents, 0) })) : /** @type {any} */ (f)[of].map((/** @type {any} */ v) => (key === "issue" || key === "warning" ? { ...v, value: v.code } : v));
      const count = new Map(values.map((v) => [v.value, v]));
      order[key] ||= [];
      for (const v of values) {
        names[key].set(v.value, key === "state" ? stateGroups[v.value][0] : label(key, v));
        if (!order[key].includes(v.value)) order[key].push(v.value);
      }
      for (const v of a[key]) if (!order[key].includes(v)) order[key].push(v);
      const there = order[key].filter((v) => count.get(v)?.documents || a[key].includes(v));
      // A column that cannot narrow anything is no help.
      if (!there.length || there.length === 1 && !a[key].length && (key === "type" || key === "job")) return null;
      const shown = whole.has(key) ? there : there.filter((v, i) => i < firstShown || a[key].includes(v));
      return el("fieldset", { class: "facet" }, el("legend", {}, title), el("ul", {}, shown.map((v) => {
        const text = names[key].get(v) || label(key, { value: v, documents: 0 }), n = count.get(v)?.documents || 0;
        const box = el("input", { type: "checkbox", "data-value": `${key} ${v}`, "aria-label": `${title}: ${text}${key === "issue" ? ` (${v})` : ""}, ${number(n)}`, onchange: () => ask({ [key]: box.checked ? [...a[key], v] : a[key].filter((x) => x !== v) }) });
        box.checked = a[key].includes(v);
        return el("li", {}, el("label", { title: key === "issue" ? v : key === "warning" ? count.get(v)?.sample?.message : text.length > 18 ? text.slice(0, 400) : undefined }, box, el("span", { class: "facet-name" }, name(text)), el("span", { class: "num muted" }, number(n))));
      })), there.length > shown.length ? button(`Show all ${number(there.length)}`, () => {
        whole.add(key);
        if (last) update(...last);
      }, { class: "link", "aria-label": `Show all ${number(there.length)} of ${title}` }) : null);
    }).filter((x) => x !== null), saved);
    drawSaved();
    if (focus) /** @type {HTMLElement|undefined} */ ([...lists.querySelectorAll("input")].find((i) => i.dataset.value === focus))?.focus({ preventScroll: true });
  }
  return { root, update };
}
