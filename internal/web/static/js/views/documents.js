// @ts-check
/** A dataset: its documents in a table that stays smooth at ten thousand rows. */
import { aborted, datasetPath, documentPath, get } from "../api.js";
import { cancelDocuments, deleteDocuments, reparseDialog, retryDocuments } from "../actions.js";
import { announce, button, draw, el, empty, name, trouble } from "../dom.js";
import { bytes, eta, format, formats, number, percent, plural, time } from "../format.js";
import { ours } from "../keys.js";
import { follow, pacer } from "../live.js";
import { note, title } from "../nav.js";
import { badge, bar, doneText, failureLine, ledgerBar, strip, terminal, waiting } from "../parts.js";
import { chooser, onUploaded } from "../upload.js";

/** @typedef {import("../types.js").Doc} Doc */
/** @typedef {import("../types.js").Task} Task */

/** Filters of the state bar: label and the states it lets through. @type {Record<string, [string, string[]]>} */
const groups = {
  "": ["All", []],
  active: ["In progress", ["unstarted", "queued", "running", "finalizing", "canceling"]],
  succeeded: ["Succeeded", ["succeeded"]],
  partial: ["Partly", ["partially_succeeded"]],
  failed: ["Failed", ["failed"]],
  canceled: ["Canceled", ["canceled"]],
};

/** Columns: key in the address, title, how to compare, class. @type {[string, string, ((a: Doc, b: Doc) => number)|null, string][]} */
const columns = [
  ["name", "Name", (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }), "c-name"],
  ["state", "State", (a, b) => a.state.localeCompare(b.state), "c-state"],
  ["progress", "Ranges", (a, b) => a.progress - b.progress, "c-strip"],
  ["units", "Length", (a, b) => a.units - b.units, "c-units num"],
  ["chunks", "Chunks", (a, b) => a.chunks - b.chunks, "c-chunks num"],
  ["size", "Size", (a, b) => a.size - b.size, "c-size num"],
  ["added", "Added", null, "c-added"],
];

const firstPage = 40, nextPage = 1000, overscan = 8, mostSelected = 10_000;

/** Characters of scripts that run from right to left, and marks of direction. */
const rightToLeft = /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufeff]/;

/**
 * A name that is cut in its middle where there is no room: its end tells one
 * version from another, and the format. One that runs from right to left stays whole:
 * its parts would change places.
 * @param {string} text
 */
function cut(text) {
  const runes = [...text], end = runes.length > 24 && !rightToLeft.test(text) ? 14 : 0;
  return (end ? [runes.slice(0, -end), runes.slice(-end)] : [runes]).map((part) => el("bdi", {}, part.join("")));
}

/** @param {import("../types.js").Context} c */
export async function view({ root, params, query, signal }) {
  const base = datasetPath(params.ds);
  const asked = { q: "", state: "", type: "", sort: "added", desc: true };
  const read = (/** @type {URLSearchParams} */ q) => {
    Object.assign(asked, { q: q.get("q") || "", state: groups[q.get("state") || ""] ? q.get("state") || "" : "", type: q.get("type") || "" });
    const sort = q.get("sort") || "-added";
    asked.desc = sort.startsWith("-");
    asked.sort = sort.replace(/^-/, "");
  };
  read(query);
  // Both are asked at once: what is seen first waits for one answer's time, not for two.
  /** @type {Promise<any>|null} */
  let early = get(listing("", firstPage), signal);
  early.catch(() => {}); // it is told where it is waited for
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
  const selected = new Set();
  /** @type {Map<string, {at: string, tasks: Task[]}>} */
  const strips = new Map();

  // ---- the frame ----
  const filter = el("input", { type: "search", placeholder: "Part of a name", "aria-label": "Filter by name", value: asked.q, autocomplete: "off" });
  const chips = el("div", { class: "chips", role: "group", "aria-label": "Filter by state" },
    Object.entries(groups).map(([k, [label]]) => button(label, () => ask({ state: k }), { "data-state": k })));
  const type = el("select", { "aria-label": "Filter by format" }, el("option", { value: "" }, "All formats"), Object.entries(formats).map(([k, label]) => el("option", { value: k }, label)));
  const active = el("div", { class: "active-jobs" });
  const actions = el("div", { class: "batch", role: "group", "aria-label": "Selected documents", hidden: true });
  const heads = columns.map(([k, label, , cls]) => el("th", { scope: "col", class: cls, role: "columnheader" }, el("button", { type: "button", "data-sort": k, onclick: () => ask({ sort: k, desc: asked.sort === k ? !asked.desc : k === "added" }) }, label)));
  const everything = el("input", { type: "checkbox", "aria-label": "Select all" });
  const above = el("tr", { class: "gap", "aria-hidden": "true" }, el("td")), below = el("tr", { class: "gap", "aria-hidden": "true" }, el("td"));
  const body = el("tbody", {}, above, below);
  const table = el("table", { class: "docs", "aria-label": "Documents" }, el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "c-check" }, everything), heads)), body);
  const scroller = el("div", { class: "scroller", tabindex: "-1" }, table);
  const none = el("div");
  const sum = el("p", { class: "muted sum", role: "status" });
  const where = () => params.ds;
  root.replaceChildren(
    el("div", { class: "head" }, el("h1", { tabindex: "-1" }, name(ds.name)), sum, el("div", { class: "tools" }, chooser("Add files", where), chooser("Add a folder", where, true))),
    active, el("div", { class: "filters" }, filter, chips, type), actions, scroller, none);

  /** A new question to the server or a new order. @param {Partial<typeof asked>} change */
  function ask(change) {
    Object.assign(asked, change);
    note({ q: asked.q, state: asked.state, type: asked.type, sort: asked.sort === "added" && asked.desc ? "" : (asked.desc ? "-" : "") + asked.sort });
    void reload();
  }
  let typing = 0;
  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => ask({ q: filter.value.trim() }), 200);
  });
  type.addEventListener("change", () => ask({ type: type.value }));

  // ---- reading ----
  /** @param {string|null} at @param {number} limit */
  function listing(at, limit) {
    const p = new URLSearchParams({ limit: String(limit) });
    if (at) p.set("cursor", at);
    if (asked.q) p.set("q", asked.q);
    if (asked.sort === "added" && !asked.desc) p.set("order", "oldest");
    for (const s of groups[asked.state][1]) p.append("state", s);
    if (asked.type) p.append("media_type", asked.type);
    return `${base}/documents?${p}`;
  }

  async function reload() {
    const mine = ++version;
    loading = null;
    failed = null;
    showFilters();
    try {
      const page = await (early || get(listing("", firstPage), signal));
      early = null;
      if (mine !== version) return;
      docs = page.items;
      cursor = page.next_cursor;
      scroller.scrollTop = 0;
      if (asked.sort !== "added") await sorted();
      render();
      void refreshDataset();
      announce(`${cursor ? "Many" : number(docs.length)} documents`);
    } catch (e) {
      if (aborted(e) || mine !== version) return;
      // What stood there answers another question.
      docs = [];
      cursor = null;
      failed = trouble(e, () => void reload());
      render();
    }
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
        const page = await get(listing(cursor, nextPage), signal);
        if (mine !== version) return;
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
    await more(Infinity);
    docs = inOrder(docs);
  }

  /** @param {Doc[]} of */
  function inOrder(of) {
    const compare = columns.find(([k]) => k === asked.sort)?.[2], sign = asked.desc ? -1 : 1;
    return compare ? [...of].sort((a, b) => sign * compare(a, b) || (a.id < b.id ? 1 : -1)) : of;
  }

  async function refreshDataset() {
    try {
      ds = await get(base, signal);
    } catch {
      return; // the sums stay as they are until the next change
    }
    sum.textContent = ds.documents ? `${plural(ds.documents, "document")}, ${plural(ds.chunks, "chunk")}${ds.paused ? ", paused" : ""}` : "";
    const plain = !asked.q && !asked.state && !asked.type;
    const known = plain ? Math.max(ds.documents, docs.length) : docs.length;
    if (known !== total) {
      total = known;
      render();
    }
  }
  let total = ds.documents;

  // ---- drawing ----
  const rowHeight = () => (matchMedia("(max-width: 720px)").matches ? 84 : 44);
  /** @type {Map<string, {d: Doc, at: number, row: HTMLTableRowElement}>} */
  let rows = new Map();

  function showFilters() {
    for (const b of chips.children) b.setAttribute("aria-pressed", String(/** @type {HTMLElement} */ (b).dataset.state === asked.state));
    if (document.activeElement !== filter) filter.value = asked.q;
    if (asked.type && !formats[asked.type] && ![...type.options].some((o) => o.value === asked.type)) type.append(el("option", { value: asked.type }, asked.type));
    type.value = asked.type;
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
    const count = failed ? 0 : !asked.q && !asked.state && !asked.type ? Math.max(total, docs.length) : docs.length + (cursor ? 1 : 0);
    scroller.hidden = count === 0;
    if (failed) {
      if (none.firstChild !== failed) none.replaceChildren(failed);
    } else draw(none, count ? null : docs.length === 0 && (asked.q || asked.state || asked.type)
      ? empty("Nothing matches the filter", el("p", {}, "Take a part of it away, or search the text of the documents at the top."), button("Show all", () => { filter.value = ""; ask({ q: "", state: "", type: "" }); }))
      : empty("No documents yet", el("p", {}, "Drop files or a folder anywhere on this page, or choose them with “Add files”. PDF, Word, Excel, PowerPoint, OpenDocument, HTML, Markdown, LaTeX, CSV, JSON, XML, EPUB, mail, archives and plain text can be read.")));
    const from = Math.max(0, Math.floor(scroller.scrollTop / h) - overscan), to = Math.min(count, Math.ceil((scroller.scrollTop + scroller.clientHeight) / h) + overscan);
    if (to > docs.length && cursor) void more(to).catch((e) => !aborted(e) && none.replaceChildren(trouble(e, render)));
    above.style.height = `${from * h}px`;
    below.style.height = `${Math.max(0, count - Math.max(to, from)) * h}px`;
    table.setAttribute("aria-rowcount", String(count + 1));
    scroller.style.setProperty("--rows", `${count * h + (table.tHead?.offsetHeight || 0) + 2}px`); // no higher than they need
    /** @type {typeof rows} */
    const next = new Map();
    let place = /** @type {Element} */ (above);
    const focus = /** @type {HTMLElement|null} */ (document.activeElement);
    for (let i = from; i < to; i++) {
      const d = docs[i];
      const key = d ? d.id : `#${i}`;
      const old = rows.get(key);
      let row = old?.row;
      if (!row) row = blank();
      if (!old || old.d !== d) fill(row, d, i);
      row.setAttribute("aria-rowindex", String(i + 2));
      row.classList.toggle("odd", i % 2 === 1);
      if (d) /** @type {HTMLInputElement} */ (row.querySelector("input")).checked = selected.has(d.id);
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
    const [check, cName, cState, cStrip, cUnits, cChunks, cSize, cAdded] = row.cells;
    const box = /** @type {HTMLInputElement} */ (check.firstChild);
    row.classList.toggle("missing", !d);
    if (!d) return cName.replaceChildren("…");
    row.dataset.id = d.id;
    box.setAttribute("aria-label", `Select ${d.name.slice(0, 200)}`);
    box.dataset.at = String(i);
    const link = `/datasets/${encodeURIComponent(params.ds)}/documents/${d.id}`;
    const old = cName.querySelector("a");
    if (old?.getAttribute("href") !== link || old.textContent !== d.name) cName.replaceChildren(el("a", { href: link, title: d.name, class: "cut" }, cut(d.name)), el("span", { class: "kind" }, format(d.media_type)));
    draw(cState, badge(d.state, d.not_before), d.failure && d.state === "failed" ? el("span", { class: "why", title: failureLine(d.failure) }, failureLine(d.failure)) : el("span", { class: "muted num" }, doneText(d)));
    drawStrip(cStrip, d);
    draw(cUnits, d.units ? plural(d.units, d.unit || "unit") : "–");
    draw(cChunks, d.live_generation ? number(d.chunks) : "–");
    draw(cSize, bytes(d.size));
    draw(cAdded, time(d.created_at));
  }

  /** @param {Element} cell @param {Doc} d */
  function drawStrip(cell, d) {
    const s = strips.get(d.id);
    if (s && !terminal(d.state)) draw(cell, strip(s.tasks, 40));
    else if (d.ledger.ok + d.ledger.ocr + d.ledger.blank + d.ledger.skipped + d.ledger.failed > 0) draw(cell, ledgerBar(d));
    else if (d.state === "running") draw(cell, bar(d.progress, `Progress of ${d.name.slice(0, 100)}`));
    else draw(cell);
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
        if (row) drawStrip(row.cells[3], d);
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
    const row = box.closest("tr"), at = [...rows.values()].find((r) => r.row === row)?.at ?? -1;
    if (at < 0 || !docs[at]) return;
    const [a, b] = e.shiftKey && anchor >= 0 ? [Math.min(anchor, at), Math.max(anchor, at)] : [at, at];
    for (let i = a; i <= b; i++) if (docs[i]) box.checked ? selected.add(docs[i].id) : selected.delete(docs[i].id);
    anchor = at;
    now();
  });
  everything.addEventListener("click", async () => {
    if (!everything.checked) selected.clear();
    else {
      await more(mostSelected);
      for (const d of docs.slice(0, mostSelected)) selected.add(d.id);
      announce(`${plural(selected.size, "document")} selected`);
    }
    now();
  });
  scroller.addEventListener("keydown", (e) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[e.key];
    const row = e.target instanceof Element && e.target.closest("tbody tr");
    if (e.key === "Escape" && selected.size) {
      selected.clear();
      return now();
    }
    if (!step || !row || e.shiftKey || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    const at = [...rows.values()].find((r) => r.row === row)?.at ?? 0;
    const onBox = e.target instanceof HTMLInputElement;
    void focusRow(Math.min(Math.max(at + step, 0), Math.max(total, docs.length) - 1), onBox);
  });

  document.addEventListener("keydown", (e) => {
    const row = e.target instanceof Element && e.target.closest("tbody tr[data-id]");
    const step = { j: 1, k: -1 }[e.key];
    if (!ours(e) || e.shiftKey || !docs.length || !step && !(e.key === "x" && row)) return;
    e.preventDefault();
    const at = [...rows.values()].find((r) => r.row === row)?.at;
    if (step) void focusRow(at === undefined ? 0 : Math.min(Math.max(at + step, 0), Math.max(total, docs.length) - 1), false);
    else if (row) row.querySelector("input")?.click();
  }, { signal });

  /** @param {number} i @param {boolean} onBox */
  async function focusRow(i, onBox) {
    const h = rowHeight(), head = table.tHead?.offsetHeight || 0;
    if (i >= docs.length) await more(i + 1);
    i = Math.min(i, docs.length - 1);
    const top = i * h;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + h + head > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = top + h + head - scroller.clientHeight;
    now();
    const row = rows.get(docs[i]?.id)?.row;
    /** @type {HTMLElement|null|undefined} */ (row?.querySelector(onBox ? "input" : "a"))?.focus({ preventScroll: true });
  }

  let shownActions = "";
  function showActions() {
    everything.checked = selected.size > 0 && docs.length > 0 && selected.size >= docs.length;
    everything.indeterminate = selected.size > 0 && !everything.checked;
    const picked = docs.filter((d) => selected.has(d.id));
    const canRetry = picked.filter((d) => ["failed", "partially_succeeded", "canceled"].includes(d.state)).length, canCancel = picked.filter((d) => !terminal(d.state)).length;
    const state = `${selected.size} ${canRetry} ${canCancel}`;
    if (state === shownActions) return;
    shownActions = state;
    actions.hidden = !selected.size;
    const after = async (/** @type {Promise<boolean>} */ done) => {
      if (!(await done)) return;
      selected.clear();
      await reload();
    };
    actions.replaceChildren(el("strong", { role: "status" }, `${plural(selected.size, "document")} selected`),
      button("Parse again…", () => void after(reparseDialog(params.ds, picked))),
      button(`Retry ${number(canRetry)} failed…`, () => void after(retryDocuments(params.ds, picked)), { disabled: !canRetry }),
      button(`Cancel ${number(canCancel)}…`, () => void after(cancelDocuments(params.ds, picked)), { disabled: !canCancel }),
      button("Delete…", () => void after(deleteDocuments(params.ds, picked)), { class: "danger" }),
      button("Clear selection", () => { selected.clear(); now(); }, { class: "link" }));
  }

  // ---- live ----
  /** Documents that changed and are read again. @type {Set<string>} */
  const dirty = new Set();
  let fresh = false; // documents that are not in the list yet
  let tick = 0;
  const pace = pacer();
  const soon = () => {
    if (!tick) tick = setTimeout(catchUp, pace.wait(400));
  };
  const changed = () => [...rows.keys()].some((id) => dirty.has(id));
  async function catchUp() {
    try {
      const visible = [...rows.values()].filter((r) => r.d && dirty.has(r.d.id)).map((r) => r.d.id).slice(0, 100);
      for (const id of visible) dirty.delete(id); // those out of sight are read when they come into it
      pace.spend(2 + Number(visible.length > 0) + Number(fresh));
      if (visible.length) await again(visible);
      if (fresh) {
        fresh = false;
        const mine = version;
        const page = await get(listing("", 100), signal);
        if (mine === version) merge(page);
      }
      await Promise.all([showActive(), refreshDataset()]);
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
    const p = new URLSearchParams({ limit: String(ids.length) });
    for (const id of ids) p.append("id", id);
    const found = new Map((await get(`${base}/documents?${p}`, signal)).items.map((/** @type {Doc} */ d) => [d.id, d]));
    const gone = new Set(ids.filter((id) => !found.has(id)));
    docs = docs.filter((d) => !gone.has(d.id)).map((d) => found.get(d.id) || d);
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
    const jobs = (await get(`/v1/jobs?dataset=${encodeURIComponent(params.ds)}&limit=30`, signal)).items.filter((/** @type {any} */ j) => !terminal(j.state));
    const detailed = await Promise.all(jobs.slice(0, 3).map((/** @type {any} */ j) => get(`/v1/jobs/${j.id}`, signal).catch(() => j)));
    const html = el("div", {}, detailed.map((j) => el("div", { class: "job-line" },
      el("a", { href: `/jobs/${j.id}` }, { ingest: "Ingest", reparse: "Parse again", retry: "Retry" }[/** @type {"ingest"} */ (j.kind)] || j.kind, ` of ${plural(j.documents.total, "document")}`),
      bar(j.progress, "Progress of the job"), el("span", { class: "num" }, percent(j.progress)),
      el("span", { class: "muted" }, eta(j.queue?.eta_seconds?.p50, j.queue?.eta_seconds?.p90)), ...waiting(j))),
      jobs.length > 3 ? el("p", { class: "muted" }, el("a", { href: "/jobs" }, `and ${jobs.length - 3} more jobs`)) : null);
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
  signal.addEventListener("abort", () => {
    resize.disconnect();
    onUploaded.delete(uploaded);
    clearTimeout(tick);
    clearTimeout(typing);
  });

  await reload();
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
      const i = docs.findIndex((d) => d.id === e.document_id);
      if (i < 0) fresh = fresh || (e.kind === "document" && e.detail?.state === "queued");
      else {
        if (e.kind === "document" && e.detail) docs[i] = { ...docs[i], state: e.detail.state, progress: Math.max(e.detail.progress || 0, 0), failure: e.detail.failure };
        dirty.add(e.document_id);
      }
      soon();
      if (e.kind === "document") render();
    },
    poll: uploaded,
  }, signal);

  return {
    /** @param {URLSearchParams} q */
    update(q) {
      read(q);
      void reload();
    },
  };
}
