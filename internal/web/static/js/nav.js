// @ts-check
/** Where the reader is, and going elsewhere. Views use it; main.js draws what it says. */

const remembered = "sheaf-dataset";

/** The view on show. back: the reader came back to it, so that it takes up where it was left. */
export const current = { path: "", back: false, params: /** @type {Record<string, string>} */ ({}), view: /** @type {import("./types.js").View} */ (undefined), stop: new AbortController() };

/** @type {{show: () => void}} */
export const frame = { show() {} };

/** The dataset on show, where a drop goes. */
export function dataset() {
  return current.params.ds || new URLSearchParams(location.search).get("dataset") || home();
}

/** The dataset that was looked at last. */
export const home = () => localStorage.getItem(remembered) || "default";

/** @param {string} ds */
export const remember = (ds) => localStorage.setItem(remembered, ds);

/** What is deleted, or was mistyped, is nobody's home. @param {string} ds */
export function forget(ds) {
  if (localStorage.getItem(remembered) === ds) localStorage.removeItem(remembered);
}

/** @param {string} url @param {{replace?: boolean}} [options] */
export function go(url, { replace } = {}) {
  if (url === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", url);
  frame.show();
}

/** Writes to the address what a view shows, without drawing it anew. @param {Record<string, string|string[]>} changes a list is repeated */
export function note(changes) {
  const q = new URLSearchParams(location.search);
  for (const [k, v] of Object.entries(changes)) {
    q.delete(k);
    for (const one of [v].flat()) if (one) q.append(k, one);
  }
  history.replaceState(null, "", location.pathname + (q.size ? `?${q}` : ""));
}

/** @param {string} text */
export function title(text) {
  document.title = text ? `${text.slice(0, 200)} · Sheaf` : "Sheaf";
}
