// @ts-check
/** The palette: one field that leads to every place, dataset, document and job. */
import { datasetPath, get } from "./api.js";
import { named, newest } from "./datasets.js";
import { button, el, name } from "./dom.js";
import { number } from "./format.js";
import { dataset, go } from "./nav.js";

/** @typedef {{kind: string, text: string, url: string, note?: string}} Entry */

/** Entries of one kind that are shown. */
const most = 7;

/** @type {Entry[]} */
const places = [["Documents", ""], ["Datasets", "/datasets"], ["Jobs", "/jobs"], ["Operations", "/operations"], ["API reference", "/docs"]]
  .map(([text, url]) => ({ kind: "Go to", text, url }));

/** Entries whose text has every word, those that begin with the first before the others. @param {Entry[]} of @param {string} q */
function matching(of, q) {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const fit = of.filter((e) => words.every((w) => e.text.toLowerCase().includes(w)));
  const first = (/** @type {Entry} */ e) => Number(!e.text.toLowerCase().startsWith(words[0] || ""));
  return fit.sort((a, b) => first(a) - first(b)).slice(0, most);
}

export function openPalette() {
  if (document.querySelector("dialog[open]")) return;
  const stop = new AbortController(), { signal } = stop, ds = dataset();
  const input = el("input", { type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-autocomplete": "list", "aria-label": "Go to a dataset, document or job", placeholder: "Go to a dataset, document or job", autocomplete: "off", spellcheck: "false" });
  const list = el("div", { role: "listbox", id: "palette-list", "aria-label": "Destination" }), sum = el("p", { class: "hidden", role: "status" });
  const d = el("dialog", { class: "palette", "aria-label": "Palette", onclose: () => {
    stop.abort();
    d.remove();
  }, onclick: (/** @type {Event} */ e) => {
    if (e.target === d) d.close(); // beside it
  } }, input, list, sum, el("p", { class: "muted palette-keys" }, el("kbd", {}, "↑ ↓"), " choose ", el("kbd", {}, "Enter"), " open ", button("Close", () => d.close(), { class: "link" })));
  /** @type {Entry[]} */
  let entries = [];
  let at = 0, version = 0;
  const first = newest(signal).catch(() => ({ sets: [], many: false }));
  /** @type {Promise<Entry[]>} */
  const jobs = get("/v1/jobs?limit=30", signal).then((x) => x.items.map((/** @type {import("./types.js").Job} */ j) => ({ kind: "Job", text: j.name || j.id, url: `/jobs/${j.id}`, note: j.state.replace(/_/g, " ") })), () => []);

  /** @param {string} q @returns {Promise<Entry[]>} */
  async function datasets(q) {
    const known = await first, found = q && known.many ? await named(q, most, signal).catch(() => known.sets) : known.sets;
    return found.map((s) => ({ kind: "Dataset", text: s.name, url: `/datasets/${encodeURIComponent(s.name)}`, note: number(s.documents) }));
  }

  /** @param {string} q @returns {Promise<Entry[]>} */
  async function documents(q) {
    if (!q) return [];
    const p = new URLSearchParams({ q, limit: String(most), fields: "id,name,state" });
    const found = await get(`${datasetPath(ds)}/documents?${p}`, signal).catch(() => ({ items: [] }));
    return found.items.map((/** @type {{id: string, name: string, state: string}} */ x) => ({ kind: `Document in ${ds}`, text: x.name, url: `/datasets/${encodeURIComponent(ds)}/documents/${x.id}`, note: x.state.replace(/_/g, " ") }));
  }

  async function show() {
    const mine = ++version, q = input.value.trim();
    const here = places.map((e) => (e.url ? e : { ...e, url: `/datasets/${encodeURIComponent(ds)}` }));
    const [some, work, docs] = await Promise.all([datasets(q), jobs, documents(q)]);
    if (mine !== version || signal.aborted) return;
    entries = [...matching(here, q), ...matching(some, q), ...docs, ...(q ? matching(work, q) : []),
      ...(q ? [{ kind: "Search", text: `Search the text for “${q}”`, url: `/search?${new URLSearchParams({ q, dataset: ds })}` }] : [])];
    at = 0;
    list.replaceChildren(...entries.map((e, i) => el("div", { role: "option", id: `palette-${i}`, "aria-selected": "false", onclick: () => choose(i), onmousemove: () => i !== at && mark(i) },
      el("span", { class: "muted" }, e.kind), name(e.text), e.note ? el("span", { class: "muted num" }, e.note) : null)));
    sum.textContent = `${number(entries.length)} places`;
    mark(0);
  }
  /** @param {number} i */
  function mark(i) {
    at = (i + entries.length) % (entries.length || 1);
    [...list.children].forEach((e, n) => e.setAttribute("aria-selected", String(n === at)));
    input.setAttribute("aria-activedescendant", `palette-${at}`);
    list.children[at]?.scrollIntoView({ block: "nearest" });
  }
  /** @param {number} i */
  function choose(i) {
    const e = entries[i];
    if (!e) return;
    d.close();
    if (e.url === "/docs") location.assign(e.url);
    else go(e.url);
  }
  let typing = 0;
  input.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      typing = 0;
      void show();
    }, 120);
  });
  input.addEventListener("keydown", (e) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (step) mark(at + step);
    else if (e.key === "Enter" && !e.isComposing) {
      // What was typed last may not be looked up yet.
      const due = typing;
      clearTimeout(typing);
      typing = 0;
      void (due ? show() : Promise.resolve()).then(() => choose(at));
    } else return;
    e.preventDefault();
  });
  document.body.append(d);
  d.showModal();
  input.focus();
  void show();
}
