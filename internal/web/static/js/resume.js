// @ts-check
/**
 * One file to the server, in as many requests as the line needs: the tus
 * protocol. What arrived stays there; after a break, also after a reload, the
 * file resumes.
 */
import { ApiError, auth, datasetPath, onUnauthorized, request } from "./api.js";

/** config: settings of the document, as JSON; "" for those of the dataset. metadata: stored with it, as JSON; "" for none. lane: of its work; "" for the usual one. @typedef {{file: File, dataset: string, config: string, metadata?: string, lane?: string, url?: string, offset?: number}} Sending */
/** @typedef {{progress: (loaded: number) => void, waits: (why: string, seconds: number) => void, resumed: (at: number) => void}} Watch */

const version = { "Tus-Resumable": "1.0.0" };
const slot = "sheaf-upload:";
const dayMS = 86_400_000, mostKept = 500;

/** Breaks in a row, with no byte between them, after which a file is given up. */
const attempts = 8;
const longestWait = 15;

/** @param {string} s */
const base64 = (s) => btoa(String.fromCharCode(...new TextEncoder().encode(s)));

/**
 * What tells a file from others without reading it whole: its place, name, size
 * and time, and, where the browser lets a page hash, its first and last bytes.
 * @param {Sending} s
 */
async function fingerprint({ file, dataset, config, metadata, lane }) {
  const known = [dataset, file.name, file.size, file.lastModified, ...(config ? [config] : []), ...(metadata ? [metadata] : []), ...(lane ? [lane] : [])].join("\n");
  if (!crypto.subtle) return known;
  const ends = await new Blob([known, file.slice(0, 65536), file.slice(Math.max(0, file.size - 65536))]).arrayBuffer();
  return [...new Uint8Array(await crypto.subtle.digest("SHA-256", ends))].map((b) => b.toString(16).padStart(2, "0")).join("");
}

/** Forgets what the server has forgotten, and the oldest of too many. */
function tidy() {
  const kept = Object.keys(localStorage).filter((k) => k.startsWith(slot)).map((k) => ({ k, at: Number(localStorage.getItem(k)?.split(" ")[0]) || 0 })).sort((a, b) => b.at - a.at);
  for (const [i, { k, at }] of kept.entries()) if (i >= mostKept || at < Date.now() - dayMS) localStorage.removeItem(k);
}

/** @param {string} print @param {string} url */
function remember(print, url) {
  try {
    localStorage.setItem(slot + print, `${Date.now()} ${url}`);
  } catch {
    // a full or forbidden storage costs the going on after a reload
  }
}

/** Uploads that a file of this page is bound to: twins in one drop must not share one. @type {Set<string>} */
const inUse = new Set();

/** Leaves the upload to whoever drops the file next. @param {Sending} s */
export function release(s) {
  inUse.delete(s.url || "");
}

/** Is called when the server has made a document of the file. @param {Sending} s */
export async function forget(s) {
  release(s);
  localStorage.removeItem(slot + (await fingerprint(s)));
}

/** The id of a file that is stored. @param {Sending} s */
export const uploadId = (s) => (s.url || "").split("/").at(-1) || "";

/**
 * Brings a file to the server, however often the connection drops.
 * @param {Sending} s @param {Watch} watch
 */
export async function sendFile(s, watch) {
  tidy();
  const print = await fingerprint(s);
  const found = localStorage.getItem(slot + print)?.split(" ")[1];
  if (found && !inUse.has(found)) s.url ||= found;
  if (s.url) inUse.add(s.url);
  const key = crypto.randomUUID();
  let known = false;
  for (let broken = 0; ; ) {
    const before = s.offset ?? 0;
    try {
      if (s.url && !known) {
        s.offset = await ask(s.url);
        if (s.offset > 0) watch.resumed(s.offset);
      } else if (!s.url) {
        s.url = await create(s, print, key);
        s.offset = 0;
        inUse.add(s.url);
        remember(print, s.url);
      }
      known = true;
      watch.progress(s.offset ?? 0);
      while ((s.offset ?? 0) < s.file.size) s.offset = await patch(s, watch);
      return;
    } catch (e) {
      const err = /** @type {ApiError} */ (e);
      known = false; // the server says how much it has
      if (s.url && (err.status === 404 || err.status === 410)) { // it has expired: from the start
        release(s);
        delete s.url;
        localStorage.removeItem(slot + print);
      } else if (err.status && err.status < 500 && ![400, 408, 409, 423, 429].includes(err.status)) throw e;
      else if (err.status === 400 && err.code !== "upload_broke_off") throw e;
      broken = (s.offset ?? 0) > before ? 1 : broken + 1;
      if (broken > attempts) throw e;
      const wait = err.retryAfter || Math.min(2 ** (broken - 1), longestWait);
      watch.waits(err.message, wait);
      await new Promise((r) => setTimeout(r, wait * 1000));
    }
  }
}

/** @param {Sending} s @param {string} print @param {string} key makes a repeat safe whose answer was lost */
async function create(s, print, key) {
  const about = [["filename", s.file.name], ["hold", "true"], ["fingerprint", print.slice(0, 128)]];
  if (s.config) about.push(["parser_config", s.config]);
  if (s.metadata) about.push(["metadata", s.metadata]);
  if (s.lane) about.push(["lane", s.lane]);
  if (s.file.type) about.push(["filetype", s.file.type]);
  const r = await request(`${datasetPath(s.dataset)}/uploads`, {
    method: "POST", headers: { ...version, "Idempotency-Key": key, "Upload-Length": String(s.file.size), "Upload-Metadata": about.map(([k, v]) => `${k} ${base64(v)}`).join(",") },
  });
  return r.headers.get("Location") || "";
}

/** How many bytes the server has. @param {string} url */
async function ask(url) {
  const r = await request(url, { method: "HEAD", headers: version });
  if (r.headers.get("Sheaf-Job")) throw new ApiError(404, null); // it became a document before
  return Number(r.headers.get("Upload-Offset"));
}

/** Sends what the server does not have yet. @param {Sending} s @param {Watch} watch @returns {Promise<number>} */
function patch(s, watch) {
  const from = s.offset ?? 0;
  return new Promise((ok, fail) => {
    const x = new XMLHttpRequest(); // fetch says nothing about how much it has sent
    x.open("PATCH", s.url || "");
    for (const [k, v] of Object.entries({ ...auth(), ...version, "Content-Type": "application/offset+octet-stream", "Upload-Offset": String(from) })) x.setRequestHeader(k, v);
    x.upload.onprogress = (e) => watch.progress(from + e.loaded);
    x.onerror = () => fail(new ApiError(0, { detail: "The connection was lost." }));
    x.onload = () => {
      if (x.status === 204) return ok(Number(x.getResponseHeader("Upload-Offset")));
      if (x.status === 401) onUnauthorized.ask();
      let problem = null;
      try {
        problem = JSON.parse(x.responseText);
      } catch {
        // not from Sheaf: the status has to do
      }
      fail(new ApiError(x.status, problem, Number(x.getResponseHeader("Retry-After")) || 0));
    };
    x.send(s.file.slice(from));
  });
}
