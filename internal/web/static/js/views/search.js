// @ts-check
/** Search: what was found, where it stands on its page, and why it ranks there. */
import { aborted, all, datasetPath, send } from "../api.js";
import { apiCommand, commandBox } from "../clipboard.js";
import { button, byId, el, empty, name, trouble } from "../dom.js";
import { drawable, format, formats, number, plural } from "../format.js";
import { labels, languages } from "../labels.js";
import { go, note, title } from "../nav.js";
import { pageImage } from "../page.js";
import { unitsAt } from "../parts.js";
import { chunkText, marked } from "../text.js";

/** @typedef {import("../types.js").Hit} Hit */

/** How many hits are shown, each time that more are asked for; the last is what one search answers at most. */
const steps = [20, 50, 100, 200, 500, 1000];

/** What the places of a hit are called, by its format; a file that is read whole has none. @param {string} media */
const unitOf = (media) => (drawable(media) ? "page" : /presentation|powerpoint/.test(media) ? "slide" : /spreadsheet|excel|csv|tab-separated|x-ndjson/.test(media) ? "row" : /epub|mbox|rfc822|outlook/.test(media) ? "part" : "");

/** Where in its document a hit stands, in words. @param {Hit} h */
export function whereOf(h) {
  const unit = unitOf(h.document.media_type), at = [...new Set(h.chunk.pages)].sort((a, b) => a - b), [from, to] = [at[0], at[at.length - 1]];
  if (!unit || !at.length) return "";
  return `, ${to - from === at.length - 1 ? unitsAt(unit, from, to) : `${unit}s ${at.map(number).join(", ")}`}${h.document.media_type === "application/pdf" && h.chunk.metadata?.labels ? ` (${h.chunk.metadata.labels.split("\n").join(", ")})` : ""}`;
}

/** @param {import("../types.js").Context} c */
export async function view({ root, query, signal }) {
  const sets = await all("/v1/datasets", 500, signal).catch(() => []);
  const results = el("section", { "aria-label": "Results" });
  const field = (/** @type {string} */ label, /** @type {HTMLElement} */ input) => el("label", {}, el("span", {}, label), input);
  const q = el("input", { name: "q", type: "search", autocomplete: "off", required: true });
  const ds = el("select", { name: "dataset" }, el("option", { value: "" }, "All datasets"), sets.map((s) => el("option", { value: s.name }, s.name.slice(0, 80))));
  const type = el("select", { name: "type" }, el("option", { value: "" }, "All formats"), Object.entries(formats).map(([k, v]) => el("option", { value: k }, v)));
  const mode = el("select", { name: "mode" }, el("option", { value: "" }, "Hybrid"), el("option", { value: "text" }, "Words only"), el("option", { value: "vector" }, "Meaning only"));
  const part = (/** @type {string} */ name, /** @type {string} */ hint) => el("input", { name, type: "number", min: 0, max: 1, step: "any", class: "page-number", placeholder: hint });
  const weight = part("weight", "auto"), threshold = part("threshold", "none"), size = el("input", { name: "size", type: "number", min: 1, max: 100, class: "page-number", placeholder: "1" });
  const from = el("input", { name: "from", type: "number", min: 1, class: "page-number" }), to = el("input", { name: "to", type: "number", min: 1, class: "page-number" });
  const language = el("select", { name: "language" }, el("option", { value: "" }, "Every language"), languages.map(([k, v]) => el("option", { value: k }, v)));
  const keyword = el("input", { name: "keyword", autocomplete: "off" }), tag = el("input", { name: "tag", autocomplete: "off" });
  const group = el("select", { name: "group" }, el("option", { value: "" }, "Nothing"), el("option", { value: "document" }, "Document"), el("option", { value: "page" }, "Page"));
  const doc = el("p", { class: "muted" }), evaluations = el("p", {});
  /** @type {HTMLElement} */
  let filters;
  // In a narrow window the filters would push the hits out of sight.
  const more = button("Filters", () => more.setAttribute("aria-expanded", String(filters.classList.toggle("open"))), { class: "filter-toggle", "aria-expanded": "false" });
  const form = el("form", { class: "search-form", role: "search", "aria-label": "Search with filters", onsubmit: (/** @type {Event} */ e) => {
    e.preventDefault();
    submit();
  } }, el("div", { class: "search-line" }, field("Search for", q), el("button", { class: "primary" }, "Search")),
  more, filters = el("div", { class: "search-filters", id: "search-filters" }, field("Dataset", ds), field("Format", type), field("Mode", mode), field("Weight of meaning", weight), field("Min score", threshold), field("Group by", group), field("Hits per group", size), field("From page", from), field("to page", to), field("Language", language), field("Keyword", keyword), field("Tag", tag)), doc);
  more.setAttribute("aria-controls", filters.id);
  for (const s of [ds, type, mode, group, language, weight, threshold, size]) s.addEventListener("change", () => q.value && form.reportValidity() && submit());
  // One field to search with is enough.
  const top = byId("search");
  top.hidden = true;
  signal.addEventListener("abort", () => (top.hidden = false));
  root.replaceChildren(el("div", { class: "head" }, el("h1", { tabindex: "-1" }, "Search")), form, results, evaluations);

  function submit() {
    const p = new URLSearchParams();
    for (const [k, v] of new FormData(form)) if (String(v).trim()) p.set(k, String(v).trim());
    if (shown.get("doc")) p.set("doc", shown.get("doc") || "");
    go(`/search?${p}`);
  }

  let shown = query;
  let stop = new AbortController();
  /** @param {URLSearchParams} p @param {boolean} [further] the same search, with more of its hits */
  async function run(p, further = false) {
    shown = p;
    for (const i of [q, ds, type, mode, weight, threshold, from, to, group, size, language, keyword, tag]) i.value = p.get(i.name) || "";
    // A weight is of two sides, and a size of groups: alone they would be refused.
    weight.disabled = !!mode.value;
    size.disabled = !group.value;
    title(p.get("q") ? `${p.get("q")}, search` : "Search");
    const without = new URLSearchParams(p);
    without.delete("doc");
    evaluations.replaceChildren(...(p.get("dataset") ? [el("a", { href: `/datasets/${encodeURIComponent(p.get("dataset") || "")}/evaluations` }, "How well search answers here")] : []));
    doc.replaceChildren(...(p.get("doc") ? ["In one document only. ", el("a", { href: `/search?${without}` }, "Search all")] : []));
    doc.hidden = !p.get("doc");
    const set = [ds, type, mode, weight, threshold, from, to, group, size, language, keyword, tag].filter((i) => i.value && !i.disabled).length;
    more.textContent = set ? `Filters (${set} set)` : "Filters";
    stop.abort();
    stop = new AbortController();
    if (!p.get("q")) {
      results.replaceChildren(empty("Search the text of all documents", el("p", {}, "Write a question or some words. Each hit shows its page with the place marked.")));
      return;
    }
    results.setAttribute("aria-busy", "true");
    /** @type {Record<string, any>} */
    const filter = {};
    if (p.get("type")) filter.media_types = [p.get("type")];
    if (p.get("doc")) filter.document_ids = [p.get("doc")];
    for (const k of ["language", "keyword", "tag"]) if (p.get(k)) filter[`${k}s`] = [p.get(k)];
    if (Number(p.get("from")) || Number(p.get("to"))) filter.pages = { ...(Number(p.get("from")) ? { from: Number(p.get("from")) } : {}), ...(Number(p.get("to")) ? { to: Number(p.get("to")) } : {}) };
    const limit = steps.find((n) => n >= Number(p.get("limit"))) || 1000, given = (/** @type {HTMLInputElement} */ i, /** @type {string} */ key) => (i.value && !i.disabled ? { [key]: Number(i.value) } : {});
    const body = { query: p.get("q"), limit, highlight: true, ...(p.get("mode") ? { mode: p.get("mode") } : {}), ...given(weight, "vector_weight"), ...given(threshold, "threshold"), ...(p.get("group") ? { group_by: p.get("group"), ...given(size, "group_size") } : {}), ...(Object.keys(filter).length ? { filter } : {}) };
    const path = p.get("dataset") ? `${datasetPath(p.get("dataset") || "")}/search` : "/v1/search", had = results.querySelectorAll(".hit").length;
    try {
      /** @type {import("../types.js").SearchAnswer} */
      const answer = await send(path, body);
      if (shown !== p || signal.aborted) return;
      results.replaceChildren(
        el("p", { class: "muted", role: "status" }, answer.hits.length ? `${plural(answer.hits.length, "passage")} in ${number(Math.round(answer.took_ms))} ms` : ""),
        ...(answer.warnings || []).map((w) => el("p", { class: "warn" }, w.message)),
        answer.hits.length ? el("ol", { class: "hits" }, answer.hits.map((h, i) => hit(h, i, answer.hits))) : empty("Nothing was found", el("p", {}, "Try fewer or other words, or take a filter away. Documents that are still being read are not found yet.")),
        answer.hits.length === limit && limit < 1000 ? el("p", {}, button("Show more", () => {
          const on = new URLSearchParams(p);
          on.set("limit", String(steps.find((n) => n > limit)));
          note({ limit: on.get("limit") || "" });
          void run(on, true);
        })) : "",
        el("details", { class: "as-command" }, el("summary", {}, "This search as a command"), commandBox(apiCommand(path, body))));
      // Who asked for more goes on where they were.
      if (further) /** @type {HTMLElement|null} */ (results.querySelectorAll(".hit h2 a")[had])?.focus({ preventScroll: true });
    } catch (e) {
      if (!aborted(e)) results.replaceChildren(trouble(e, () => void run(p)));
    } finally {
      results.removeAttribute("aria-busy");
    }
  }

  /** @param {Hit} h @param {number} i @param {Hit[]} hits */
  function hit(h, i, hits) {
    const page = h.chunk.pages[0] || 1;
    const link = `/datasets/${h.document.dataset_id}/documents/${h.document.id}?${new URLSearchParams({ page: String(page), chunk: h.chunk.id })}`;
    const text = h.highlight ? chunkText(h.highlight, h.chunk.kind, marked) : chunkText(h.chunk.text, h.chunk.kind);
    const picture = drawable(h.document.media_type) ? el("a", { href: link, class: "thumb", tabindex: "-1", "aria-hidden": "true" }, pageImage({ ds: h.document.dataset_id, doc: h.document.id, name: h.document.name, page, dpi: 40, lazy: true, signal,
      boxes: h.chunk.boxes.filter((b) => b.page === page).map((box) => ({ box, key: "hit", label: "" })) })) : el("span", { class: "thumb none", "aria-hidden": "true" }, format(h.document.media_type));
    return el("li", { class: "hit" }, picture, el("div", { class: "hit-body" },
      el("h2", {}, el("a", { href: link }, name(h.document.name), el("span", { class: "where" }, whereOf(h)))),
      h.chunk.heading_path?.length ? el("p", { class: "path" }, h.chunk.heading_path.map((x, n) => [n ? " › " : "", el("bdi", {}, x)])) : null,
      el("div", { class: "snippet" }, text), labels(h.chunk), why(h, i, hits)));
  }

  /** @param {Hit} h @param {number} i @param {Hit[]} hits */
  function why(h, i, hits) {
    const top = { text: Math.max(...hits.map((x) => x.scores.text), 1e-9), vector: Math.max(...hits.map((x) => x.scores.vector), 1e-9) };
    const part = (/** @type {string} */ label, /** @type {number} */ v, /** @type {number} */ most, /** @type {string} */ cls) => {
      const m = el("span", { class: `meter ${cls}`, "aria-hidden": "true" }, el("i"));
      /** @type {HTMLElement} */ (m.firstChild).style.width = `${Math.max(0, Math.min(1, v / most)) * 100}%`;
      return el("span", { class: "why-part" }, label, m, el("span", { class: "num" }, v ? v.toFixed(v < 10 ? 2 : 1) : "0"));
    };
    return el("p", { class: "why-rank muted" }, el("span", {}, `Rank ${i + 1}, score ${h.score.toFixed(3)}`), part("words (BM25)", h.scores.text, top.text, "ok"), part("meaning (vector)", h.scores.vector, top.vector, "run"));
  }

  void run(query);
  return { update: (/** @type {URLSearchParams} */ p) => void run(p) };
}
