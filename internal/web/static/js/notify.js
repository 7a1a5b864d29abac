// @ts-check
/** Tells when a job ends: on the page, and by the computer where its owner allows that. */
import { ApiError, get } from "./api.js";
import { announce, button, el, name } from "./dom.js";
import { number, plural } from "./format.js";
import { go } from "./nav.js";
import { states, terminal } from "./parts.js";

/** @typedef {import("./types.js").Job} Job */

const slot = "sheaf-watched";

/** Jobs that are watched at most, and how often they are asked for, in milliseconds. */
const most = 20, interval = 5000;

/** @returns {string[]} ids of jobs, of all tabs */
function watched() {
  try {
    const list = JSON.parse(localStorage.getItem(slot) || "[]");
    return Array.isArray(list) ? list.filter((id) => typeof id === "string").slice(-most) : [];
  } catch {
    return [];
  }
}
/** @param {string[]} ids */
const keep = (ids) => (ids.length ? localStorage.setItem(slot, JSON.stringify(ids.slice(-most))) : localStorage.removeItem(slot));

/** @param {string} id */
export const isWatched = (id) => watched().includes(id);

/** @param {string} id */
export function unwatch(id) {
  keep(watched().filter((x) => x !== id));
}

/** Watches a job. Where the browser can tell outside of the page it asks whether it may. @param {string} id */
export async function watch(id) {
  keep([...watched().filter((x) => x !== id), id]);
  follow();
  if ("Notification" in window && Notification.permission === "default") await Notification.requestPermission().catch(() => {});
}

/** @param {Job} job */
function told(job) {
  const text = `${states[job.state]?.[0] || job.state}: ${job.name || "job"}`, failed = (job.documents.by_state.failed || 0) + (job.documents.by_state.partially_succeeded || 0);
  const more = `${plural(job.documents.total, "document")}${failed ? `, ${number(failed)} with issues` : ""}`;
  announce(`${text}, ${more}`);
  const bar = el("section", { class: "toast job-ended", "aria-label": "A job has ended" }, el("span", {}, el("strong", {}, states[job.state]?.[0] || job.state), ": ", name(job.name || "job"), `, ${more}`),
    button("Show", () => {
      bar.remove();
      go(`/jobs/${job.id}`);
    }), button("Close", () => bar.remove()));
  for (const old of document.querySelectorAll(".job-ended")) old.remove(); // the newest is told of
  document.body.append(bar);
  if (!("Notification" in window) || Notification.permission !== "granted" || document.hasFocus()) return;
  try {
    const n = new Notification(text, { body: more, tag: job.id, icon: "/icon.svg" });
    n.onclick = () => {
      window.focus();
      bar.remove();
      go(`/jobs/${job.id}`);
      n.close();
    };
  } catch { /* some browsers of phones refuse; the page says it all the same */ }
}

let timer = 0;
/** Asks for the watched jobs, as long as there are any. Of several tabs the first that sees the end tells of it. */
export function follow() {
  if (timer || !watched().length) return;
  timer = setTimeout(async () => {
    for (const id of watched()) {
      try {
        const job = await get(`/v1/jobs/${id}`);
        if (!terminal(job.state) || !isWatched(id)) continue;
        unwatch(id);
        told(job);
      } catch (e) {
        if (e instanceof ApiError && e.status === 404) unwatch(id);
      }
    }
    timer = 0;
    follow();
  }, interval);
}
