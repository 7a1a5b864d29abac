// @ts-check
/** One document: what it says beside how it looks, what went wrong, where the time went, what it was before. */
import { cancelDocuments, deleteDocuments, reparseDialog, retryDocuments, retryTask } from "../actions.js";
import { aborted, documentPath, download, get } from "../api.js";
import { comparison } from "../compare.js";
import { announce, button, draw, el, empty, grid, gridRows, icon, menu, name, trouble, whenSeen } from "../dom.js";
import { chunkEditor, editBadge, editList, unplaced } from "../edits.js";
import { diagnostics } from "../flight.js";
import { between, bytes, drawable, duration, eta, format, number, percent, plural, time } from "../format.js";
import { labels } from "../labels.js";
import { ours } from "../keys.js";
import { follow } from "../live.js";
import { go, note, title } from "../nav.js";
import { figures, pageImage, pictures } from "../page.js";
import { causeOf } from "../causes.js";
import { badge, bar, cells, cure, failureLine, located, setting, strip, terminal, unitsAt, waiting } from "../parts.js";
import { asJSON, chunkTools, exportText, finder, highlight, inStep, modes, rail, rendered } from "../reader.js";
import { chunkText } from "../text.js";
import { walkOf } from "../walk.js";
import { taskName, waterfall } from "../waterfall.js";

/** @typedef {import("../types.js").Doc} Doc */
/** @typedef {import("../types.js").Task} Task */
/** @typedef {import("../types.js").Chunk} Chunk */
/** @typedef {import("../types.js").Pages} Pages */

const tabs = /** @type {const} */ ([["", "Read"], ["problems", "Issues"], ["timeline", "Timeline"], ["run", "Run"], ["versions", "Versions"], ["edits", "Edits"], ["settings", "Settings"]]);

const chunksPerPage = 60;

/** What work is called while it is done. @type {Record<string, string>} */
const phases = { plan: "planning", parse: "parsing", chunk: "chunking", embed: "embedding", index: "indexing", finalize: "finishing" };

/** @param {import("../types.js").Context} c */
export async function view({ root, params, query, signal }) {
  const base = documentPath(params.ds, params.doc);
  /** @type {Doc} */
  let d = await get(base, signal);
  title(d.name);

  const state = el("span"), facts = el("p", { class: "muted facts-line" }), progress = el("section", { class: "progress-box", "aria-label": "Progress" });
  const tools = el("div", { class: "tools" });
  const tabBar = el("nav", { class: "tabs", "aria-label": "Parts of the document" });
  const pane = el("div", { class: "pane" });
  const neighbors = el("span", { class: "neighbors" });
  root.replaceChildren(
    el("p", { class: "crumbs" }, el("a", { href: `/datasets/${encodeURIComponent(params.ds)}` }, name(params.ds)), " / ", neighbors),
    el("div", { class: "head" }, el("h1", { tabindex: "-1" }, name(d.name)), state, tools), facts, progress, tabBar, pane);

  /** Part done of running tasks, from progress events. @type {Map<string, number>} */
  const share = new Map();
  /** @type {Task[]} */
  let tasks = [];
  /** @type {import("../types.js").LedgerRun[]} of the newest generation */
  let runs = [];
  /** @type {import("../types.js").Job|null} that is being waited for */
  let job = null;

  /** Those before and behind it in the list that it was opened from. They take its place in the history: back leads to the list. */
  function drawNeighbors() {
    const w = walkOf(params.ds, d.id);
    if (!w) return;
    const to = (/** @type {string} */ label, /** @type {string} */ key, /** @type {string|undefined} */ id) => button(label, () => id && step(id), { class: "link", disabled: !id, title: key, "data-step": key });
    neighbors.replaceChildren(to("Previous document", "k", w.before), el("span", { class: "muted num" }, `${number(w.at)} of ${number(w.of)}`), to("Next document", "j", w.after));
  }
  const step = (/** @type {string} */ id) => go(`/datasets/${encodeURIComponent(params.ds)}/documents/${id}${tab ? `?tab=${tab}` : ""}`, { replace: true });
  document.addEventListener("keydown", (e) => {
    if (!ours(e) || e.shiftKey || e.key !== "j" && e.key !== "k") return;
    const w = walkOf(params.ds, d.id), id = e.key === "j" ? w?.after : w?.before;
    if (!id) return;
    e.preventDefault();
    step(id);
  }, { signal });

  function drawHead() {
    draw(state, badge(d.state, d.not_before));
    draw(facts, [format(d.media_type), d.units ? plural(d.units, d.unit || "unit") : "", bytes(d.size), d.live_generation ? `${plural(d.chunks, "chunk")}, ${plural(d.tokens, "token")}` : ""].filter(Boolean).join(" · "), " · added ", time(d.created_at),
      d.live_generation ? [" · ", el("a", { href: `/datasets/${encodeURIComponent(params.ds)}/mindmap?document=${d.id}` }, "mind map")] : null,
      d.duplicate_of ? [" · ", el("a", { href: `/datasets/${encodeURIComponent(params.ds)}/documents/${d.duplicate_of}` }, "identical to another document")] : null,
      d.parent_id ? [" · ", el("a", { href: `/datasets/${encodeURIComponent(params.ds)}/documents/${d.parent_id}` }, "in archive")] : null);
    const act = (/** @type {Promise<boolean>} */ p) => void p.then((done) => done && again());
    const failed = ["failed", "partially_succeeded", "canceled"].includes(d.state);
    const key = `${d.state} ${d.live_generation}`;
    if (tools.dataset.key !== key) {
      tools.dataset.key = key;
      tools.replaceChildren(
        ...(failed ? cureButtons(act) : []),
        ...(terminal(d.state) ? [] : [button("Cancel…", () => act(cancelDocuments(params.ds, [d])))]),
        button("Reprocess…", () => act(reparseDialog(params.ds, [d]))),
        button("Original", () => void download(`${base}/content`, d.name)),
        button("Delete…", () => void deleteDocuments(params.ds, [d]).then((done) => done && go(`/datasets/${encodeURIComponent(params.ds)}`)), { class: "danger" }));
    }
    const bad = problems();
    for (const a of tabBar.children) if (/** @type {HTMLElement} */ (a).dataset.tab === "problems") a.querySelector("b")?.replaceChildren(bad ? String(bad) : "");
  }

  /** Tasks that ended badly; those that were told to stop did what they should. */
  const failedTasks = () => tasks.filter((t) => t.failure && !["done", "superseded", "canceled"].includes(t.state) && !(d.failure && t.kind === "plan" && d.failure.message === t.failure.message));
  const problems = () => (d.failure && !failedRuns().some((r) => r.code === d.failure?.code) ? 1 : 0) + failedTasks().length + failedRuns().length;

  /** What helps a document that failed: another try does not open a locked file, or fill an empty one. @param {(p: Promise<boolean>) => void} act */
  function cureButtons(act) {
    const { act: helps } = causeOf(d.failure || { category: "internal" });
    if (d.state === "failed" && d.failure && helps === "delete") return [];
    if (d.state === "failed" && d.failure && helps === "password") return [button("Enter the password…", () => act(reparseDialog(params.ds, [d])), { class: "primary" })];
    return [button("Retry what failed…", () => act(retryDocuments(params.ds, [d])), { class: "primary" })];
  }
  /** What was told to stop is no failure. */
  const failedRuns = () => runs.filter((r) => r.status === "failed" && r.code !== "canceled");

  /** The strip and the same in words. */
  function ranged() {
    const cells = strip(tasks, 240, share, runs);
    return el("div", { class: "ranges" }, cells, el("span", { class: "muted", "aria-hidden": "true" }, cells.getAttribute("aria-label")));
  }

  function drawProgress() {
    const running = !terminal(d.state);
    const ranges = tasks.filter((t) => t.range && t.state !== "superseded");
    // Of what went well the ledger says the same, page by page.
    progress.hidden = !running && (ranges.length < 2 || tab === "" && d.state === "succeeded" && ranges.every((t) => t.state === "done"));
    draw(progress, running ? el("div", { class: "progress-line" }, bar(d.progress, `Progress of ${d.name.slice(0, 100)}`), el("strong", { class: "num" }, d.state === "running" && !d.units ? "Counting pages" : percent(d.progress)), el("span", { class: "muted" }, job ? eta(job.queue?.eta_seconds.p50, job.queue?.eta_seconds.p90) : ""), ...(job ? waiting(job) : [])) : null,
      ranges.length ? ranged() : null);
  }

  async function readWait() {
    job = terminal(d.state) || !d.job_id ? null : await get(`/v1/jobs/${d.job_id}`, signal).catch(() => null);
  }

  async function readAll() {
    const [doc, list, ledger] = await Promise.all([get(base, signal), get(`${base}/tasks`, signal), get(`${base}/pages`, signal)]);
    d = doc;
    tasks = list.items;
    runs = ledger.runs;
  }

  async function refresh() {
    const before = d, done = readable() ? tasks.filter((t) => t.state === "done").length : 0;
    await readAll();
    for (const t of tasks) if (t.state !== "running") share.delete(t.id);
    await readWait();
    drawHead();
    drawProgress();
    if (before.state !== d.state || before.live_generation !== d.live_generation || ["problems", "timeline"].includes(tab) || tab === "" && readable() && done !== tasks.filter((t) => t.state === "done").length) void drawPane();
    if (before.live_generation !== d.live_generation) void countUnplaced();
  }

  /** Edits that have no effect are told of on every tab. */
  async function countUnplaced() {
    if (!d.live_generation) return;
    const n = await unplaced(base, signal).catch(() => 0);
    tabBar.querySelector('[data-tab="edits"] b')?.replaceChildren(n ? String(n) : "");
  }

  let due = 0, running = false, missed = false;
  /** What happens while the document is being read may not be in the answer: it is read once more. */
  const soon = (wait = 350) => {
    if (running) missed = true;
    else if (!due && !signal.aborted) due = setTimeout(async () => {
      due = 0;
      running = true;
      missed = false;
      let next = 350;
      try {
        await refresh();
      } catch (e) {
        if (!aborted(e)) announce(String(/** @type {Error} */ (e).message));
        missed = true; // nothing else may happen that would ask again
        next = 2000;
      }
      running = false;
      if (missed) soon(next);
    }, wait);
  };
  signal.addEventListener("abort", () => clearTimeout(due));

  // ---- parts ----
  let tab = "", page = 1, lit = "", as = "";
  /** The versions that are compared, 0 for none, and what of it is shown. */
  let compared = { from: 0, to: 0, show: "" };
  const read = (/** @type {URLSearchParams} */ q) => {
    tab = tabs.some(([k]) => k === q.get("tab")) ? q.get("tab") || "" : "";
    page = Math.max(1, Number(q.get("page")) || 1);
    lit = q.get("chunk") || "";
    as = modes.some(([k]) => k === q.get("as")) ? q.get("as") || "" : "";
    compared = { from: Number(q.get("from")) || 0, to: Number(q.get("to")) || 0, show: q.get("show") || "" };
  };
  read(query);
  tabBar.append(...tabs.map(([k, label]) => el("a", { href: `?${new URLSearchParams(k ? { tab: k } : {})}`, "data-tab": k }, label, k === "problems" || k === "edits" ? el("b", { class: "count" }) : null)));

  /** @type {AbortController} */
  let paneStop = new AbortController();
  let drawn = "";
  async function drawPane() {
    for (const a of /** @type {HTMLCollectionOf<HTMLElement>} */ (tabBar.children)) {
      if (a.dataset.tab !== tab) a.removeAttribute("aria-current");
      else {
        a.setAttribute("aria-current", "page");
        tabBar.scrollLeft = a.offsetLeft - tabBar.offsetLeft - 16; // in sight where the bar is wider than the window
      }
    }
    drawProgress();
    if (tab === "run" && drawn === tab) return; // it follows the run by itself
    paneStop.abort();
    paneStop = new AbortController();
    const stop = AbortSignal.any([signal, paneStop.signal]);
    const keep = drawn === tab;
    drawn = tab;
    if (!keep) pane.replaceChildren(el("p", { class: "muted" }, "Loading …"));
    try {
      const content = tab === "problems" ? wrong() : tab === "timeline" ? timeline() : tab === "run" ? await (await import("../run.js")).runPane({ base, generation: () => d.generation, query: new URLSearchParams(location.search), signal: stop }) : tab === "versions" ? await versions(stop) : tab === "edits" ? await edits(stop) : tab === "settings" ? settings() : await reader(stop);
      if (stop.aborted) return;
      const itself = content.parentNode === pane && pane.childElementCount === 1; // it has drawn itself anew
      if (keep && !itself) draw(pane, content);
      else if (!itself) pane.replaceChildren(content);
      if (tab === "") void showLit();
    } catch (e) {
      if (!stop.aborted) {
        drawn = "";
        pane.replaceChildren(trouble(e, () => void drawPane()));
      }
    }
  }

  /** @type {() => void} */
  let afterReader = () => {};
  /** The frame of the reader, which stays while pages are turned. @type {ReturnType<typeof readerFrame>|null} */
  let frame = null;

  const turn = (/** @type {number} */ n, chunk = "") => go(`${location.pathname}?${new URLSearchParams({ page: String(n), ...(as ? { as } : {}), ...(chunk ? { chunk } : {}) })}`);

  /** What stands around the text: the outline, the pager, find, and how the text is shown. @param {number} generation */
  function readerFrame(generation) {
    const unit = d.unit || "unit", paged = d.unit !== "row" && d.units > 1, pictured = drawable(d.media_type);
    const before = button("Previous", () => turn(page - 1), { "aria-label": `Previous ${unit}`, title: "←" }), behind = button("Next", () => turn(page + 1), { "aria-label": `Next ${unit}`, title: "→" });
    const input = el("input", { name: "n", type: "number", min: 1, max: d.units, class: "page-number" });
    const pager = paged || pictured ? el("div", { class: "pager" }, before,
      el("form", { onsubmit: (/** @type {Event} */ e) => {
        e.preventDefault();
        const n = Number(input.value);
        if (n >= 1 && n <= d.units) turn(n);
      } }, el("label", {}, `${unit[0].toUpperCase()}${unit.slice(1)} `, input), ` of ${number(d.units)}`), behind) : null;
    const find = finder({ ds: params.ds, doc: d.id, unit, paged, signal, show(n, chunk) {
      if (paged || pictured) return page === n && lit === chunk ? afterReader() : turn(n, chunk);
      lit = chunk;
      void showLit();
    } });
    const choices = modes.map(([k, label]) => button(label, () => {
      as = k;
      note({ as: k });
      void drawPane();
    }, { "data-mode": k, "aria-pressed": "false" }));
    const said = el("span", { class: "muted", role: "status" });
    const saves = (/** @type {string} */ label, /** @type {"md"|"jsonl"} */ to) => button(label, () => {
      said.textContent = "Exporting …";
      exportText(base, d, to, signal).then(() => (said.textContent = ""), (e) => aborted(e) || (said.textContent = e.message));
    }, { class: "link" });
    const exports = menu("Export", saves("Markdown", "md"), saves("JSON Lines, one chunk per line", "jsonl"), el("a", { href: "?tab=settings" }, "Parquet, with vectors"));
    const side = rail({ ds: params.ds, d, unit, paged: paged || pictured && d.units > 1, pictured, runs, generation, signal });
    const body = el("div", { class: "reader-body" });
    const root = el("div", { class: "reader" }, side.toggle, side.root, el("div", { class: "reader-main" },
      el("div", { class: "reader-bar" }, pager, find.root, el("div", { class: "segments", role: "group", "aria-label": "Show the text as" }, choices), exports, said), body));
    return { root, body, rail: side, find, generation, at() {
      input.value = String(page);
      input.defaultValue = String(page);
      const focus = document.activeElement;
      before.disabled = page <= 1;
      behind.disabled = page >= d.units;
      // Whoever turned to the last page by key stays beside where they were.
      if (focus === behind && behind.disabled) before.focus();
      if (focus === before && before.disabled) behind.focus();
      for (const c of choices) c.setAttribute("aria-pressed", String(c.dataset.mode === as));
      side.at(page);
    } };
  }

  /** Of a document that is read for the first time, the ranges that are done. */
  const readable = () => !d.live_generation && !terminal(d.state) && d.units > 0 && tasks.some((t) => t.range && t.state === "done" && t.chunks);
  /** @type {() => Promise<void>} */
  let showLit = async () => {};

  /** @param {AbortSignal} stop */
  async function reader(stop) {
    afterReader = () => {};
    const early = readable();
    if (!d.live_generation && !early) {
      return terminal(d.state) ? empty("No text found", el("p", {}, d.failure ? failureLine(d.failure) : "No version of this document is complete."), d.failure ? el("a", { href: "?tab=problems" }, "See its issues") : null)
        : empty("Not ready yet", el("p", {}, "Pages appear here as soon as their range is done."));
    }
    if (d.parser?.startsWith("archive/") && !d.chunks) return files(stop);
    const generation = d.live_generation || d.generation;
    const paged = d.unit !== "row" && d.units > 1;
    const pictured = drawable(d.media_type), whole = !paged && !pictured;
    const p = new URLSearchParams({ limit: String(whole ? chunksPerPage : 1000) });
    if (early) p.set("generation", String(generation));
    page = Math.min(page, Math.max(d.units, 1));
    if (!whole) p.set("page", String(page));
    /** @type {[Pages, {items: Chunk[], next_cursor: string|null}]} */
    const [ledger, list] = await Promise.all([get(`${base}/pages`, stop), get(`${base}/chunks?${p}`, stop)]);
    const unit = d.unit || "unit";
    const run = ledger.runs.find((r) => page >= r.from && page <= r.to);
    if (!frame || frame.generation !== generation) frame = readerFrame(generation);
    const f = frame;
    const items = as ? el("div", { class: as === "json" ? "chunks" : "markdown" }) : el("ol", { class: "chunks" });
    /** @type {HTMLElement|null} */
    let figure = null;
    const light = (/** @type {string} */ key, /** @type {boolean} */ on) => {
      for (const r of figure?.querySelectorAll("rect") || []) if (r.dataset.key === key) r.classList.toggle("on", on);
    };
    const item = (/** @type {Chunk} */ c) => {
      const li = el("li", { tabindex: "0", id: `c-${c.id}`, "data-key": c.id, class: `chunk ${c.kind}${c.edit?.added ? " added" : ""}${c.edit && !c.edit.enabled ? " off" : ""}`, "aria-label": `Chunk on ${unit} ${c.pages?.join(", ") || page}` },
        c.heading_path?.length ? el("p", { class: "path" }, c.heading_path.map((h, i) => [i ? " › " : "", el("bdi", {}, h)])) : null, pictured ? figures({ ds: params.ds, doc: d.id, chunk: c, signal: stop }) : pictures({ ds: params.ds, doc: d.id, chunk: c, signal: stop }), chunkText(c.text, c.kind), labels(c, d.media_type),
        el("div", { class: "meta" }, editBadge(c), el("span", { class: "muted num" }, `${plural(c.tokens, "token")}${c.pages?.length > 1 ? `, ${unit}s ${c.pages[0]}–${c.pages[c.pages.length - 1]}` : whole && d.units > 1 && c.pages?.length ? `, ${unit} ${c.pages[0]}` : ""}`), early ? null : editor.tools(c, chunkTools({ c, d, ds: params.ds, unit, paged: !whole }))));
      lights(li, c.id);
      return li;
    };
    const lights = (/** @type {HTMLElement} */ e, /** @type {string} */ id) => {
      for (const on of ["mouseenter", "focus"]) e.addEventListener(on, () => light(id, true));
      for (const off of ["mouseleave", "blur"]) e.addEventListener(off, () => light(id, false));
    };
    const editor = chunkEditor({ base, item, reload: () => void drawPane() });
    const add = (/** @type {Chunk[]} */ chunks) => {
      const made = as === "markdown" ? rendered(chunks) : as === "json" ? asJSON(chunks) : chunks.map(item);
      if (as) for (const e of made) lights(e, e.dataset.key || "");
      items.append(...made);
    };
    add(list.items);
    const pick = (/** @type {string} */ key) => {
      const li = document.getElementById(`c-${key}`);
      li?.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
      if (!f.find.root.contains(document.activeElement)) li?.focus({ preventScroll: true });
    };
    if (pictured) {
      figure = pageImage({ ds: params.ds, doc: d.id, name: d.name, page, dpi: 96, signal: stop, pick,
        boxes: list.items.flatMap((c) => c.boxes.filter((b) => b.page === page).map((box) => ({ box, key: c.id, label: c.text.slice(0, 120) }))) });
    }
    let cursor = list.next_cursor;
    const readMore = async () => {
      if (!cursor) return;
      p.set("cursor", cursor);
      const next = await get(`${base}/chunks?${p}`, stop);
      cursor = next.next_cursor;
      add(next.items);
      more.hidden = !cursor;
    };
    const more = button("Show more chunks", () => void readMore());
    more.hidden = !cursor;
    showLit = async () => {
      for (let n = 0; lit && cursor && !document.getElementById(`c-${lit}`) && n < 400; n++) await readMore(); // it stands further on
      afterReader();
    };
    afterReader = () => {
      if (lit) pick(lit);
      for (const r of figure?.querySelectorAll("rect") || []) r.classList.toggle("hit", r.dataset.key === lit);
      for (const c of items.children) c.classList.toggle("lit", /** @type {HTMLElement} */ (c).dataset.key === lit);
      const cell = pane.querySelector('.ledger [aria-current="true"]'), row = cell?.closest(".ledger");
      if (cell && row) row.scrollLeft += cell.getBoundingClientRect().left - row.getBoundingClientRect().left - row.clientWidth / 2;
      highlight(items, f.find.text());
    };
    const unread = early && !ledger.runs.some((r) => page >= r.from && page <= r.to);
    const status = unread ? el("p", { class: "page-note" }, icon("clock"), `This ${unit} has not been read yet.`)
      : run && run.status !== "ok" ? el("p", { class: `page-note ${cells[run.status][1]}` }, icon(run.status === "failed" ? "cross" : "dot"), `This ${unit} ${({ failed: "could not be read", blank: "is blank", skipped: "was skipped", ocr: "was read by OCR" })[run.status]}${run.message ? `: ${run.message}` : "."}`) : null;
    const column = el("section", { "aria-label": as === "markdown" ? "Text" : as === "json" ? "Chunks as JSON" : "Chunks", class: "chunk-column" }, list.items.length ? items : el("p", { class: "muted" }, unread ? "Its text appears as soon as its range is done." : `No text on this ${unit}.`), more);
    const left = figure ? el("div", { class: "page-side" }, figure) : null;
    f.body.replaceChildren(...[early ? el("p", { class: "page-note" }, icon("play"), "In progress: finished ranges can be read here now; search finds them once the whole document is done.") : null, whole ? null : ledgerStrip(ledger, unit), status, el("div", { class: left ? "beside" : "alone" }, left, column)].filter((x) => x !== null));
    if (left) inStep(left, column, list.items, page, stop);
    f.at();
    return f.root;
  }

  document.addEventListener("keydown", (e) => {
    const n = { ArrowLeft: page - 1, ArrowRight: page + 1 }[e.key];
    if (tab || !frame || !pane.contains(frame.root) || !ours(e) || e.shiftKey || n === undefined && e.key !== "f") return;
    if (e.target instanceof Element && e.target.closest("pre, .scroll-x, [role=toolbar], [role=dialog], nav, .ledger")) return;
    e.preventDefault();
    if (n === undefined) frame.find.field.focus();
    else if (n >= 1 && n <= d.units && (d.unit !== "row" && d.units > 1)) turn(n);
  }, { signal });

  /** The documents that an archive's files have become, and why others have not. @param {AbortSignal} stop */
  async function files(stop) {
    /** @type {import("../dom.js").Head[]} */
    const heads = [["File"], ["State"], ["Type"], ["Size", "num"], ["Length", "num"], ["Chunks", "num"]];
    const table = grid("Files in this archive", heads, []), others = runs.filter((r) => r.status !== "ok");
    const p = new URLSearchParams({ parent: d.id, limit: "200", order: "oldest" });
    const more = button("Show more files", () => add());
    async function add() {
      /** @type {{items: import("../types.js").Doc[], next_cursor: string|null}} */
      const list = await get(`/v1/datasets/${encodeURIComponent(params.ds)}/documents?${p}`, stop);
      table.querySelector("tbody")?.append(...gridRows(heads, list.items.map((m) => [el("a", { href: `/datasets/${encodeURIComponent(params.ds)}/documents/${m.id}` }, name(m.path || m.name)), badge(m.state),
        format(m.media_type), bytes(m.size), m.units ? plural(m.units, m.unit || "unit") : "–", number(m.chunks)])));
      p.set("cursor", list.next_cursor || "");
      more.hidden = !list.next_cursor;
    }
    await add();
    return el("div", {},
      table, more,
      others.length ? el("section", {}, el("h2", {}, "Not read"), el("ul", {}, others.slice(0, 200).map((r) => el("li", {}, r.message || r.code, " ", el("code", {}, r.code))))) : null);
  }

  /** One cell per page to jump by; long documents show the cells around the page and every failed run. @param {Pages} ledger @param {string} unit */
  function ledgerStrip(ledger, unit) {
    const around = 60;
    const cell = (/** @type {number} */ n, /** @type {Pages["runs"][0]|undefined} */ r) => {
      const [text, tone, sign] = cells[r?.status || "blank"];
      return el("li", {}, el("a", { href: `?page=${n}`, class: `cell ${tone}`, "aria-current": n === page ? "true" : undefined, "aria-label": `${unit} ${n}, ${text}`, title: `${unit} ${n}: ${text}${r?.message ? `, ${r.message}` : ""}` }, sign || String(n)));
    };
    const from = Math.max(1, page - around), to = Math.min(d.units, page + around);
    const list = el("ol", { class: "ledger", "aria-label": `Ledger of ${unit}s` });
    for (let n = from; n <= to; n++) list.append(cell(n, ledger.runs.find((r) => n >= r.from && n <= r.to)));
    const far = ledger.runs.filter((r) => r.status === "failed" && (r.to < from || r.from > to)).slice(0, 20);
    return el("div", { class: "ledger-box" }, list, far.length ? el("p", { class: "muted" }, "Failed elsewhere: ", far.map((r, i) => [i ? ", " : "", el("a", { href: `?page=${r.from}` }, r.from === r.to ? String(r.from) : `${r.from}–${r.to}`)])) : null);
  }

  // ---- what went wrong ----
  function wrong() {
    const out = el("div", { class: "problems" });
    // Of the tasks that met a bad unit the last one tells most: it had it alone.
    const bad = failedRuns().map((r) => ({ r, t: tasks.filter((t) => t.range && t.range[0] <= r.from && t.range[1] >= r.to && (t.failure || t.ledger?.some((x) => x.status === "failed"))).sort((a, b) => (a.finished_at || "") < (b.finished_at || "") ? 1 : -1)[0] || null }));
    const warnings = [...new Map([...d.warnings, ...tasks.flatMap((t) => t.warnings || [])].map((w) => [JSON.stringify([w.code, w.page, w.message]), w])).values()];
    if (d.failure && !bad.some(({ r }) => r.code === d.failure?.code)) out.append(problem(d.failure, failureLine(d.failure, d.unit), null));
    for (const { t, r } of bad) out.append(problem({ code: r.code || "failed", category: t?.failure?.category || "", message: r.message || "This could not be read.", retryable: true, detail: t?.failure?.detail, phase: "parse" }, located(unitsAt(d.unit || "page", r.from, r.to), r.message || "could not be read"), t, r));
    for (const t of failedTasks()) if (t.failure) out.append(problem(t.failure, located(t.range ? `${taskName(t)} of ${unitsAt(t.unit || "page", t.range[0], t.range[1])}` : taskName(t), t.failure.message), t));
    // What was left out on purpose is no failure: it stands apart, and closed.
    const well = !out.children.length;
    if (well) out.append(empty(d.state === "canceled" ? "Canceled, no issues" : terminal(d.state) ? "No issues" : "No issues so far", el("p", {}, d.ledger.ok + d.ledger.ocr ? `${plural(d.ledger.ok + d.ledger.ocr + d.ledger.blank, d.unit || "unit")} accounted for.` : "Failures will be listed here.")));
    if (warnings.length) out.append(el("details", { class: "notes" }, el("summary", {}, plural(warnings.length, "note"), " of the parser"), el("ul", {}, warnings.slice(0, 200).map((w) => el("li", {}, w.page ? el("a", { href: `?page=${w.page}` }, `${d.unit || "page"} ${w.page}`) : null, w.page ? ": " : "", w.message, " ", el("code", {}, w.code))))));
    return out;
  }

  /** @param {import("../types.js").Failure} f @param {string} heading @param {Task|null} t @param {import("../types.js").LedgerRun} [run] of the units that failed */
  function problem(f, heading, t, run) {
    const at = run?.from, history = t ? historyOf(t, run, f) : f.detail ? lastLines(f.detail) : null;
    const alike = failedRuns().filter((r) => r.code === f.code).length;
    const justThis = () => {
      if (run) return retryDocuments(params.ds, [d], { units: [[run.from, run.to]], what: `${d.unit || "unit"} ${run.from === run.to ? run.from : `${run.from}–${run.to}`}` });
      return t?.state === "dead" && t.kind !== "plan" ? retryTask(t.id, `the ${taskName(t)} task`) : retryDocuments(params.ds, [d]);
    };
    return el("article", { class: "problem" },
      el("h2", {}, icon("cross"), el("span", {}, heading)),
      cure(f) ? el("p", {}, cure(f)) : null,
      el("p", { class: "muted" }, el("code", {}, f.code), `${f.category && f.category !== f.code ? ` · ${f.category.replace(/_/g, " ")}` : ""}${f.phase ? ` · during ${phases[f.phase] || f.phase}` : ""}${f.attempt ? ` · attempt ${f.attempt}` : ""}`),
      history,
      el("div", { class: "tools" }, terminal(d.state) && (run || !["password", "delete"].includes(causeOf(f).act)) ? button("Retry just this", () => void justThis().then((done) => done && again()), { class: "primary" }) : null,
        terminal(d.state) && run && alike > 1 ? button(`Retry all ${number(alike)} with this code`, () => void retryDocuments(params.ds, [d], { codes: [f.code], what: `what failed with ${f.code}` }).then((done) => done && again())) : null,
        at && d.live_generation ? el("a", { href: `?page=${at}`, class: "button" }, `Show ${d.unit || "page"} ${at}`) : null));
  }

  const lastLines = (/** @type {string} */ text, of = "") => el("figure", { class: "last-lines" }, el("figcaption", {}, "The parser's last lines"), el("pre", { tabindex: "0", "aria-label": `The parser's last lines${of && `, ${of}`}` }, text.trim()));

  /** Tasks with their attempts, under what they were read at: a card that is drawn anew shows them at once. @type {Map<string, import("../types.js").TaskHistory>} */
  const histories = new Map();

  /**
   * The task with its attempts. What a version has taken over from an older one
   * was tried there: its own task has never run.
   * @param {Task} t @param {import("../types.js").LedgerRun} [run]
   * @returns {Promise<import("../types.js").TaskHistory>}
   */
  async function madeBy(t, run) {
    let h = await get(`/v1/tasks/${t.id}`, signal);
    for (let g = t.generation - 1; run && !h.tries.length && g > 0 && g >= t.generation - 10; g--) {
      /** @type {Task[]} */
      const older = (await get(`${base}/tasks?generation=${g}`, signal)).items;
      const one = older.filter((o) => o.attempts && o.range && o.range[0] <= run.from && o.range[1] >= run.to && o.ledger?.some((r) => r.status === "failed")).pop();
      if (one) h = await get(`/v1/tasks/${one.id}`, signal);
    }
    return h;
  }

  /**
   * The attempts at a task, and what the parser wrote before it stopped. They
   * are asked for when the card comes into view: a document may have many.
   * @param {Task} t @param {import("../types.js").LedgerRun} [run] @param {import("../types.js").Failure} [f]
   */
  function historyOf(t, run, f) {
    const of = run ? `${d.unit || "unit"} ${run.from === run.to ? run.from : `${run.from}–${run.to}`}` : "";
    const key = `${t.id} ${t.state} ${t.attempts} ${t.run_at}`, box = el("div", { class: "history" });
    const show = (/** @type {import("../types.js").TaskHistory} */ h) => {
      // The newest attempt that failed here says most; a task that failed whole says it in its failure.
      const output = run ? h.tries.flatMap((x) => x.output || []).findLast((o) => o.from <= run.to && o.to >= run.from) : null;
      const lines = output?.lines || f?.detail || h.tries.findLast((x) => x.failure?.detail)?.failure?.detail;
      box.removeAttribute("aria-busy");
      box.replaceChildren(...(h.tries.length ? [attempts(h.tries, of)] : []), ...(lines ? [lastLines(lines, of)] : []));
    };
    const known = histories.get(key);
    if (known) show(known);
    else {
      box.setAttribute("aria-busy", "true");
      whenSeen(box, async () => {
        try {
          const h = await madeBy(t, run);
          histories.set(key, h);
          show(h);
        } catch (e) {
          if (!aborted(e)) box.replaceChildren(trouble(e));
        }
      }, signal);
    }
    return box;
  }

  /** @param {import("../types.js").Try[]} tries oldest first @param {string} without what one that is done has not read */
  const attempts = (tries, without) => grid(without ? `Attempts, ${without}` : "Attempts", [["Attempt"], ["Began"], ["Took", "num wide"], ["Worker", "mono wide"], ["Ended", "wide"]], tries.map((x, i) => [`Attempt ${number(i + 1)}`, time(x.started_at), x.ended_at ? duration(between(x.started_at, x.ended_at)) : "–", x.worker, x.outcome === "done" ? (without ? `done, without ${without}` : "done") : `${x.outcome || "still running"}${x.text ? `: ${x.text}` : ""}`]));

  // ---- timeline ----
  let slowest = false;
  function timeline() {
    return el("div", {}, el("div", { class: "tools" }, el("label", { class: "check" }, el("input", { type: "checkbox", checked: slowest, onchange: (/** @type {Event} */ e) => { slowest = /** @type {HTMLInputElement} */ (e.target).checked; drawn = "?"; void drawPane(); } }), " Slowest first"),
      button("Download diagnostics", () => void diagnostics(base, d.id, signal).catch((e) => announce(e.message)))),
      waterfall(tasks, { slowest }));
  }

  // ---- versions ----
  /** @param {AbortSignal} stop */
  async function versions(stop) {
    /** @type {import("../types.js").Generation[]} */
    const gens = (await get(`${base}/generations`, stop)).items.sort((/** @type {any} */ a, /** @type {any} */ b) => b.generation - a.generation);
    const list = el("ol", { class: "versions" }, gens.map((g, i) => {
      const old = gens[i + 1];
      const diff = old ? differences(old, g) : [];
      return el("li", {}, el("h2", {}, `Version ${g.generation}`, g.generation === d.live_generation ? el("span", { class: "badge ok" }, icon("check"), "Live") : null, badge(g.state)),
        el("p", { class: "muted" }, time(g.created_at), ` · ${plural(g.chunks, "chunk")}, ${plural(g.tokens, "token")} · `, g.job_id ? el("a", { href: `/jobs/${g.job_id}` }, "View job") : null),
        old ? diff.length ? el("ul", {}, diff.map((x) => el("li", {}, x))) : el("p", {}, "Same settings and counts as the previous version.") : el("p", {}, "The first version."), g.failure ? el("p", { class: "warn" }, failureLine(g.failure)) : null,
        old && g.chunks && old.chunks ? el("p", {}, el("a", { href: `?${new URLSearchParams({ tab: "versions", from: String(old.generation), to: String(g.generation) })}` }, `Compare text with version ${old.generation}`)) : null);
    }));
    if (!compared.from || !compared.to) return list;
    const beside = await comparison(base, compared.from, compared.to, compared.show, d.unit || "unit", stop).catch((e) => {
      if (stop.aborted) throw e;
      return trouble(e);
    });
    const readable = gens.filter((g) => g.chunks && terminal(g.state));
    const choose = (/** @type {string} */ n, /** @type {string} */ label, /** @type {number} */ value) => el("label", {}, `${label} `, el("select", { name: n }, readable.map((g) => el("option", { value: g.generation, selected: g.generation === value }, `version ${g.generation}`))));
    return el("div", {}, el("form", { class: "tools", onsubmit: (/** @type {SubmitEvent} */ e) => {
      e.preventDefault();
      const f = new FormData(/** @type {HTMLFormElement} */ (e.target));
      go(`${location.pathname}?${new URLSearchParams({ tab: "versions", from: String(f.get("from")), to: String(f.get("to")) })}`);
    } }, choose("from", "Compare", compared.from), choose("to", "with", compared.to), el("button", {}, "Compare"), el("a", { href: "?tab=versions" }, "All versions")), beside);
  }

  /** @param {import("../types.js").Generation} a @param {import("../types.js").Generation} b */
  function differences(a, b) {
    const out = [];
    const keys = /** @type {(keyof import("../types.js").ParseConfig)[]} */ ([...new Set([...Object.keys(a.parser_config), ...Object.keys(b.parser_config)])]);
    for (const k of keys) {
      const [x, y] = [a, b].map((g) => (g.parser_config[k] === undefined ? "default" : JSON.stringify(g.parser_config[k])));
      if (x !== y) out.push(`${setting(k)}: ${x} → ${y}`);
    }
    if (a.parser !== b.parser && b.parser) out.push(`Parser: ${a.parser || "none"} → ${b.parser}`);
    for (const [k, label] of /** @type {const} */ ([["units", "Length"], ["chunks", "Chunks"], ["tokens", "Tokens"]])) if (a[k] !== b[k]) out.push(`${label}: ${number(a[k])} → ${number(b[k])}`);
    for (const k of /** @type {const} */ (["ok", "ocr", "blank", "skipped", "failed"])) if (a.ledger[k] !== b.ledger[k]) out.push(`${b.unit || "unit"}s ${cells[k][0]}: ${number(a.ledger[k])} → ${number(b.ledger[k])}`);
    return out;
  }

  // ---- edits ----
  /** @param {AbortSignal} stop */
  function edits(stop) {
    const reload = () => {
      void drawPane();
      void countUnplaced();
    };
    const editor = chunkEditor({ base, item: () => el("li"), reload });
    return editList({ base, unit: d.unit || "unit", paged: d.unit !== "row" && d.units > 1 || drawable(d.media_type), signal: stop, reload, add: () => void editor.add() });
  }

  // ---- settings ----
  function settings() {
    const parquet = tasks.filter((t) => t.state === "done" && t.range_id && t.chunks);
    const row = (/** @type {string} */ k, /** @type {any} */ v) => [el("dt", {}, k), el("dd", {}, v)];
    return el("div", { class: "settings" },
      el("section", {}, el("h2", {}, "Parse settings"), el("dl", { class: "facts" }, Object.entries(d.made_with || d.parser_config).map(([k, v]) => row(setting(k), [typeof v === "string" ? el("code", {}, JSON.stringify(v).slice(1, -1)) : JSON.stringify(v), k in d.parser_config ? null : el("span", { class: "muted" }, " (default)")])))),
      Object.keys(d.metadata).length ? el("section", {}, el("h2", {}, "File metadata"), el("dl", { class: "facts" }, Object.entries(d.metadata).map(([k, v]) => row(k, el("bdi", {}, v))))) : null,
      Object.keys(d.attributes || {}).length ? el("section", {}, el("h2", {}, "Attributes"), el("dl", { class: "facts" }, Object.entries(d.attributes || {}).map(([k, v]) => row(k, el("bdi", {}, typeof v === "string" ? v : JSON.stringify(v)))))) : null,
      el("section", {}, el("h2", {}, "Identity"), el("dl", { class: "facts" }, row("Id", el("code", {}, d.id)), row("SHA-256", el("code", {}, d.sha256)), row("Media type", el("code", {}, d.media_type)), row("Parser", d.parser ? el("code", {}, d.parser) : "–"), row("Job", d.job_id ? el("a", { href: `/jobs/${d.job_id}` }, d.job_id) : "–"))),
      el("section", {}, el("h2", {}, "Parquet files"), parquet.length ? el("ul", { class: "files" }, parquet.slice(0, 500).map((t) => el("li", {}, button(t.range ? `${t.unit || "unit"}s ${t.range.join("–")}` : t.kind, () => void download(`${base}/artifacts/${t.range_id}`, `${t.range_id}.parquet`), { class: "link" }), el("span", { class: "muted" }, ` ${plural(t.chunks, "chunk")} with vectors`)))) : el("p", { class: "muted" }, "None yet. One is written as each range finishes.")));
  }

  /** After an action the log goes on. */
  let stopFollow = new AbortController();
  function listen() {
    stopFollow.abort();
    stopFollow = new AbortController();
    follow(base, {
      status: () => soon(),
      event(e) {
        if (e.kind === "progress" && e.task_id && e.detail?.total) share.set(e.task_id, e.detail.done / e.detail.total);
        soon();
      },
      end: () => soon(),
    }, AbortSignal.any([signal, stopFollow.signal]));
  }
  function again() {
    soon();
    listen();
  }

  await readAll();
  await readWait();
  drawNeighbors();
  drawHead();
  await drawPane();
  void countUnplaced();
  listen();
  return {
    /** @param {URLSearchParams} q */
    update(q) {
      const before = tab, earlier = JSON.stringify(compared);
      read(q);
      if (before !== tab || tab === "" || earlier !== JSON.stringify(compared)) void drawPane().then(() => before === tab || announce(tabs.find(([k]) => k === tab)?.[1] || ""));
    },
  };
}
