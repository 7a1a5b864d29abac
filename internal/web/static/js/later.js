// @ts-check
/** What can be taken back: it is done when the time to undo is over. */
import { askDelete, documentsPath } from "./actions.js";
import { request } from "./api.js";
import { announce, button, el } from "./dom.js";
import { plural } from "./format.js";

/** @typedef {import("./actions.js").Chosen} Chosen */

const undoSeconds = 10;

/** Told of each change of what is about to go. @type {Set<() => void>} */
export const onLeaving = new Set();

/** What is about to be deleted. @type {Set<{ds: string, chosen: Chosen}>} */
const leaving = new Set();

/** Whether a document is about to be deleted. @param {string} ds @param {import("./types.js").Doc} d */
export const isLeaving = (ds, d) => [...leaving].some((l) => l.ds === ds && (l.chosen.has ? l.chosen.has(d) : false));

/**
 * Asks, and then deletes documents in a while, unless that is undone. A page that
 * is left meanwhile deletes them at once.
 * @param {string} ds @param {Chosen} chosen @param {() => void} done
 */
export async function deleteLater(ds, chosen, done) {
  if (!(await askDelete(ds, chosen))) return false;
  const what = { ds, chosen };
  leaving.add(what);
  const go = (/** @type {RequestInit} */ init = {}) => request(documentsPath(ds, "delete"), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(chosen.body), ...init });
  const text = el("span", { role: "status" });
  const bar = el("div", { class: "toast" }, text);
  let left = undoSeconds;
  const end = () => {
    clearInterval(tick);
    window.removeEventListener("pagehide", leave);
    leaving.delete(what);
    for (const f of onLeaving) f();
  };
  const finish = async () => {
    clearInterval(tick);
    undo.remove();
    text.textContent = `Deleting ${plural(chosen.count, "document")} …`;
    try {
      const r = await (await go()).json();
      end();
      bar.remove();
      announce(`${plural(r.documents, "document")} deleted`);
      done();
    } catch (e) {
      end();
      text.textContent = `Nothing was deleted: ${/** @type {Error} */ (e).message}`;
      bar.append(button("Close", () => bar.remove()));
    }
  };
  const leave = () => void go({ keepalive: true }).catch(() => {});
  const undo = button("Undo", () => {
    end();
    bar.remove();
    announce("Nothing was deleted");
  });
  const say = () => (text.textContent = `${plural(chosen.count, "document")} will be deleted`);
  say();
  bar.append(undo, el("span", { class: "muted num", "aria-hidden": "true" }, `${left} s`));
  const tick = setInterval(() => {
    // Whoever is about to press the button keeps the time.
    if (bar.matches(":hover") || bar.contains(document.activeElement)) return;
    if (--left <= 0) return void finish();
    /** @type {Element} */ (bar.lastElementChild).textContent = `${left} s`;
  }, 1000);
  window.addEventListener("pagehide", leave);
  document.body.append(bar);
  for (const f of onLeaving) f();
  return true;
}
