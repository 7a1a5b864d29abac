// @ts-check
/**
 * Uploads: files and folders dropped anywhere, sent in batches that are safe to
 * repeat. A batch carries an Idempotency-Key, so one whose answer was lost is
 * not taken twice; after a break it is sent again by itself, then by hand.
 */
import { auth, datasetPath, onUnauthorized } from "./api.js";
import { announce, button, byId, el, icon, name } from "./dom.js";
import { bytes, percent, plural } from "./format.js";

/** @typedef {{file: File, state: "waiting"|"sending"|"sent"|"refused"|"failed", loaded: number, note: string, doc?: string, row?: HTMLElement}} Item */

const batchBytes = 32 << 20, batchFiles = 25, atOnce = 2, attempts = 4;

/** @type {Item[]} */
let items = [];
/** @type {{items: Item[], dataset: string, key: string}[]} */
let waiting = [];
let sending = 0;

/** Is told of every batch that arrived. @type {Set<() => void>} */
export const onUploaded = new Set();

/** @param {File[]} files @param {string} dataset */
export function upload(files, dataset) {
  if (!files.length) return;
  if (!sending && !waiting.length) items = items.filter((i) => i.state === "failed");
  const added = files.map((file) => /** @type {Item} */ ({ file, state: "waiting", loaded: 0, note: "" }));
  items.push(...added);
  let batch = /** @type {Item[]} */ ([]), size = 0;
  const flush = () => {
    if (batch.length) waiting.push({ items: batch, dataset, key: crypto.randomUUID() });
    batch = [];
    size = 0;
  };
  for (const i of added) {
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
    void sendBatch(b).finally(() => {
      sending--;
      next();
    });
  }
  render();
}

/** @param {typeof waiting[0]} batch */
async function sendBatch(batch) {
  for (let attempt = 1; ; attempt++) {
    for (const i of batch.items) Object.assign(i, { state: "sending", loaded: 0, note: "" });
    try {
      settle(batch, await post(batch));
      for (const f of onUploaded) f();
      return;
    } catch (e) {
      const err = /** @type {{message: string, again: boolean, after: number}} */ (e);
      if (!err.again || attempt === attempts) {
        for (const i of batch.items) Object.assign(i, { state: "failed", note: err.message });
        announce(`An upload failed: ${err.message}`);
        return;
      }
      const wait = err.after || 2 ** (attempt - 1);
      for (const i of batch.items) Object.assign(i, { state: "waiting", loaded: 0, note: `${err.message} Next try in ${wait} s.` });
      render();
      await new Promise((r) => setTimeout(r, wait * 1000));
    }
  }
}

/** @param {typeof waiting[0]} batch @returns {Promise<any>} */
function post(batch) {
  return new Promise((ok, fail) => {
    const form = new FormData();
    for (const i of batch.items) form.append("file", i.file, i.file.name);
    const x = new XMLHttpRequest();
    x.open("POST", `${datasetPath(batch.dataset)}/documents`);
    x.setRequestHeader("Idempotency-Key", batch.key);
    for (const [k, v] of Object.entries(auth())) x.setRequestHeader(k, v);
    x.upload.onprogress = (e) => {
      // The files travel one behind the other: what was sent fills them in order.
      let left = e.loaded;
      for (const i of batch.items) {
        i.loaded = Math.min(left, i.file.size);
        left -= i.loaded;
      }
      schedule();
    };
    x.onerror = () => fail({ message: "The connection broke.", again: true, after: 0 });
    x.onload = () => {
      let body;
      try {
        body = JSON.parse(x.responseText);
      } catch {
        body = null;
      }
      if (x.status === 401) onUnauthorized.ask();
      if (x.status >= 200 && x.status < 300) ok(body);
      else if (x.status === 422 && body?.code !== "idempotency_key_reused" || x.status === 400 || x.status === 413 || x.status === 415) settleRefused(batch, body, ok);
      else fail({ message: body?.detail || `The server answered ${x.status}.`, again: x.status === 429 || x.status === 409 || x.status >= 500, after: Number(x.getResponseHeader("Retry-After")) || 0 });
    };
    x.send(form);
  });
}

/** When not one file of a batch was taken the answer is a problem. @param {typeof waiting[0]} batch @param {any} body @param {(v: any) => void} ok */
function settleRefused(batch, body, ok) {
  ok({ documents: [], rejected: batch.items.map((i) => ({ name: i.file.name, failure: { message: body?.detail || "The server refused the file." } })) });
}

/** @param {typeof waiting[0]} batch @param {any} answer */
function settle(batch, answer) {
  const docs = [...answer.documents];
  // Answers keep the order of the files; those refused are missing from it.
  let refused = [...(answer.rejected || [])];
  for (const i of batch.items) {
    i.loaded = i.file.size;
    const no = docs.length + refused.length >= 1 && refused.length && (refused[0].name === i.file.name || !docs.length);
    if (no) {
      Object.assign(i, { state: "refused", note: refused[0].failure.message });
      refused = refused.slice(1);
      continue;
    }
    const d = docs.shift();
    Object.assign(i, { state: "sent", doc: d && `/datasets/${encodeURIComponent(batch.dataset)}/documents/${d.id}`, note: d?.duplicate_of ? "The same bytes are here already; nothing is parsed twice." : "" });
  }
  const n = batch.items.filter((i) => i.state === "sent").length;
  announce(`${plural(n, "file")} uploaded`);
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

const words = { waiting: "Waiting", sending: "Sending", sent: "Uploaded", refused: "Refused", failed: "Failed" };
const shapes = { waiting: "clock", sending: "up", sent: "check", refused: "cross", failed: "cross" };

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
const rank = (i) => ({ failed: 0, refused: 1, sending: 2, waiting: 3, sent: 4 })[i.state];

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
  upload(bad.map((i) => i.file), current());
}

/** @type {() => string} */
let current = () => "default";

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
  current = dataset;
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
  byId("uploads-close").addEventListener("click", () => {
    items = items.filter((i) => i.state === "failed");
    byId("uploads").hidden = true;
  });
  window.addEventListener("beforeunload", (e) => {
    if (sending || waiting.length) e.preventDefault(); // what is on its way would be lost
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

