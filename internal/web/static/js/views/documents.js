// @ts-check
/** A dataset: its documents in a table that stays smooth at ten thousand rows. */
import { aborted, datasetPath, documentPath, download, get, key, lags } from "../api.js";
import { cancelDocuments, reparseDialog, retryDocuments, tagDocuments } from "../actions.js";
import { causeOf } from "../causes.js";
import { announce, button, draw, el, empty, menu, name, trouble } from "../dom.js";
import { facetColumn, facetKeys, narrowed, parameters, selection, stateGroups, statesOf } from "../facets.js";
import { bytes, eta, format, number, percent, plural, time as date } from "../format.js";
import { ours } from "../keys.js";
import { follow, kinds, pacer } from "../live.js";
import { issueBox } from "../issues.js";
import { deleteLater, isLeaving, onLeaving } from "../later.js";
import { current, note, title } from "../nav.js";
import { overview } from "../overview.js";
import { datasetTabs } from "../datasetparts.js";
import { badge, bar, doneText, failureLine, strip, terminal, waiting } from "../parts.js";
import { chooser, onUploaded } from "../upload.js";
import { keepWalk } from "../walk.js";

/** @typedef {import("../types.js").Doc} Doc */
/** @typedef {import("../types.js").Task} Task */

/** Columns: key in the address, title, how to compare, class. @type {[string, string, ((a: Doc, b: Doc) => number)|null, string][]} */
const columns = [
  ["name", "Name", (a, b) => collator.compare(a.name, b.name), "c-name"],
  ["state", "State", (a, b) => a.state.localeCompare(b.state), "c-state"],
  ["units", "Length", (a, b) => a.units - b.units, "c-units num"],
  ["chunks", "Chunks", (a, b) => a.chunks - b.chunks, "c-chunks num"],
  ["size", "Size", (a, b) => a.size - b.size, "c-size num"],
  ["added", "Added", null, "c-added"],
];
const collator = new Intl.Collator(undefined, { numeric: true }); // made once: it costs more than ten thousand comparisons

/** What the list shows of a document; the rest of it stays on the server. */
const fields = "id,name,media_type,size,state,progress,units,unit,generation,live_generation,chunks,ledger,failure,parser_config,attributes,not_before,created_at";

/** Kinds of events that change nothing of a row. */
const unseen = ["claimed", "message", "output"];

const firstPage = 40, nextPage = 1000, overscan = 8;

/** Rows that are read from the end of the list when the reader jumps there, and the gap from which on that is a jump. */
const lastPage = 200, jump = 1000;

/** Characters of scripts that run from right to left, and marks of direction. */
const rightToLeft = /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufeff]/;

/**
 * A name that is cut in its middle where there is no room: its end tells one
 * version from another, and the format. One that runs from right to left stays whole:
 * its parts would change places.
 * @param {string} text
 */
function cut(text) {
  const runes = [...text], end = runes.length > 14 && !rightToLeft.test(text) ? Math.min(14, runes.length >> 1) : 0;
  return (end ? [runes.slice(0, -end), runes.slice(-end)] : [runes]).map((part) => el("bdi", {}, part.join("")));
}

/** How a list was left, for who comes back to it. @type {{url: string, top: number, page: number, selected: string[], whole: boolean, focus: string}|undefined} */
let left;

/** @param {import("../types.js").Context} c */
export async function view({ root, params, query, signal }) {
  const base = datasetPath(params.ds);
  /** @type {import("../facets.js").Asked} */
  const asked = { q: "", state: [], type: [], issue: [], warning: [], job: [], language: [], tag: [], sort: "added", desc: true };
  const read = (/** @type {URLSearchParams} */ q) => {
    asked.q = q.get("q") || "";
    for (const k of facetKeys) asked[k] = q.getAll(k).filter((v) => v && (k !== "state" || stateGroups[v]));
    const sort = q.get("sort") || "-added";
    asked.desc = sort.startsWith("-");
    asked.sort = sort.replace(/^-/, "");
    if (!columns.some(([k]) => k === asked.sort)) Object.assign(asked, { sort: "added", desc: true });
  };
  read(query);
  // All are asked at once: what is seen first waits for one answer's time, not for three.
  /** @type {Promise<any>|null} */
  let early = get(listing("", firstPage), signal);
  early.catch(() => {}); // it is told where it is waited for
  /** @type {Promise<any>|null} */
  let earlyFacets = get(`${base}/documents/facets?${parameters(asked, new URLSearchParams())}`, signal);
  earlyFacets.catch(() => {});
  /** @type {import("../types.js").Dataset} */
  let ds = await get(base, signal);
  title(ds.name);

  // ---- what is known ----
  /** @type {Doc[]} as shown */
  let docs = [];
  /** @type {string|null} */
  let cursor = "";
  /** @type {Promise<void>|null} */
  let loading = null;
  let version = 0; // of the listing: answers to older questions are dropped
  /** @type {HTMLElement|null} why there is no listing */
  let failed = null;
  /** @type {Set<string>} */
  const selected = new Set();
  let whole = false; // all that the filter selects is chosen, known or not
  /** Rows at the end of a list whose middle has not been read. @type {Doc[]} */
  let tail = [];
  /** @type {import("../types.js").Facets|null} of what is asked */
  let facets = null;
  /** The same of the whole dataset. @type {import("../types.js").Facets|null} */
  let allFacets = null;
  /** @type {Map<string, {at: string, tasks: Task[]}>} */
  const strips = new Map();

  // ---- the frame ----
  const filter = el("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter by name", value: asked.q, autocomplete: "off" });
  const column = facetColumn({ ask, views: `sheaf-views:${ds.id}` });
  const sums = overview();
  const issues = issueBox({ ds: params.ds, show: (codes) => ask({ ...nothing(), issue: codes, state: ["failed", "partial"] }), done: () => void changedHere() });
  const active = el("div", { class: "active-jobs" });
  const actions = el("div", { class: "batch", role: "group", "aria-label": "Selected documents", hidden: true });
  const heads = columns.map(([k, label, , cls]) => el("th", { scope: "col", class: cls, role: "columnheader" }, el("button", { type: "button", "data-sort": k, onclick: () => ask({ sort: k, desc: asked.sort === k ? !asked.desc : k === "added" }) }, label)));
  const everything = el("input", { type: "checkbox", "aria-label": "Select all" });
  const above = el("tr", { class: "gap", "aria-hidden": "true" }, el("td")), below = el("tr", { class: "gap", "aria-hidden": "true" }, el("td"));
  const body = el("tbody", {}, above, below);
  const table = el("table", { class: "docs", "aria-label": "Documents" }, el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "c-check" }, everything), heads)), body);
  const scroller = el("div", { class: "scroller", tabindex: "-1" }, table);
  const none = el("div");
  const sum = el("p", { class: "muted sum" });
  const where = () => params.ds;
  const zone = el("div", { class: "zone", id: "add-zone", hidden: true });
  const adds = button("Upload options", async () => {
    zone.hidden = !zone.hidden;
    adds.setAttribute("aria-expanded", String(!zone.hidden));
    if (!zone.hidden && !zone.firstChild) zone.append((await import("../firstrun.js")).dropzone(params.ds));
  }, { "aria-expanded": "false", "aria-controls": "add-zone" });
  // What the filters select is exported, as they are when the list is opened.
  const files = /** @type {const} */ ([["jsonl", "JSON Lines, one chunk per line", "jsonl"], ["parquet", "Parquet, one chunk per row", "parquet"], ["markdown", "Markdown, one file per document", "zip"]]), of = el("p", { class: "muted" }), said = el("p", { class: "muted", role: "status" });
  const links = files.map(([format, label, ending]) => el("a", { download: "", onclick: (/** @type {Event} */ e) => {
    if (!key()) return; // the browser writes it to disk as it comes
    e.preventDefault();
    said.textContent = "Exporting …";
    download(links[files.findIndex(([f]) => f === format)].href, `${ds.name}.${ending}`).then(() => (said.textContent = ""), (x) => (said.textContent = x.message));
  } }, label));
  const exports = menu("Export", of, links, said);
  exports.addEventListener("toggle", () => {
    of.textContent = narrowed(asked) ? "Filtered documents" : "All documents";
    said.textContent = "";
    for (const [i, [format]] of files.entries()) links[i].href = `${base}/export?${parameters(asked, new URLSearchParams({ format }))}`;
  });
  const preview = button("Preview", () => void peekAt(!peeking), { class: "peek-toggle", "aria-pressed": "false", title: "p" });
  const list = el("div", { class: "list" }, el("div", { class: "filters" }, filter, el("span", { class: "found muted num", role: "status" }), preview), actions, scroller, none);
  const found = /** @type {HTMLElement} */ (list.querySelector(".found"));
  const beside = el("div", { class: "dataset" }, el("a", { class: "skip", href: "#documents", onclick: (/** @type {Event} */ e) => {
    e.preventDefault();
    void focusRow(0, false);
  } }, "Skip to the documents"), column.root, list);
  const first = el("div");
  root.replaceChildren(
    el("div", { class: "head" }, el("div", {}, el("p", { class: "crumbs" }, el("a", { href: "/datasets" }, "Datasets"), " / "), el("h1", { tabindex: "-1" }, name(ds.name))), sum,
      el("div", { class: "tools" }, exports, adds, chooser("Add a folder", where, true), chooser("Add files", where))),
    datasetTabs(params.ds, ds.name, ""), zone, sums.root, active, issues.box, first, beside);

  const nothing = () => ({ q: "", ...Object.fromEntries(facetKeys.map((k) => [k, /** @type {string[]} */ ([])])) });

  /** A new question to the server or a new order. @param {Partial<typeof asked>} change */
  function ask(change) {
    Object.assign(asked, change);
    selected.clear();
    whole = false;
    note({ q: asked.q, ...Object.fromEntries(facetKeys.map((k) => [k, asked[k]])), sort: asked.sort === "added" && asked.desc ? "" : (asked.desc ? "-" : "") + asked.sort });
    void reload();
  }
  let typing = 0;
  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => ask({ q: filter.value.trim() }), 200);
  });

  // ---- reading ----
  /** @param {string|null} at @param {number} limit @param {boolean} [fromEnd] the list from its other end */
  function listing(at, limit, fromEnd = false) {
    const p = parameters(asked, new URLSearchParams({ limit: String(limit), fields }));
    if (at) p.set("cursor", at);
    if ((asked.sort === "added" && !asked.desc) !== fromEnd) p.set("order", "oldest");
    return `${base}/documents?${p}`;
  }

  async function reload() {
    const mine = ++version;
    loading = null;
    failed = null;
    showFilters();
    try {
      const counted = readFacets(mine);
      const page = await (early || get(listing("", firstPage), signal));
      early = null;
      if (mine !== version) return;
      docs = page.items;
      tail = [];
      cursor = page.next_cursor;
      scroller.scrollTop = 0;
      if (asked.sort !== "added") await sorted();
      render();
      void refreshDataset();
      await counted;
      if (mine === version) announce(facets ? plural(facets.documents, "document") : `${cursor ? "Many" : number(docs.length)} documents`);
    } catch (e) {
      if (aborted(e) || mine !== version) return;
      // What stood there answers another question.
      docs = [];
      tail = [];
      cursor = null;
      failed = trouble(e, () => void reload());
      render();
    }
  }

  /** Counts what is asked for, and what the whole dataset holds. @param {number} mine */
  async function readFacets(mine) {
    try {
      const counted = (earlyFacets || get(`${base}/documents/facets?${parameters(asked, new URLSearchParams())}`, signal)), plain = !narrowed(asked);
      earlyFacets = null;
      const [some, every] = await Promise.all([counted, plain ? counted : get(`${base}/documents/facets`, signal)]);
      if (mine !== version) return;
      facets = some;
      allFacets = every;
      if (lags(some, every)) later();
      column.update(some, asked);
      showSums();
      total = some.documents;
      render();
    } catch (e) {
      if (!aborted(e)) facets = null; // the rows say what there is
    }
  }

  /** @type {{p50?: number|null, p90?: number|null}} of the jobs at work */
  let time = {};
  function showSums() {
    if (!allFacets) return;
    sums.update(allFacets, time, ds.paused);
    issues.update(allFacets.failure_code);
    beside.hidden = !allFacets.documents && !docs.length && !narrowed(asked) && !failed;
    void guide();
  }

  // ---- the first run ----
  /** @type {{root: HTMLElement, update: (docs: Doc[]) => void}|null|undefined} null: it is over */
  let guided;
  async function guide() {
    if (guided === undefined) {
      if (allFacets?.documents) return void (guided = null);
      guided = null; // once
      const { firstRun } = await import("../firstrun.js");
      if (signal.aborted) return;
      guided = firstRun({ ds: params.ds, signal, close: () => {
        guided = null;
        first.replaceChildren();
        filter.focus();
      } });
      first.replaceChildren(guided.root);
    }
    guided?.update(docs);
  }

  /** Something was begun here: the list shows what became of it. */
  async function changedHere() {
    selected.clear();
    whole = false;
    await reload();
  }

  /** Reads on, so that the table knows its first `upTo` rows. @param {number} upTo @returns {Promise<void>} */
  async function more(upTo) {
    if (loading) {
      await loading;
      return cursor && docs.length < upTo ? more(upTo) : undefined;
    }
    const mine = version;
    loading = (async () => {
      while (cursor && docs.length < upTo) {
        const from = cursor, page = await get(listing(from, nextPage), signal);
        if (mine !== version) return;
        if (cursor !== from) continue; // the list began anew
        const known = new Set(docs.map((d) => d.id));
        docs.push(...page.items.filter((/** @type {Doc} */ d) => !known.has(d.id)));
        cursor = page.next_cursor;
      }
    })();
    try {
      await loading;
    } finally {
      if (mine === version) loading = null;
    }
    render();
  }

  /** Orders by a column; that needs every row. */
  async function sorted() {
    await readAll();
    docs = inOrder(docs);
  }

  /** Reads the list whole, from both of its ends at once. */
  async function readAll() {
    if (!cursor || loading) return more(Infinity);
    const mine = version, known = new Set(docs.map((d) => d.id));
    /** @type {Doc[]} */
    const back = [];
    let met = false;
    /** @param {string|null} at @param {boolean} fromEnd @param {Doc[]} into */
    const readOn = async (at, fromEnd, into) => {
      while (at !== null && !met) {
        const page = await get(listing(at, nextPage, fromEnd), signal);
        if (mine !== version) return;
        const fresh = page.items.filter((/** @type {Doc} */ d) => !known.has(d.id));
        for (const d of fresh) {
          known.add(d.id);
          into.push(d);
        }
        met ||= fresh.length < page.items.length;
        at = page.next_cursor;
      }
      met = true; // one of them has read it all
    };
    loading = Promise.all([readOn(cursor, false, docs), readOn("", true, back)]).then(() => {
      if (mine !== version) return;
      docs.push(...back.reverse());
      cursor = null;
    });
    try {
      await loading;
    } finally {
      if (mine === version) loading = null;
    }
    render();
  }

  /** @param {Doc[]} of */
  function inOrder(of) {
    const compare = columns.find(([k]) => k === asked.sort)?.[2], sign = asked.desc ? -1 : 1;
    return compare ? [...of].sort((a, b) => sign * compare(a, b) || (a.id < b.id ? 1 : -1)) : of;
  }

  const sumsEvery = 3000; // milliseconds between two readings of the dataset's sums, for which the server counts all of its rows
  let summed = 0;
  async function refreshDataset() {
    summed = Date.now();
    try {
      ds = await get(base, signal);
    } catch {
      return; // the sums stay as they are until the next change
    }
    sum.textContent = ds.documents ? `${plural(ds.documents, "document")}, ${plural(ds.chunks, "chunk")}${ds.paused ? ", paused" : ""}` : "";
    if (!facets && !narrowed(asked)) total = ds.documents;
    showSums();
  }
  let total = narrowed(asked) ? 0 : ds.documents;

  /** The document of a row, if it is known. @param {number} i @returns {Doc|undefined} */
  const at = (i) => docs[i] || (tail.length && i >= docs.length ? tail[i - (count() - tail.length)] : undefined);

  /** How many rows there are. */
  const count = () => (failed ? 0 : Math.max(docs.length + (cursor ? 1 : 0), cursor ? total : 0));

  let ending = false;
  /** Reads the end of the list, which the reader has jumped to. */
  async function readEnd() {
    if (ending || tail.length) return;
    ending = true;
    const mine = version;
    try {
      const page = await get(listing("", lastPage, true), signal);
      if (mine === version) tail = page.items.reverse();
    } finally {
      ending = false;
    }
    render();
  }

  // ---- drawing ----
  const rowHeight = () => (matchMedia("(max-width: 720px)").matches ? 84 : 44);
  /** @type {Map<string, {d: Doc|undefined, at: number, row: HTMLTableRowElement}>} */
  let rows = new Map();

  function showFilters() {
    if (document.activeElement !== filter) filter.value = asked.q;
    if (facets) column.update(facets, asked);
    heads.forEach((h, i) => {
      const on = columns[i][0] === asked.sort;
      if (on) h.setAttribute("aria-sort", asked.desc ? "descending" : "ascending");
      else h.removeAttribute("aria-sort");
    });
  }

  let frame = 0;
  const render = () => {
    if (!frame && !signal.aborted) frame = requestAnimationFrame(now);
  };
  function now() {
    frame = 0;
    const h = rowHeight();
    const rowsThere = count();
    scroller.hidden = rowsThere === 0; // what is hidden has no height
    // What is measured is read before anything else is written: the browser need not lay out twice.
    const top = scroller.scrollTop, height = scroller.clientHeight, head = table.tHead?.offsetHeight || 0;
    const matches = rowsThere && narrowed(asked) && facets ? `${plural(facets.documents, "document")} of ${number(allFacets?.documents || facets.documents)}` : "";
    if (found.textContent !== matches) found.textContent = matches;
    if (failed) {
      if (none.firstChild !== failed) none.replaceChildren(failed);
    } else draw(none, rowsThere || !narrowed(asked) ? null : empty("No documents match the filters", el("p", {}, "Remove a filter, or search the text of the documents at the top."), button("Show all", () => { filter.value = ""; ask(nothing()); })));
    const from = Math.max(0, Math.floor(top / h) - overscan), to = Math.min(rowsThere, Math.ceil((top + height) / h) + overscan);
    if (to > docs.length && cursor) {
      const missing = (/** @type {unknown} */ e) => !aborted(e) && none.replaceChildren(trouble(e, render));
      if (asked.sort === "added" && from > docs.length + jump && rowsThere - from <= lastPage) void readEnd().catch(missing);
      else if (!at(Math.max(from, docs.length)) || !at(to - 1)) void more(to).catch(missing);
    }
    above.style.height = `${from * h}px`;
    below.style.height = `${Math.max(0, rowsThere - Math.max(to, from)) * h}px`;
    table.setAttribute("aria-rowcount", String(rowsThere + 1));
    scroller.style.setProperty("--rows", `${rowsThere * h + head + 2}px`); // no higher than they need
    /** @type {typeof rows} */
    const next = new Map();
    let place = /** @type {Element} */ (above);
    const focus = /** @type {HTMLElement|null} */ (document.activeElement);
    for (let i = from; i < to; i++) {
      const d = at(i);
      const key = d ? d.id : `#${i}`;
      const old = rows.get(key);
      let row = old?.row;
      if (!row) row = blank();
      if (!old || old.d !== d) fill(row, d, i);
      if (old?.at !== i) {
        row.setAttribute("aria-rowindex", String(i + 2));
        row.classList.toggle("odd", i % 2 === 1);
      }
      if (d) {
        /** @type {HTMLInputElement} */ (row.querySelector("input")).checked = whole || selected.has(d.id);
        row.classList.toggle("leaving", isLeaving(params.ds, d));
      }
      next.set(key, { d, at: i, row });
      if (place.nextElementSibling !== row) place.after(row);
      place = row;
    }
    for (const [k, r] of rows) if (next.get(k)?.row !== r.row) r.row.remove();
    rows = next;
    if (focus && !focus.isConnected) scroller.focus({ preventScroll: true });
    showActions();
    fetchStrips();
    if (changed()) soon();
  }

  const blank = () => el("tr", {}, el("td", { class: "c-check" }, el("input", { type: "checkbox" })), columns.map(([, , , cls]) => el("td", { class: cls })));

  /** @param {HTMLTableRowElement} row @param {Doc|undefined} d @param {number} i */
  function fill(row, d, i) {
    const [check, cName, cState, cUnits, cChunks, cSize, cAdded] = row.cells;
    const box = /** @type {HTMLInputElement} */ (check.firstChild);
    row.classList.toggle("missing", !d);
    if (!d) return cName.replaceChildren("…");
    row.dataset.id = d.id;
    box.setAttribute("aria-label", `Select ${d.name.slice(0, 200)}`);
    box.dataset.at = String(i);
    const link = `/datasets/${encodeURIComponent(params.ds)}/documents/${d.id}`;
    const old = cName.querySelector("a"), tag = d.attributes?.["sheaf.tag"];
    if (old?.getAttribute("href") !== link || old.textContent !== d.name || (cName.querySelector(".tag")?.textContent || "") !== (tag || "")) cName.replaceChildren(el("a", { href: link, title: d.name, class: "cut" }, cut(d.name)), el("span", { class: "kind" }, format(d.media_type)), typeof tag === "string" && tag ? el("span", { class: "tag" }, name(tag)) : "");
    drawState(cState, d);
    draw(cUnits, d.units ? plural(d.units, d.unit || "unit") : "–");
    draw(cChunks, d.live_generation ? number(d.chunks) : "–");
    draw(cSize, bytes(d.size));
    draw(cAdded, date(d.created_at));
  }

  /** @param {Element} cell @param {Doc} d */
  function drawState(cell, d) {
    const s = strips.get(d.id), over = terminal(d.state), f = d.failure;
    // What went well needs no more than its badge.
    const more = !over && s ? strip(s.tasks, 24) : d.state === "running" && d.units ? bar(d.progress, `Progress of ${d.name.slice(0, 100)}`)
      : d.state === "running" ? el("span", { class: "muted" }, "counting pages") : f && over ? el("span", { class: d.state === "failed" ? "why" : "muted", title: failureLine(f) }, d.ledger.failed ? doneText(d) : causeOf(f).short) : el("span", { class: "muted num" }, doneText(d));
    draw(cell, badge(d.state, d.not_before), more, !over && d.progress > 0 ? el("span", { class: "muted num" }, doneText(d)) : null);
  }

  /** Ranges of the unfinished documents on show. */
  let asking = 0;
  function fetchStrips() {
    for (const { d } of rows.values()) {
      if (!d || terminal(d.state) || !d.units || asking >= 4) continue;
      const at = `${d.generation} ${d.state} ${d.progress}`;
      if (strips.get(d.id)?.at === at) continue;
      asking++;
      get(`${documentPath(params.ds, d.id)}/tasks`, signal).then((a) => {
        strips.set(d.id, { at, tasks: a.items });
        const row = rows.get(d.id)?.row;
        if (row) drawState(row.cells[2], d);
      }, () => {}).finally(() => {
        asking--;
      });
    }
  }

  // ---- selection ----
  let anchor = -1;
  body.addEventListener("click", (e) => {
    const box = e.target;
    if (!(box instanceof HTMLInputElement)) return;
    const row = box.closest("tr"), here = [...rows.values()].find((r) => r.row === row)?.at ?? -1;
    if (here < 0 || !at(here)) return;
    const on = box.checked; // drawn anew it is another
    const pick = () => {
      const [a, b] = e.shiftKey && anchor >= 0 ? [Math.min(anchor, here), Math.max(anchor, here)] : [here, here];
      for (let i = a; i <= b; i++) {
        const id = at(i)?.id;
        if (id) on ? selected.add(id) : selected.delete(id);
      }
      anchor = here;
      now();
    };
    if (!whole) return pick();
    // All but some: now each must be known, whatever the list begins anew with meanwhile.
    const all = async () => {
      while (whole && cursor) await more(Infinity);
      if (!whole) return; // something else was asked for meanwhile
      whole = false;
      for (const d of docs) selected.add(d.id);
      pick();
    };
    void all().catch((e) => {
      if (aborted(e)) return;
      now(); // all are still selected
      announce(`All documents are still selected: ${e.message}`);
    });
  });
  everything.addEventListener("click", () => {
    selected.clear();
    whole = everything.checked;
    if (whole) announce(`${plural(chosenCount(), "document")} selected`);
    now();
  });
  scroller.addEventListener("keydown", (e) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[e.key];
    const row = e.target instanceof Element && e.target.closest("tbody tr");
    if (e.key === "Escape" && (selected.size || whole)) {
      selected.clear();
      whole = false;
      return now();
    }
    if (!step || !row || e.shiftKey || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    const here = [...rows.values()].find((r) => r.row === row)?.at ?? 0;
    const onBox = e.target instanceof HTMLInputElement;
    void focusRow(Math.min(Math.max(here + step, 0), count() - 1), onBox);
  });

  document.addEventListener("keydown", (e) => {
    const row = e.target instanceof Element && e.target.closest("tbody tr[data-id]");
    const step = { j: 1, k: -1 }[e.key];
    if (!ours(e) || e.shiftKey || !docs.length || !step && e.key !== "p" && !(e.key === "x" && row)) return;
    e.preventDefault();
    if (e.key === "p") return void peekAt(!peeking);
    const here = [...rows.values()].find((r) => r.row === row)?.at;
    if (step) void focusRow(here === undefined ? 0 : Math.min(Math.max(here + step, 0), count() - 1), false);
    else if (row) row.querySelector("input")?.click();
  }, { signal });

  /** @param {number} i @param {boolean} onBox */
  async function focusRow(i, onBox) {
    const h = rowHeight(), head = table.tHead?.offsetHeight || 0;
    if (!at(i) && asked.sort === "added" && i > docs.length + jump && count() - i <= lastPage) await readEnd();
    if (!at(i)) await more(i + 1);
    i = Math.min(i, count() - 1);
    const top = i * h;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + h + head > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = top + h + head - scroller.clientHeight;
    now();
    const row = rows.get(at(i)?.id || "")?.row;
    /** @type {HTMLElement|null|undefined} */ (row?.querySelector(onBox ? "input" : "a"))?.focus({ preventScroll: true });
  }

  // ---- the preview ----
  let peeking = false;
  /** @type {{root: HTMLElement, show: (d: Doc) => void}|undefined} */
  let look;
  /** @param {boolean} on */
  async function peekAt(on) {
    peeking = on;
    preview.setAttribute("aria-pressed", String(on));
    if (on && !look) {
      look = (await import("../peek.js")).peek(params.ds, signal);
      beside.append(look.root);
    }
    if (look) look.root.hidden = !peeking;
    beside.classList.toggle("peeking", peeking);
    const row = document.activeElement?.closest("tr");
    const d = at([...rows.values()].find((r) => r.row === row)?.at ?? 0);
    if (peeking && d) look?.show(d);
    render();
  }
  body.addEventListener("focusin", (e) => {
    const row = /** @type {Element} */ (e.target).closest("tr"), d = at([...rows.values()].find((r) => r.row === row)?.at ?? -1);
    if (peeking && d) look?.show(d);
  });
  body.addEventListener("click", (e) => {
    const row = /** @type {Element} */ (e.target).closest("tr[data-id]");
    if (peeking && row && !/** @type {Element} */ (e.target).closest("a,input")) /** @type {HTMLElement|null} */ (row.querySelector("a"))?.focus({ preventScroll: true });
  });

  const chosenCount = () => (whole ? facets?.documents ?? Math.max(total, docs.length) : selected.size);

  /** What actions are for. @returns {import("../actions.js").Chosen} */
  function chosen() {
    if (whole && cursor) return { count: chosenCount(), body: selection(asked), docs: docs.slice(0, 5), has: () => true };
    const known = [...docs, ...tail], picked = whole ? docs : known.filter((d, i) => selected.has(d.id) && known.findIndex((x) => x.id === d.id) === i), ids = new Set(picked.map((d) => d.id));
    return { count: picked.length, docs: picked, body: { filter: { document_ids: [...ids] } }, has: (d) => ids.has(d.id) };
  }

  /** Those of what is chosen that an action is for. @param {(state: string) => boolean} fits @returns {import("../actions.js").Chosen} */
  function fitting(fits) {
    const c = chosen();
    if (c.body.filter?.document_ids) {
      const docs = (c.docs || []).filter((d) => fits(d.state));
      return { ...c, count: docs.length, docs, body: { filter: { document_ids: docs.map((d) => d.id) } } };
    }
    const states = (facets?.state || []).filter((s) => fits(s.value) && (!asked.state.length || statesOf(asked.state).includes(s.value)));
    return { ...c, docs: [], count: states.reduce((n, s) => n + s.documents, 0), body: { filter: { ...c.body.filter, state: states.map((s) => s.value) } } };
  }
  const failedOnes = (/** @type {string} */ s) => ["failed", "partially_succeeded", "canceled"].includes(s), openOnes = (/** @type {string} */ s) => !terminal(s);

  let shownActions = "";
  function showActions() {
    const n = chosenCount();
    everything.checked = whole || selected.size > 0 && docs.length > 0 && selected.size >= Math.max(docs.length, count());
    everything.indeterminate = selected.size > 0 && !everything.checked;
    const some = whole || selected.size > 0;
    const canRetry = some ? fitting(failedOnes).count : 0, canCancel = some ? fitting(openOnes).count : 0;
    const state = `${n} ${some} ${canRetry} ${canCancel}`;
    if (state === shownActions) return;
    shownActions = state;
    actions.hidden = !some;
    const after = async (/** @type {Promise<boolean>} */ done) => {
      if (await done) await changedHere();
    };
    draw(actions, el("strong", { role: "status" }, `${plural(n, "document")} selected`),
      button("Reprocess…", () => void after(reparseDialog(params.ds, chosen()))),
      button(`Retry ${number(canRetry)} failed…`, () => void after(retryDocuments(params.ds, fitting(failedOnes))), { disabled: !canRetry }),
      button(`Cancel ${number(canCancel)}…`, () => void after(cancelDocuments(params.ds, fitting(openOnes))), { disabled: !canCancel }),
      button("Tag…", () => void after(tagDocuments(params.ds, chosen(), (facets?.tag || []).map((t) => t.value)))),
      button("Delete…", () => void deleteLater(params.ds, chosen(), () => void changedHere()).then((asked) => asked && (selected.clear(), whole = false, now())), { class: "danger" }),
      button("Clear selection", () => { selected.clear(); whole = false; now(); }, { class: "link" }));
  }

  // ---- live ----
  /** Where documents stand in the list. @type {{of: Doc[], length: number, places: Map<string, number>}} */
  let index = { of: [], length: 0, places: new Map() };
  /** The place of a document in the list, -1 if it is not there: found without looking at all, for each of many events. @param {string} id */
  function placeOf(id) {
    if (index.of !== docs || index.length !== docs.length) index = { of: docs, length: docs.length, places: new Map(docs.map((d, i) => [d.id, i])) };
    return index.places.get(id) ?? -1;
  }
  /** Documents that changed and are read again. @type {Set<string>} */
  const dirty = new Set();
  let fresh = false; // documents that are not in the list yet
  let tick = 0;
  const pace = pacer();
  const soon = () => {
    if (!tick) tick = setTimeout(catchUp, pace.wait(400));
  };
  let late = 0;
  /** What was read may lack the last changes: it is read again when there may be newer. */
  const later = () => {
    if (!late) late = setTimeout(() => {
      late = 0;
      if (!signal.aborted) soon();
    }, 3000);
  };
  const changed = () => [...rows.keys()].some((id) => dirty.has(id));
  async function catchUp() {
    try {
      const visible = [...rows.values()].flatMap((r) => (r.d && dirty.has(r.d.id) ? [r.d.id] : [])).slice(0, 100);
      for (const id of visible) dirty.delete(id); // those out of sight are read when they come into it
      pace.spend(3 + Number(visible.length > 0) + Number(fresh));
      if (visible.length) await again(visible);
      if (fresh) {
        fresh = false;
        const mine = version;
        const page = await get(listing("", 100), signal);
        if (mine === version) merge(page);
      }
      const due = Date.now() - summed >= sumsEvery;
      if (!due) later();
      await Promise.all([showActive(), due && refreshDataset(), readFacets(version)]);
      render();
    } catch (e) {
      if (aborted(e)) return;
    } finally {
      tick = 0;
      if (fresh || changed()) soon();
    }
  }

  /** Reads documents again, in one request. Those that are gone leave the table. @param {string[]} ids */
  async function again(ids) {
    const p = new URLSearchParams({ limit: String(ids.length), fields });
    for (const id of ids) p.append("id", id);
    const found = new Map((await get(`${base}/documents?${p}`, signal)).items.map((/** @type {Doc} */ d) => [d.id, d]));
    const gone = new Set(ids.filter((id) => !found.has(id)));
    docs = docs.filter((d) => !gone.has(d.id)).map((d) => found.get(d.id) || d);
    tail = tail.filter((d) => !gone.has(d.id)).map((d) => found.get(d.id) || d);
    for (const id of gone) selected.delete(id);
  }

  /**
   * Puts the documents that were added last in their places.
   * @param {{items: Doc[], next_cursor: string|null}} page the first of the listing, in its order
   */
  function merge(page) {
    const known = new Set(docs.map((d) => d.id)), there = new Map(page.items.map((d) => [d.id, d]));
    const last = page.items.at(-1);
    if (asked.sort === "added" && asked.desc) {
      const behind = last && page.next_cursor ? docs.filter((d) => d.id < last.id && !there.has(d.id)) : [];
      const meets = page.items.some((d) => known.has(d.id));
      docs = meets ? [...page.items, ...behind] : page.items;
      if (meets && behind.length) return;
      version++; // what is being read continues another list
      loading = null;
      tail = [];
      cursor = page.next_cursor;
      return;
    }
    const added = page.items.filter((d) => !known.has(d.id));
    docs = docs.map((d) => there.get(d.id) || d);
    if (asked.sort !== "added") docs = inOrder([...docs, ...added]);
    else if (!cursor) docs.push(...added.filter((d) => d.id > (docs.at(-1)?.id ?? "")));
  }

  let jobsShown = "";
  async function showActive() {
    const listed = await get(`/v1/jobs?dataset=${encodeURIComponent(params.ds)}&limit=30`, signal);
    if (lags(listed)) later();
    const jobs = listed.items.filter((/** @type {any} */ j) => !terminal(j.state))
      .sort((/** @type {any} */ a, /** @type {any} */ b) => Number(b.progress > 0) - Number(a.progress > 0) || (a.id < b.id ? -1 : 1)); // what is at work, then what comes next
    time = {};
    const detailed = await Promise.all(jobs.slice(0, 3).map((/** @type {any} */ j) => get(`/v1/jobs/${j.id}`, signal).catch(() => j)));
    for (const { queue } of detailed) {
      const { p50, p90 } = queue?.eta_seconds || {};
      if (p50 !== null && p50 !== undefined && p50 >= (time.p50 ?? 0)) time = { p50, p90 };
    }
    showSums(); // of the same moment as the jobs below
    const html = el("div", {}, detailed.map((j) => el("div", { class: "job-line" },
      el("a", { href: `/jobs/${j.id}` }, { ingest: "Ingest", reparse: "Reprocessing", retry: "Retry" }[/** @type {"ingest"} */ (j.kind)] || j.kind, ` of ${plural(j.documents.total, "document")}`, j.name ? el("span", { class: "job-name" }, name(j.name)) : null),
      bar(j.progress, "Progress of the job"), el("span", { class: "num" }, percent(j.progress)),
      el("span", { class: "muted" }, eta(j.queue?.eta_seconds?.p50, j.queue?.eta_seconds?.p90)), ...waiting(j))),
      jobs.length > 3 ? el("p", { class: "muted" }, el("a", { href: "/jobs" }, `and ${listed.next_cursor && jobs.length === listed.items.length ? "at least " : ""}${jobs.length - 3} more jobs`)) : null);
    if (html.innerHTML + detailed.map((j) => j.progress) === jobsShown) return;
    jobsShown = html.innerHTML + detailed.map((j) => j.progress);
    active.replaceChildren(...html.childNodes);
  }

  scroller.addEventListener("scroll", render, { passive: true });
  const resize = new ResizeObserver(render);
  resize.observe(scroller);
  const uploaded = () => {
    fresh = true;
    soon();
  };
  onUploaded.add(uploaded);
  const going = () => render();
  onLeaving.add(going);
  const back = current.back && left?.url === location.pathname + location.search ? left : undefined;
  left = undefined;
  const url = () => location.pathname + location.search;
  let here = url();
  const remember = (/** @type {Element|null} */ from) => {
    const row = /** @type {HTMLElement|null|undefined} */ (from?.closest("tr[data-id]"));
    left = { url: here, top: scroller.scrollTop, page: window.scrollY, selected: [...selected], whole, focus: row?.dataset.id || lastFocus };
  };
  let lastFocus = "";
  body.addEventListener("focusin", (e) => {
    lastFocus = /** @type {HTMLElement|null} */ (/** @type {Element} */ (e.target).closest("tr[data-id]"))?.dataset.id || "";
    here = url();
  });
  body.addEventListener("click", (e) => {
    const a = /** @type {Element} */ (e.target).closest("a");
    if (!a) return;
    remember(a); // before the address is another
    keepWalk(params.ds, docs.map((d) => d.id), /** @type {HTMLElement|null} */ (a.closest("tr[data-id]"))?.dataset.id || "");
  });
  signal.addEventListener("abort", () => {
    onLeaving.delete(going);
    resize.disconnect();
    onUploaded.delete(uploaded);
    clearTimeout(tick);
    clearTimeout(typing);
  });

  await reload();
  if (back) {
    // Back is where it was: the same rows, chosen and in sight, and the focus on the one that was opened.
    for (const id of back.selected) selected.add(id);
    whole = back.whole;
    if (back.top / rowHeight() > docs.length - 30) await more(Math.ceil((back.top + scroller.clientHeight) / rowHeight())).catch(() => {});
    now();
    scroller.scrollTop = back.top;
    now();
    window.scrollTo(0, back.page);
    /** @type {HTMLElement|null|undefined} */ (rows.get(back.focus)?.row.querySelector("a"))?.focus({ preventScroll: true });
  }
  let opened = false;
  follow(base, {
    status() {
      // The stream begins here: what happened before it is read once.
      if (opened) return;
      opened = true;
      uploaded();
    },
    event(e) {
      if (!e.document_id) return;
      const i = placeOf(e.document_id);
      if (i < 0) fresh = fresh || (e.kind === "document" && e.detail?.state === "queued");
      else {
        if (e.kind === "document" && e.detail) docs[i] = { ...docs[i], state: e.detail.state, progress: Math.max(e.detail.progress || 0, 0), failure: e.detail.failure };
        dirty.add(e.document_id);
      }
      soon();
      if (e.kind === "document" && rows.has(e.document_id)) render();
    },
    poll: uploaded,
  }, signal, { of: kinds.filter((k) => !unseen.includes(k)) });

  return {
    /** @param {URLSearchParams} q */
    update(q) {
      read(q);
      void reload();
    },
  };
}
