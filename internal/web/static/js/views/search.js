// @ts-check
/** Search: what was found, where it stands on its page, and why it ranks there. */
import { aborted, datasetPath, send } from "../api.js";
import { datasetField, learn, newest } from "../datasets.js";
import { apiCommand, apiPython, commandBox } from "../clipboard.js";
import { button, byId, el, empty, name, trouble } from "../dom.js";
import { expecting } from "../expecting.js";
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

/** What two settings of a search differ in; the second has them in the address with b_ before the name. */
const compared = ["mode", "weight", "threshold", "group", "size"];

/** Where in its document a hit stands, in words. @param {Hit} h */
export function whereOf(h) {
  const unit = unitOf(h.document.media_type), at = [...new Set(h.chunk.pages)].sort((a, b) => a - b), [from, to] = [at[0], at[at.length - 1]];
  if (!unit || !at.length) return "";
  return `, ${to - from === at.length - 1 ? unitsAt(unit, from, to) : `${unit}s ${at.map(number).join(", ")}`}${h.document.media_type === "application/pdf" && h.chunk.metadata?.labels ? ` (${h.chunk.metadata.labels.split("\n").join(", ")})` : ""}`;
}

/** @param {import("../types.js").Context} c */
export async function view({ root, query, signal }) {
  const known = await newest(signal).catch(() => ({ sets: [], many: false }));
  const results = el("section", { "aria-label": "Results" });
  const field = (/** @type {string} */ label, /** @type {HTMLElement} */ input) => el("label", {}, el("span", {}, label), input);
  const q = el("input", { name: "q", type: "search", autocomplete: "off", required: true });
  const { input: ds, proposals } = datasetField(known, { name: "dataset" }, signal);
  const type = el("select", { name: "type" }, el("option", { value: "" }, "All formats"), Object.entries(formats).map(([k, v]) => el("option", { value: k }, v)));
  const modes = (/** @type {string} */ name) => el("select", { name }, el("option", { value: "" }, "Hybrid"), el("option", { value: "text" }, "Words only"), el("option", { value: "vector" }, "Meaning only"));
  const part = (/** @type {string} */ name, /** @type {string} */ hint) => el("input", { name, type: "number", min: 0, max: 1, step: "any", class: "page-number", placeholder: hint });
  const groups = (/** @type {string} */ name) => el("select", { name }, el("option", { value: "" }, "Nothing"), el("option", { value: "document" }, "Document"), el("option", { value: "page" }, "Page"), el("option", { value: "text" }, "Identical text"));
  /** The settings that can be compared, by name. @param {string} prefix of the names */
  const settings = (prefix) => ({ mode: modes(`${prefix}mode`), weight: part(`${prefix}weight`, "auto"), threshold: part(`${prefix}threshold`, "none"), group: groups(`${prefix}group`), size: el("input", { name: `${prefix}size`, type: "number", min: 1, max: 100, class: "page-number", placeholder: "1" }) });
  /** @param {ReturnType<typeof settings>} s */
  const fieldsOf = (s) => [field("Mode", s.mode), field("Weight of meaning", s.weight), field("Min score", s.threshold), field("Group by", s.group), field("Hits per group", s.size)];
  const a = settings(""), b = settings("b_");
  const from = el("input", { name: "from", type: "number", min: 1, class: "page-number" }), to = el("input", { name: "to", type: "number", min: 1, class: "page-number" });
  const language = el("select", { name: "language" }, el("option", { value: "" }, "Every language"), languages.map(([k, v]) => el("option", { value: k }, v)));
  const keyword = el("input", { name: "keyword", autocomplete: "off" }), tag = el("input", { name: "tag", autocomplete: "off" });
  // A disabled fieldset sends nothing, so that the address of one search says nothing of a second.
  const second = el("fieldset", { class: "search-filters second open", disabled: true, hidden: true }, el("legend", {}, "Settings of B"), el("input", { type: "hidden", name: "compare", value: "1" }), fieldsOf(b));
  const doc = el("p", { class: "muted" }), evaluations = el("p", {});
  /** @type {HTMLElement} */
  let filters;
  // In a narrow window the filters would push the hits out of sight.
  const more = button("Filters", () => more.setAttribute("aria-expanded", String(filters.classList.toggle("open"))), { class: "filter-toggle", "aria-expanded": "false" });
  // The second search begins as the first, so that one change shows what it does.
  const toggle = button("Compare with other settings", () => {
    second.disabled = !second.disabled;
    if (!second.disabled) for (const k of /** @type {(keyof typeof a)[]} */ (compared)) b[k].value = a[k].value;
    submit();
  });
  const form = el("form", { class: "search-form", role: "search", "aria-label": "Search with filters", onsubmit: (/** @type {Event} */ e) => {
    e.preventDefault();
    submit();
  } }, el("div", { class: "search-line" }, field("Search for", q), el("button", { class: "primary" }, "Search")),
  more, filters = el("div", { class: "search-filters", id: "search-filters" }, field("Dataset", ds), proposals, field("Format", type), fieldsOf(a), field("From page", from), field("to page", to), field("Language", language), field("Keyword", keyword), field("Tag", tag)), second, el("p", {}, toggle), doc);
  more.setAttribute("aria-controls", filters.id);
  const inputs = [q, ds, type, from, to, language, keyword, tag, ...Object.values(a)];
  for (const s of [ds, type, language, ...Object.values(a), ...Object.values(b)]) s.addEventListener("change", () => q.value && form.reportValidity() && submit());
  // One field to search with is enough.
  const top = byId("search");
  top.hidden = true;
  signal.addEventListener("abort", () => (top.hidden = false));
  const expected = expecting({ sets: known.sets, many: known.many, signal, unit: (h) => unitOf(h.document.media_type),
    address: (question, dataset) => {
      const p = new URLSearchParams(shown);
      p.set("q", question);
      p.set("dataset", dataset);
      return `/search?${p}`;
    },
    ask: async (question, dataset) => {
      /** @type {import("../types.js").SearchAnswer[]} */
      const found = await Promise.all(bodiesOf(shown, question, false).map((body) => send(`${datasetPath(dataset)}/search`, body)));
      return found.map((x) => x.hits);
    } });
  root.replaceChildren(el("div", { class: "head" }, el("h1", { tabindex: "-1" }, "Search")), form, expected.listed, results, evaluations);

  function submit() {
    const p = new URLSearchParams();
    for (const [k, v] of new FormData(form)) if (String(v).trim()) p.set(k, String(v).trim());
    if (shown.get("doc")) p.set("doc", shown.get("doc") || "");
    go(`/search?${p}`);
  }

  const limitOf = (/** @type {URLSearchParams} */ p) => steps.find((n) => n >= Number(p.get("limit"))) || 1000;

  /** What is sent to search: one body, or those of A and B. @param {URLSearchParams} p @param {string} question @param {boolean} highlight */
  function bodiesOf(p, question, highlight) {
    /** @type {Record<string, any>} */
    const filter = {};
    if (p.get("type")) filter.media_types = [p.get("type")];
    if (p.get("doc")) filter.document_ids = [p.get("doc")];
    for (const k of ["language", "keyword", "tag"]) if (p.get(k)) filter[`${k}s`] = [p.get(k)];
    if (Number(p.get("from")) || Number(p.get("to"))) filter.pages = { ...(Number(p.get("from")) ? { from: Number(p.get("from")) } : {}), ...(Number(p.get("to")) ? { to: Number(p.get("to")) } : {}) };
    const given = (/** @type {HTMLInputElement} */ i, /** @type {string} */ key) => (i.value && !i.disabled ? { [key]: Number(i.value) } : {});
    // As the address has it: a list shows nothing for what it does not know, and the API says what is wrong with it.
    const chosen = (/** @type {HTMLSelectElement} */ i, /** @type {string} */ key) => (p.get(i.name) ? { [key]: p.get(i.name) } : {});
    const ask = (/** @type {typeof a} */ s) => ({ query: question, limit: limitOf(p), ...(highlight ? { highlight } : {}), ...chosen(s.mode, "mode"), ...given(s.weight, "vector_weight"), ...given(s.threshold, "threshold"), ...chosen(s.group, "group_by"), ...given(s.size, "group_size"), ...(Object.keys(filter).length ? { filter } : {}) });
    return p.get("compare") ? [ask(a), ask(b)] : [ask(a)];
  }

  /** What the ranks of saved queries depend on. @param {URLSearchParams} p */
  function settingsOf(p) {
    const rest = new URLSearchParams(p);
    for (const k of ["q", "dataset"]) rest.delete(k);
    return String(rest);
  }

  let shown = query;
  let stop = new AbortController();
  /** @param {URLSearchParams} p @param {boolean} [further] the same search, with more of its hits */
  async function run(p, further = false) {
    shown = p;
    for (const i of [...inputs, ...Object.values(b)]) i.value = p.get(i.name) || "";
    // A weight is of two sides, and a size of groups: alone they would be refused.
    for (const s of [a, b]) {
      s.weight.disabled = !!s.mode.value;
      s.size.disabled = !s.group.value;
    }
    const both = !!p.get("compare");
    second.disabled = second.hidden = !both;
    toggle.textContent = both ? "Stop comparing" : "Compare with other settings";
    title(p.get("q") ? `${p.get("q")}, search` : "Search");
    const without = new URLSearchParams(p);
    without.delete("doc");
    evaluations.replaceChildren(...(p.get("dataset") ? [el("a", { href: `/datasets/${encodeURIComponent(p.get("dataset") || "")}/evaluations` }, "Search quality")] : []));
    doc.replaceChildren(...(p.get("doc") ? ["Searching one document. ", el("a", { href: `/search?${without}` }, "Search all")] : []));
    doc.hidden = !p.get("doc");
    const set = inputs.filter((i) => i !== q && i.value && !i.disabled).length;
    more.textContent = set ? `Filters (${set} set)` : "Filters";
    stop.abort();
    stop = new AbortController();
    expected.begin(p.get("q") || "", p.get("dataset") || "", settingsOf(p));
    if (!p.get("q")) {
      results.replaceChildren(empty("Search the text of all documents", el("p", {}, "Type a question or a few words. Each result shows its page with the passage highlighted.")));
      return;
    }
    results.setAttribute("aria-busy", "true");
    const limit = limitOf(p), bodies = bodiesOf(p, p.get("q") || "", true);
    const path = p.get("dataset") ? `${datasetPath(p.get("dataset") || "")}/search` : "/v1/search", had = results.querySelectorAll(".hit").length;
    try {
      /** @type {import("../types.js").SearchAnswer[]} */
      const answers = await Promise.all(bodies.map((body) => send(path, body)));
      // Hits are shown with the ids of their datasets rather than not at all.
      if (known.many) await learn(known.sets, answers.flatMap((x) => x.hits.map((h) => h.document.dataset_id)), signal).catch(() => {});
      if (shown !== p || signal.aborted) return;
      const found = (/** @type {import("../types.js").SearchAnswer} */ x) => (x.hits.length ? `${plural(x.hits.length, "passage")} in ${number(Math.round(x.took_ms))} ms` : "");
      const commands = (/** @type {any} */ body, /** @type {string} */ which) => el("details", { class: "as-command" }, el("summary", {}, `${which} as a command`), commandBox(apiCommand(path, body)), el("p", { class: "muted" }, "In Python, standard library only:"), commandBox(apiPython(path, body), `${which} in Python`));
      const [one, two] = answers;
      results.replaceChildren(
        el("p", { class: "muted", role: "status" }, two ? agreement(one.hits, two.hits) : found(one)),
        ...[...new Set(answers.flatMap((x) => (x.warnings || []).map((w) => w.message)))].map((w) => el("p", { class: "warn" }, w)),
        expected.panel,
        two ? el("div", { class: "two-sides compare" }, answers.map((x, i) => {
          const letter = "AB"[i], other = answers[1 - i].hits;
          return el("section", { "aria-label": `Hits of ${letter}` }, el("h2", {}, letter, " ", el("span", { class: "muted" }, found(x))),
            x.hits.length ? el("ol", { class: "hits" }, x.hits.map((h, n) => hit(h, n, x.hits, move(h, n, other, "BA"[i])))) : empty("No results"), commands(bodies[i], `Search ${letter}`));
        })) : one.hits.length ? el("ol", { class: "hits" }, one.hits.map((h, i) => hit(h, i, one.hits))) : empty("No results", el("p", {}, "Try fewer or different words, or remove a filter. Documents still being processed are not searchable yet.")),
        answers.some((x) => x.hits.length === limit) && limit < 1000 ? el("p", {}, button("Show more", () => {
          const on = new URLSearchParams(p);
          on.set("limit", String(steps.find((n) => n > limit)));
          note({ limit: on.get("limit") || "" });
          void run(on, true);
        })) : "",
        two ? "" : commands(bodies[0], "This search"));
      void expected.show(answers.map((x) => x.hits));
      // Who asked for more goes on where they were.
      if (further) /** @type {HTMLElement|null} */ (results.querySelectorAll(".hit h2 a")[had])?.focus({ preventScroll: true });
    } catch (e) {
      if (!aborted(e)) results.replaceChildren(trouble(e, () => void run(p)));
    } finally {
      results.removeAttribute("aria-busy");
    }
  }

  /** How far two answers agree. @param {Hit[]} one @param {Hit[]} two */
  function agreement(one, two) {
    const ids = new Set(one.map((h) => h.chunk.id)), shared = two.filter((h) => ids.has(h.chunk.id)).length;
    return `${number(shared)} of ${plural(one.length + two.length - shared, "passage")} in both, ${number(one.length - shared)} only in A, ${number(two.length - shared)} only in B`;
  }

  /** Where a hit stands in the other answer. @param {Hit} h @param {number} i @param {Hit[]} other @param {string} letter of the other */
  function move(h, i, other, letter) {
    const there = other.findIndex((x) => x.chunk.id === h.chunk.id), up = there - i;
    const says = there < 0 ? `Not in ${letter}` : up ? `${number(Math.abs(up))} ${up > 0 ? "higher" : "lower"} than in ${letter}` : `Same rank as in ${letter}`;
    return el("span", { class: `badge ${there < 0 ? "off" : up > 0 ? "ok" : up ? "warn" : ""}` }, says);
  }

  /** @param {Hit} h @param {number} i @param {Hit[]} hits @param {HTMLElement} [mark] */
  function hit(h, i, hits, mark) {
    const page = h.chunk.pages[0] || 1;
    const link = `/datasets/${h.document.dataset_id}/documents/${h.document.id}?${new URLSearchParams({ page: String(page), chunk: h.chunk.id })}`;
    const text = h.highlight ? chunkText(h.highlight, h.chunk.kind, marked) : chunkText(h.chunk.text, h.chunk.kind);
    const picture = drawable(h.document.media_type) ? el("a", { href: link, class: "thumb", tabindex: "-1", "aria-hidden": "true" }, pageImage({ ds: h.document.dataset_id, doc: h.document.id, name: h.document.name, page, dpi: 40, lazy: true, signal,
      boxes: h.chunk.boxes.filter((b) => b.page === page).map((box) => ({ box, key: "hit", label: "" })) })) : el("span", { class: "thumb none", "aria-hidden": "true" }, format(h.document.media_type));
    return el("li", { class: "hit" }, picture, el("div", { class: "hit-body" },
      el("h2", {}, el("a", { href: link }, name(h.document.name), el("span", { class: "where" }, whereOf(h)))), mark || null,
      h.chunk.heading_path?.length ? el("p", { class: "path" }, h.chunk.heading_path.map((x, n) => [n ? " › " : "", el("bdi", {}, x)])) : null,
      el("div", { class: "snippet" }, text), labels(h.chunk, h.document.media_type), why(h, i, hits), expected.box(h, whereOf(h))));
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
