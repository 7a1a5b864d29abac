// @ts-check
/** Two versions of a document beside each other: the settings and the chunks that differ. */
import { get } from "./api.js";
import { button, el, empty, icon } from "./dom.js";
import { number, plural } from "./format.js";
import { setting } from "./parts.js";
import { chunkText } from "./text.js";

/** @typedef {import("./types.js").Chunk} Chunk */
/** @typedef {import("./types.js").ChunkChange} ChunkChange */

const perPage = 50;

/** What became of a chunk: its words, tone and sign. @type {Record<string, [string, string, string]>} */
const changes = { changed: ["changed", "part", "half"], added: ["added", "ok", "up"], removed: ["removed", "bad", "cross"], same: ["the same", "off", "check"] };

/**
 * @param {string} base address of the document @param {number} from @param {number} to
 * @param {string} show one of the changes, or "" for all but what is the same
 * @param {string} unit @param {AbortSignal} signal
 */
export async function comparison(base, from, to, show, unit, signal) {
  const p = new URLSearchParams({ from: String(from), to: String(to), limit: String(perPage) });
  for (const k of show ? [show] : ["changed", "added", "removed"]) p.append("change", k);
  /** @type {import("./types.js").Comparison} */
  const c = await get(`${base}/compare?${p}`, signal);
  const list = el("ol", { class: "changes" }, c.items.map((x) => change(x, unit)));
  let cursor = c.next_cursor;
  const more = button("Show more", async () => {
    p.set("cursor", cursor || "");
    /** @type {import("./types.js").Comparison} */
    const next = await get(`${base}/compare?${p}`, signal);
    cursor = next.next_cursor;
    list.append(...next.items.map((x) => change(x, unit)));
    more.hidden = !cursor;
  });
  more.hidden = !cursor;
  const link = (/** @type {string} */ k, /** @type {string} */ label) => el("a", { class: "button", href: `?${new URLSearchParams({ tab: "versions", from: String(from), to: String(to), ...(k ? { show: k } : {}) })}`, "aria-current": show === k ? "true" : undefined }, label);
  const all = c.counts.changed + c.counts.added + c.counts.removed;
  return el("section", { class: "comparison", "aria-label": `Version ${from} and version ${to}` },
    el("h2", {}, `Version ${from} → version ${to}`),
    c.settings.length ? el("dl", { class: "facts" }, c.settings.map((s) => [el("dt", {}, setting(s.name)), el("dd", {}, value(s.from), " → ", value(s.to))])) : el("p", { class: "muted" }, "Both versions use the same settings."),
    el("nav", { class: "chips", "aria-label": "Chunks to show" }, link("", `${number(all)} different`), ...Object.entries(changes).map(([k, [label]]) => link(k, `${number(c.counts[/** @type {"same"} */ (k)])} ${label}`))),
    c.items.length ? list : empty(show ? "No chunks of this kind" : "The text is the same", el("p", {}, show ? "Choose another kind above." : `All ${plural(c.counts.same, "chunk")} are identical in both versions.`)), more);
}

/** @param {any} v */
const value = (v) => (v === null ? el("span", { class: "muted" }, "default") : el("code", {}, JSON.stringify(v)));

/** @param {ChunkChange} c @param {string} unit */
function change(c, unit) {
  const [label, tone, shape] = changes[c.change];
  const where = (/** @type {Chunk|undefined} */ x) => (x?.pages.length ? `${unit} ${x.pages[0]}` : "");
  const [was, is] = [where(c.from), where(c.to)];
  const place = was && is && was !== is ? `${was}, now ${is}` : is || was;
  const one = c.to || /** @type {Chunk} */ (c.from);
  return el("li", { class: `change ${c.change}` },
    el("p", { class: "path" }, el("span", { class: `badge ${tone}` }, icon(shape), label), place ? ` ${place}` : "", (one.heading_path || []).map((h, i) => [i ? " › " : " · ", el("bdi", {}, h)])),
    c.change === "changed" && c.from && c.to ? sides(c.from, c.to) : el("div", { class: c.change }, chunkText(one.text, one.kind)));
}

/** Words that only one side has are marked. @param {Chunk} a @param {Chunk} b */
function sides(a, b) {
  const [left, right] = wordDiff(a.text, b.text);
  const part = (/** @type {string} */ title, /** @type {[string, boolean][]} */ words, /** @type {"del"|"ins"} */ tag) =>
    el("div", {}, el("p", { class: "muted meta" }, title), el("p", { dir: "auto", class: "prose" }, words.map(([text, only]) => (only ? el(tag, {}, text) : text))));
  return el("div", { class: "two-sides" }, part("before", left, "del"), part("now", right, "ins"));
}

/** Beyond this many words a side is shown without marks. */
const mostWords = 1500;

/**
 * Runs of words, each with whether the other side lacks it.
 * @param {string} a @param {string} b @returns {[[string, boolean][], [string, boolean][]]}
 */
export function wordDiff(a, b) {
  const x = a.match(/\s*\S+/g) || [], y = b.match(/\s*\S+/g) || [];
  if (x.length > mostWords || y.length > mostWords) return [[[a, false]], [[b, false]]];
  // Lengths of the longest common sequence behind each pair of places.
  const w = y.length + 1, common = new Uint16Array((x.length + 1) * w);
  const same = (/** @type {number} */ i, /** @type {number} */ j) => x[i].trim() === y[j].trim();
  for (let i = x.length - 1; i >= 0; i--) for (let j = y.length - 1; j >= 0; j--) common[i * w + j] = same(i, j) ? common[(i + 1) * w + j + 1] + 1 : Math.max(common[(i + 1) * w + j], common[i * w + j + 1]);
  /** @type {[string, boolean][]} */
  const left = [];
  /** @type {[string, boolean][]} */
  const right = [];
  const add = (/** @type {[string, boolean][]} */ side, /** @type {string} */ word, /** @type {boolean} */ only) => {
    const last = side[side.length - 1];
    if (last && last[1] === only) last[0] += word;
    else side.push([word, only]);
  };
  let i = 0, j = 0;
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && same(i, j)) {
      add(left, x[i++], false);
      add(right, y[j++], false);
    } else if (j >= y.length || (i < x.length && common[(i + 1) * w + j] >= common[i * w + j + 1])) add(left, x[i++], true);
    else add(right, y[j++], true);
  }
  return [left, right];
}
