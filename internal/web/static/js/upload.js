// @ts-check
/**
 * Uploads: files and folders dropped anywhere. Each file resumes after a
 * dropped connection; what is dropped together is one job, which batches of
 * files join as they arrive, by a request that is safe to repeat.
 */
import { datasetPath, send } from "./api.js";
import { announce, button, byId, el, icon, name } from "./dom.js";
import { bytes, percent, plural } from "./format.js";
import { forget, release, sendFile, uploadId } from "./resume.js";

/** @typedef {{file: File, state: "waiting"|"sending"|"stored"|"sent"|"refused"|"failed", loaded: number, note: string, doc?: string, from: import("./resume.js").Sending}} Item */

/** What was dropped together: batches that are not submitted yet, and the open job that they join. @typedef {{dataset: string, left: number, job: Promise<string> | null}} Drop */

const batchBytes = 32 << 20, batchFiles = 25, atOnce = 2, attempts = 6;

/** Files that one job takes. */
const mostFiles = 10_000;

/** @type {Item[]} */
let items = [];
/** @type {{items: Item[], dataset: string, drop: Drop}[]} */
let waiting = [];
let sending = 0;

/** How what is dropped next into a dataset is read, beside the settings of the dataset: settings that win over those, the lane of its work, "" for the usual one, and what is stored with each document. */
export const preset = { dataset: "", config: /** @type {() => Record<string, any>} */ (() => ({})), metadata: /** @type {() => Record<string, string>} */ (() => ({})), lane: "" };

/** Is told of every batch that arrived. @type {Set<() => void>} */
export const onUploaded = new Set();

/** What is chosen for a dataset just now, as JSON; "" for nothing. @param {string} dataset @param {"config"|"metadata"} what */
function chosen(dataset, what) {
  const of = preset.dataset === dataset ? preset[what]() : {};
  return Object.keys(of).length ? JSON.stringify(of) : "";
}

/** @param {File[]} files @param {string} dataset @param {string} [config] settings that win over the dataset's, as JSON @param {string} [lane] @param {string} [metadata] stored with each, as JSON */
export function upload(files, dataset, config, lane = preset.dataset === dataset ? preset.lane : "", metadata = undefined) {
  if (!files.length) return;
  try {
    config ??= chosen(dataset, "config");
    metadata ??= chosen(dataset, "metadata");
  } catch (e) {
    return announce(/** @type {Error} */ (e).message); // a setting that cannot be read; its field says so, too
  }
  const settings = config;
  if (!sending && !waiting.length) items = items.filter((i) => i.state === "failed");
  const added = files.map((file) => /** @type {Item} */ ({ file, state: "waiting", loaded: 0, note: "", from: { file, dataset, config: settings, metadata, lane } }));
  items.push(...added);
  let batch = /** @type {Item[]} */ ([]), size = 0, drop = /** @type {Drop} */ ({ dataset, left: 0, job: null });
  const flush = () => {
    if (!batch.length) return;
    waiting.push({ items: batch, dataset, drop });
    drop.left++;
    batch = [];
    size = 0;
  };
  for (const [n, i] of added.entries()) {
    if (n && n % mostFiles === 0) {
      flush();
      drop = { dataset, left: 0, job: null };
    }
    if (batch.length && (size + i.file.size > batchBytes || batch.length >= batchFiles)) flush();
    batch.push(i);
    size += i.file.size;
  }
  flush();
  announce(`Uploading ${plural(files.length, "file")}`);
  byId("uploads").hidden = false;
  next();
}

function next() {
  for (; sending < atOnce && waiting.length; ) {
    const b = /** @type {typeof waiting[0]} */ (waiting.shift());
    sending++;
    if (b.drop.left > 1) b.drop.job ??= openJob(b.dataset);
    void sendBatch(b).finally(() => {
      sending--;
      if (--b.drop.left === 0) void closeJob(b.drop);
      next();
    });
  }
  render();
}

/** @param {typeof waiting[0]} batch */
async function sendBatch(batch) {
  for (const i of batch.items) await sendItem(i);
  const stored = batch.items.filter((i) => i.state === "stored");
  if (!stored.length) return;
  try {
    settle(batch, stored, await submit(batch, stored));
    for (const f of onUploaded) f();
  } catch (e) {
    const note = /** @type {Error} */ (e).message;
    for (const i of stored) {
      release(i.from);
      Object.assign(i, { state: "failed", note });
    }
    announce(`An upload failed: ${note}`);
  }
}

/** @param {Item} i */
async function sendItem(i) {
  Object.assign(i, { state: "sending", note: "" });
  try {
    await sendFile(i.from, {
      progress: (loaded) => {
        if (loaded > i.loaded && i.note.includes("try")) i.note = "";
        i.loaded = Math.min(loaded, i.file.size);
        schedule();
      },
      waits: (why, seconds) => {
        i.note = `${why} Next try in ${seconds} s.`;
        schedule();
      },
      resumed: (at) => {
        i.note = `Resuming at ${bytes(at)}.`;
        schedule();
      },
    });
    Object.assign(i, { state: "stored", loaded: i.file.size });
  } catch (e) {
    const err = /** @type {import("./api.js").ApiError} */ (e);
    release(i.from);
    const refused = [400, 413, 415, 422].includes(err.status);
    Object.assign(i, { state: refused ? "refused" : "failed", note: err.message });
    announce(`${i.file.name}: ${err.message}`);
  }
  schedule();
}

/** Opens a job for batches to join. One that cannot be opened is done without: each batch is a job of its own. @param {string} dataset @returns {Promise<string>} */
const openJob = (dataset) => send(`${datasetPath(dataset)}/jobs`, { idle: "1h" }).then((job) => job.id, () => "");

/** Says that nothing more comes. A job that is not told closes by itself. @param {Drop} drop */
async function closeJob(drop) {
  const id = await drop.job;
  if (id) await send(`/v1/jobs/${id}:close`, {}).catch(() => {});
  for (const f of onUploaded) f();
}

/** Makes documents of what is stored. The server remembers: asked again it answers the same. @param {typeof waiting[0]} batch @param {Item[]} stored @returns {Promise<any>} */
async function submit(batch, stored) {
  const job = (await batch.drop.job) || undefined;
  for (let attempt = 1; ; attempt++) {
    try {
      return await send(`${datasetPath(batch.dataset)}/uploads:submit`, { ids: stored.map((i) => uploadId(i.from)), job });
    } catch (e) {
      const err = /** @type {import("./api.js").ApiError} */ (e);
      if (attempt === attempts || err.status && err.status < 500 && err.status !== 429) throw e;
      const wait = err.retryAfter || 2 ** (attempt - 1);
      for (const i of stored) i.note = `${err.message} Next try in ${wait} s.`;
      render();
      await new Promise((r) => setTimeout(r, wait * 1000));
    }
  }
}

/** @param {typeof waiting[0]} batch @param {Item[]} stored @param {any} answer */
function settle(batch, stored, answer) {
  const docs = [...answer.documents]; // in the order of the files; those refused are missing
  for (const i of stored) {
    void forget(i.from);
    const no = (answer.rejected || []).find((/** @type {any} */ r) => r.upload_id === uploadId(i.from));
    if (no) {
      Object.assign(i, { state: "refused", note: no.failure.message });
      continue;
    }
    const d = docs.shift();
    Object.assign(i, { state: "sent", doc: d && `/datasets/${encodeURIComponent(batch.dataset)}/documents/${d.id}`, note: d?.duplicate_of ? "The same file is already here; nothing is parsed twice." : "" });
  }
  announce(`${plural(stored.filter((i) => i.state === "sent").length, "file")} uploaded`);
}

let due = false;
function schedule() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    render();
  });
}

const words = { waiting: "Waiting", sending: "Sending", stored: "Stored", sent: "Uploaded", refused: "Refused", failed: "Failed" };
const shapes = { waiting: "clock", sending: "up", stored: "clock", sent: "check", refused: "cross", failed: "cross" };

/** At most this many rows are drawn; the sums above them count all. */
const mostRows = 50;

function render() {
  const total = items.reduce((a, i) => a + i.file.size, 0), loaded = items.reduce((a, i) => a + i.loaded, 0);
  const bad = items.filter((i) => i.state === "failed"), refused = items.filter((i) => i.state === "refused"), sent = items.filter((i) => i.state === "sent").length;
  const busy = sending > 0 || waiting.length > 0;
  byId("uploads-title").textContent = busy ? `Uploading ${sent} of ${plural(items.length, "file")}` : `${plural(sent, "file")} uploaded${refused.length ? `, ${refused.length} refused` : ""}${bad.length ? `, ${bad.length} failed` : ""}`;
  const p = /** @type {HTMLProgressElement} */ (byId("uploads-bar"));
  p.max = total || 1;
  p.value = total ? loaded : busy ? 0 : 1;
  byId("uploads-sum").textContent = `${bytes(loaded)} of ${bytes(total)}`;
  const shown = [...items].sort((a, b) => rank(a) - rank(b)).slice(0, mostRows);
  const list = byId("uploads-list");
  list.replaceChildren(...shown.map(row));
  if (items.length > mostRows) list.append(el("li", { class: "muted" }, `and ${items.length - mostRows} more`));
  const again = byId("uploads-retry");
  again.hidden = !bad.length;
  byId("uploads-close").hidden = busy;
}

/** @param {Item} i */
const rank = (i) => ({ failed: 0, refused: 1, sending: 2, stored: 3, waiting: 4, sent: 5 })[i.state];

/** @param {Item} i */
function row(i) {
  const part = i.file.size ? i.loaded / i.file.size : 1;
  return el("li", { class: i.state }, icon(shapes[i.state]), i.doc ? el("a", { href: i.doc }, name(i.file.name)) : name(i.file.name),
    el("span", { class: "muted num" }, i.state === "sending" ? `${bytes(i.loaded)} of ${bytes(i.file.size)} (${percent(part)})` : `${words[i.state]}, ${bytes(i.file.size)}`),
    i.note ? el("span", { class: "note" }, i.note) : null);
}

function retryFailed() {
  const bad = items.filter((i) => i.state === "failed");
  items = items.filter((i) => i.state !== "failed");
  const same = (/** @type {Item} */ i) => `${i.from.dataset}\n${i.from.config}\n${i.from.lane}\n${i.from.metadata}`;
  for (const key of new Set(bad.map(same))) {
    const some = bad.filter((i) => same(i) === key);
    upload(some.map((i) => i.file), some[0].from.dataset, some[0].from.config, some[0].from.lane, some[0].from.metadata);
  }
}

/** @param {DataTransferItem[]} entries @returns {Promise<File[]>} */
async function filesOf(entries) {
  /** @type {File[]} */
  const out = [];
  /** @param {any} entry */
  const walk = async (entry) => {
    if (!entry) return;
    if (entry.isFile) {
      out.push(await new Promise((ok, no) => entry.file(ok, no)));
      return;
    }
    const reader = entry.createReader();
    for (;;) { // a reader gives a folder in portions, an empty one last
      const some = await new Promise((ok, no) => reader.readEntries(ok, no));
      if (!some.length) return;
      for (const e of some) await walk(e);
    }
  };
  // The entries must be taken before the first await: the list is emptied after the event.
  const roots = entries.filter((e) => e.kind === "file").map((e) => [e.webkitGetAsEntry?.(), e.getAsFile()]);
  for (const [entry, file] of roots) {
    if (entry) await walk(entry).catch(() => announce("A folder could not be read."));
    else if (file) out.push(/** @type {File} */ (file));
  }
  return out;
}

/** @param {() => string} dataset name of the dataset on show */
export function listen(dataset) {
  const over = byId("drop");
  let depth = 0;
  const carriesFiles = (/** @type {DragEvent} */ e) => e.dataTransfer?.types.includes("Files");
  document.addEventListener("dragenter", (e) => {
    if (!carriesFiles(e)) return;
    e.preventDefault();
    depth++;
    over.hidden = false;
    byId("drop-where").textContent = dataset();
  });
  document.addEventListener("dragover", (e) => {
    if (carriesFiles(e)) e.preventDefault();
  });
  document.addEventListener("dragleave", (e) => {
    if (carriesFiles(e) && --depth <= 0) over.hidden = true;
  });
  document.addEventListener("drop", async (e) => {
    if (!carriesFiles(e) || !e.dataTransfer) return;
    e.preventDefault();
    depth = 0;
    over.hidden = true;
    upload(await filesOf([...e.dataTransfer.items]), dataset());
  });
  byId("uploads-retry").addEventListener("click", retryFailed);
  const fold = byId("uploads-fold");
  fold.addEventListener("click", () => {
    const folded = byId("uploads").classList.toggle("folded");
    fold.textContent = folded ? "Show" : "Hide";
    fold.setAttribute("aria-expanded", String(!folded));
  });
  byId("uploads-close").addEventListener("click", () => {
    items = items.filter((i) => i.state === "failed");
    byId("uploads").hidden = true;
  });
  window.addEventListener("beforeunload", (e) => {
    if (sending || waiting.length) e.preventDefault(); // what is on its way would have to be dropped once more
  });
}

/** A button that opens the file chooser. @param {string} label @param {() => string} dataset @param {boolean} [folder] */
export function chooser(label, dataset, folder) {
  const input = el("input", { type: "file", multiple: true, hidden: true, webkitdirectory: folder, "aria-label": label });
  input.addEventListener("change", () => {
    upload([...(input.files || [])], dataset());
    input.value = "";
  });
  return el("span", {}, button(label, () => input.click(), { class: folder ? "" : "primary" }), input);
}

