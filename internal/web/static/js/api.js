// @ts-check
/** The HTTP API of the server that the page came from. */

/** @typedef {import("./types.js").Doc} Doc */

/** An answer that is not a success, with the server's own words. */
export class ApiError extends Error {
  /** @param {number} status @param {any} problem @param {number} retryAfter seconds */
  constructor(status, problem, retryAfter = 0) {
    super(problem?.detail || problem?.title || `The server answered ${status}.`);
    this.status = status;
    this.code = problem?.code || "";
    /** The fields at fault, as body.quota.bytes. @type {{location?: string, message: string}[]} */
    this.fields = problem?.errors || [];
    this.retryAfter = retryAfter;
  }
}

const slot = "sheaf-key";

/** The API key lives as long as the tab, or until it is taken away where its owner said so. */
export const key = () => sessionStorage.getItem(slot) || localStorage.getItem(slot) || "";

/** Whether the key outlives the tab. */
export const keyStays = () => localStorage.getItem(slot) !== null;

/** @param {string} k @param {boolean} [stays] beyond this tab */
export function setKey(k, stays = false) {
  sessionStorage.removeItem(slot);
  localStorage.removeItem(slot);
  if (k) (stays ? localStorage : sessionStorage).setItem(slot, k);
}

/** @returns {Record<string, string>} */
export const auth = () => (key() ? { "X-Api-Key": key() } : {});

/** Is told when the server asks for a key. @type {{ask: () => void}} */
export const onUnauthorized = { ask() {} };

/**
 * @param {string} path
 * @param {RequestInit} [init]
 * @returns {Promise<Response>}
 */
export async function request(path, init = {}) {
  let r;
  try {
    r = await fetch(path, { ...init, headers: { ...auth(), ...init.headers } });
  } catch (e) {
    if (init.signal?.aborted) throw e;
    throw new ApiError(0, { detail: "The server is not responding. Is it running? The page retries automatically." });
  }
  if (r.ok) return r;
  const problem = await r.json().catch(() => null);
  if (r.status === 401) onUnauthorized.ask();
  throw new ApiError(r.status, problem, Number(r.headers.get("Retry-After")) || 0);
}

/** Answers that may lack the last changes, since many read them or counting takes long. @type {WeakSet<object>} */
const lagging = new WeakSet();

/** Whether an answer may lack the last changes: it is worth reading again in a moment. @param {object[]} answers */
export const lags = (...answers) => answers.some((a) => lagging.has(a));

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function get(path, signal) {
  const r = await request(path, { signal }), answer = await r.json();
  if (Number(r.headers.get("Age"))) lagging.add(answer);
  return answer;
}

/** @param {string} path @param {any} [body] @param {string} [method] @param {Record<string, string>} [headers] @returns {Promise<any>} */
export async function send(path, body, method = "POST", headers = {}) {
  const init = body === undefined ? { method, headers } : { method, headers: { "Content-Type": "application/json", ...headers }, body: JSON.stringify(body) };
  return (await request(path, init)).json();
}

/** @param {string} ds */
export const datasetPath = (ds) => `/v1/datasets/${encodeURIComponent(ds)}`;

/** @param {string} ds @param {string} doc */
export const documentPath = (ds, doc) => `${datasetPath(ds)}/documents/${encodeURIComponent(doc)}`;

/**
 * The names and datasets of documents, in one request; those that are gone are left out.
 * @param {string} ds "-" for all datasets @param {string[]} ids @param {AbortSignal} [signal]
 * @returns {Promise<{id: string, name: string, dataset_id: string}[]>}
 */
export async function documentNames(ds, ids, signal) {
  const p = new URLSearchParams({ limit: String(ids.length), fields: "id,name,dataset_id" });
  for (const id of ids) p.append("id", id);
  return ids.length ? (await get(`${datasetPath(ds)}/documents?${p}`, signal)).items : [];
}

/**
 * Reads every page of a listing, at most max items.
 * @param {string} path @param {number} max @param {AbortSignal} [signal]
 * @returns {Promise<any[]>}
 */
export async function all(path, max, signal) {
  const out = [];
  let cursor = "";
  do {
    const p = new URLSearchParams({ limit: String(Math.min(max - out.length, 1000)) });
    if (cursor) p.set("cursor", cursor);
    const page = await get(`${path}${path.includes("?") ? "&" : "?"}${p}`, signal);
    out.push(...page.items);
    cursor = page.next_cursor || "";
  } while (cursor && out.length < max);
  return out;
}

/** Aborted requests are not errors. @param {unknown} e */
export const aborted = (e) => e instanceof DOMException && e.name === "AbortError";

/**
 * Saves a file of the API. Without a key the browser fetches it itself.
 * @param {string} path @param {string} name
 */
export async function download(path, name) {
  if (!key()) return save(path, name);
  const url = URL.createObjectURL(await (await request(path)).blob());
  save(url, name);
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** @param {string} href @param {string} name */
export function save(href, name) {
  const a = document.createElement("a");
  a.href = href;
  a.download = name;
  a.click();
}

/** The address of an image, fetched by hand where it needs a key. @param {string} path @param {AbortSignal} signal @returns {Promise<string>} */
export async function image(path, signal) {
  if (!key()) return path;
  const url = URL.createObjectURL(await (await request(path, { signal })).blob());
  signal.addEventListener("abort", () => URL.revokeObjectURL(url));
  return url;
}
