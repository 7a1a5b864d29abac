// @ts-check
/** Small pieces that several views show. */
import { el, icon } from "./dom.js";
import { number, percent, plural, seconds, time } from "./format.js";
import { spoken } from "./names.js";

export { cure } from "./causes.js";
export { setting } from "./names.js";

/** @typedef {import("./types.js").Doc} Doc */
/** @typedef {import("./types.js").Task} Task */
/** @typedef {import("./types.js").LedgerRun} LedgerRun */

/** Words and shapes of document and job states. @type {Record<string, [string, string, string]>} */
export const states = {
  unstarted: ["Not started", "dot", "wait"],
  queued: ["Queued", "clock", "wait"],
  running: ["Running", "play", "run"],
  finalizing: ["Finishing", "play", "run"],
  succeeded: ["Succeeded", "check", "ok"],
  partially_succeeded: ["Partly succeeded", "half", "part"],
  failed: ["Failed", "cross", "bad"],
  canceling: ["Canceling", "stop", "off"],
  canceled: ["Canceled", "stop", "off"],
};

/** @param {string} state */
export const terminal = (state) => ["succeeded", "partially_succeeded", "failed", "canceled"].includes(state);

/** @param {string} state @param {string} [notBefore] what queued work waits for */
export function badge(state, notBefore) {
  const [text, shape, tone] = states[state] || [state, "dot", "wait"];
  const later = state === "queued" && notBefore && Date.parse(notBefore) > Date.now();
  return el("span", { class: `badge ${tone}` }, icon(shape), ...(later ? ["Not before ", time(notBefore)] : [text]));
}

/** @param {number} value 0–1 @param {string} label */
export function bar(value, label) {
  const p = el("progress", { max: 1, "aria-label": label });
  p.value = value;
  return p;
}

/** Words, tone and sign of task states; the sign tells them apart without colour. @type {Record<string, [string, string, string]>} */
export const cells = {
  parked: ["waiting for other tasks", "wait", ""],
  pending: ["queued", "wait", ""],
  scheduled: ["scheduled", "wait", ""],
  running: ["running", "run", "▸"],
  retry_wait: ["waiting to retry", "part", "↻"],
  done: ["done", "ok", "✓"],
  reused: ["reused", "reuse", "="],
  dead: ["failed", "bad", "✕"],
  partial: ["with failures", "part", "!"],
  canceled: ["canceled", "off", "–"],
  superseded: ["split into smaller ranges", "off", "÷"],
  ok: ["read", "ok", ""],
  ocr: ["read by OCR", "reuse", "o"],
  blank: ["blank", "wait", ""],
  skipped: ["skipped", "off", "–"],
  failed: ["failed", "bad", "✕"],
};

/**
 * What a range's cell shows. The ledger of the whole document knows better than
 * the task's own: a unit that failed in a range may have been read by a retry.
 * @param {Task} t @param {LedgerRun[]} [ledger]
 */
export function cellState(t, ledger) {
  const [from, to] = t.range || [0, 0];
  if (t.state === "done" && (ledger ? ledger.some((r) => r.status === "failed" && r.from <= to && r.to >= from) : t.ledger?.some((r) => r.status === "failed"))) return "partial";
  return t.state === "done" && t.reused ? "reused" : t.state;
}

/** Worse states win when one cell stands for several ranges. */
const order = ["superseded", "done", "reused", "canceled", "parked", "scheduled", "pending", "running", "retry_wait", "partial", "dead"];

/**
 * One cell per range of the newest generation; at most `most` cells, each
 * then standing for several ranges and showing the one that needs most care.
 * @param {Task[]} tasks @param {number} most @param {Map<string, number>} [share] part done of running tasks
 * @param {LedgerRun[]} [ledger] of the document, when it is known
 */
export function strip(tasks, most, share, ledger) {
  const cellOf = (/** @type {Task} */ t) => cellState(t, ledger);
  const ranges = tasks.filter((t) => t.range && (t.kind === "parse" || t.kind === "index") && t.state !== "superseded").sort((a, b) => (a.range?.[0] || 0) - (b.range?.[0] || 0));
  const list = el("span", { class: "strip", role: "img" });
  const per = Math.ceil(ranges.length / most) || 1;
  /** @type {Record<string, number>} */
  const sum = {};
  for (const t of ranges) sum[cellOf(t)] = (sum[cellOf(t)] || 0) + 1;
  for (let i = 0; i < ranges.length; i += per) {
    const group = ranges.slice(i, i + per);
    const state = group.map(cellOf).reduce((a, b) => (order.indexOf(b) > order.indexOf(a) ? b : a));
    const [text, tone, sign] = cells[state];
    const from = group[0].range?.[0] || 0, to = group[group.length - 1].range?.[1] || 0;
    const cell = el("span", { class: `cell ${tone}`, title: `${group[0].unit || "unit"} ${from === to ? from : `${from}–${to}`}: ${text}`, "data-task": group[0].id }, sign);
    const part = state === "running" && share?.get(group[0].id);
    if (part) cell.style.setProperty("--part", `${Math.round(part * 100)}%`);
    list.append(cell);
  }
  list.setAttribute("aria-label", ranges.length ? `${plural(ranges.length, "range")}: ${Object.entries(sum).map(([s, n]) => `${number(n)} ${cells[s][0]}`).join(", ")}` : "not split into ranges yet");
  return list;
}

/** The page ledger of a finished document as one bar of proportions. @param {Doc} d */
export function ledgerBar(d) {
  const l = d.ledger;
  const parts = /** @type {[string, number][]} */ ([["ok", l.ok], ["ocr", l.ocr], ["blank", l.blank], ["skipped", l.skipped], ["failed", l.failed]]).filter(([, n]) => n > 0);
  const e = el("span", { class: "strip whole", role: "img", "aria-label": parts.map(([s, n]) => `${number(n)} ${cells[s][0]}`).join(", ") || "nothing processed" });
  for (const [s, n] of parts) {
    const cell = el("span", { class: `cell ${cells[s][1]}`, title: `${plural(n, d.unit || "unit")} ${cells[s][0]}` }, cells[s][2]);
    cell.style.flexGrow = String(n);
    e.append(cell);
  }
  return e;
}

/** How far a document is, in words. @param {Doc} d */
export function doneText(d) {
  if (d.state === "running" || d.state === "finalizing" || (d.state === "queued" && d.progress > 0)) return percent(d.progress);
  if (d.ledger.failed && d.state !== "canceled") return `${number(d.ledger.failed)} failed`;
  return "";
}

/** Units of a document, such as "page 3" or "rows 1–40". @param {string} unit @param {number} from @param {number} to */
export const unitsAt = (unit, from, to) => (from === to ? `${unit} ${number(from)}` : `${unit}s ${number(from)}–${number(to)}`);

/** A sentence on some units, which names them once. @param {string} where @param {string} message */
export const located = (where, message) => {
  const said = spoken(message), text = said.toLowerCase().startsWith(`${where} `.toLowerCase()) || !where ? said : `${where}: ${said}`;
  return text[0].toUpperCase() + text.slice(1);
};

/** What a document has failed with, as one line. @param {import("./types.js").Failure} f @param {string} [unit] */
export const failureLine = (f, unit = "page") => located(f.page ? unitsAt(unit, f.page, f.page) : f.range ? unitsAt(unit, f.range[0], f.range[1]) : "", f.message);

/**
 * What a job waits for, as far as it does: "12 tasks of yours ahead", "the
 * embedding server asks to slow down, next try in 8 s". The seconds are counted
 * down while they are on show.
 * @param {import("./types.js").Job} job
 * @returns {HTMLElement[]}
 */
export function waiting(job) {
  /** @type {HTMLElement[]} */
  const out = [];
  const say = (/** @type {string} */ text) => {
    const e = el("span", { class: "waits" }, text);
    out.push(e);
    return e;
  };
  const { ahead_own: own = 0, ahead_others: others = 0, delayed } = job.queue || {};
  if (job.paused) say("paused");
  if (own + others) say(`${own ? `${plural(own, "task")} of yours` : ""}${own && others ? " and " : ""}${others ? `${own ? number(others) : plural(others, "task")} of others` : ""} ahead`);
  if (delayed) {
    const until = Date.parse(delayed.next_at);
    const text = () => `${delayed.reason.replace(/\.$/, "")}, ${until > Date.now() ? `next try in ${seconds(until - Date.now())}` : "tried again now"}`;
    const e = say(text());
    const tick = setInterval(() => {
      if (e.isConnected) e.textContent = text();
      else clearInterval(tick);
    }, 1000);
  }
  return out;
}
