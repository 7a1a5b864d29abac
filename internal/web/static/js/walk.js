// @ts-check
/** The order of the list that a document was opened from, so that one leads to the next without going back. */

const slot = "sheaf-walk";

/** Documents that are kept on each side of the one that was opened. */
const around = 500;

/** @param {string} ds @param {string[]} ids in the order of the list @param {string} opened */
export function keepWalk(ds, ids, opened) {
  const at = ids.indexOf(opened), from = Math.max(0, at - around);
  if (at < 0) return;
  try {
    sessionStorage.setItem(slot, JSON.stringify({ ds, first: from, of: ids.length, ids: ids.slice(from, at + around + 1) }));
  } catch { /* without room for it there is no next document */ }
}

/**
 * @param {string} ds @param {string} doc
 * @returns {{before?: string, after?: string, at: number, of: number}|null} null: it was not opened from a list
 */
export function walkOf(ds, doc) {
  try {
    const w = JSON.parse(sessionStorage.getItem(slot) || "null");
    if (w?.ds !== ds || !Array.isArray(w.ids)) return null;
    const i = w.ids.indexOf(doc);
    return i < 0 ? null : { before: w.ids[i - 1], after: w.ids[i + 1], at: w.first + i + 1, of: w.of };
  } catch {
    return null;
  }
}
