// @ts-check
import { auth, get, key } from "./api.js";
import { byId } from "./dom.js";

/** @typedef {import("./types.js").SheafEvent} SheafEvent */

/** Kinds of events. */
export const kinds = ["claimed", "done", "failed", "dead", "snoozed", "released", "lost", "canceled", "superseded", "retried", "progress", "message", "output", "document"];

/** How long a poll waits when no stream can be had, in milliseconds. */
const pollInterval = 2000;

/**
 * Paces what a view reads again while things change: at once after a quiet time,
 * and about one request a second if changes do not end, whatever one reading
 * costs.
 *
 * @param {number} [burst] requests at once after a quiet time
 */
export function pacer(burst = 20) {
  let left = burst, at = Date.now();
  return {
    /** @param {number} requests that were made */
    spend(requests) {
      const now = Date.now();
      left = Math.min(burst, left + (now - at) / 1000) - requests;
      at = now;
    },
    /** Milliseconds until the next reading, at least so many. @param {number} least */
    wait: (least) => Math.max(least, at - Date.now() - left * 1000),
  };
}

/** How long what comes in a stream is gathered before it is handed on, in milliseconds: a little, where much comes, and where each status draws much anew. */
export const beats = { few: 200, many: 1000, heavy: 1500 };

/** Frames in one beat from which on it is much. */
const manyFrames = 10;

/**
 * Hands on what comes, in its order: at once after a quiet time, and then what has
 * gathered, at most once in a beat. A view draws once for all of it.
 * @template T
 * @param {(batch: T[]) => void} to
 * @param {AbortSignal} signal
 * @param {number} [least] the shortest beat, in milliseconds
 * @returns {{add: (item: T) => void, flush: () => void}}
 */
export function gather(to, signal, least = beats.few) {
  /** @type {T[]} */
  let waiting = [];
  let timer = 0;
  const flush = () => {
    clearTimeout(timer);
    timer = 0;
    const batch = waiting;
    waiting = [];
    if (!batch.length || signal.aborted) return;
    timer = setTimeout(flush, batch.length < manyFrames ? least : Math.max(least, beats.many));
    to(batch);
  };
  signal.addEventListener("abort", () => clearTimeout(timer));
  return {
    add(item) {
      waiting.push(item);
      // What comes with it, in the same piece of the stream, is read first.
      if (!timer) timer = setTimeout(flush);
    },
    flush,
  };
}

/** @param {"live"|"polling"|"lost"|"idle"} state */
export function showLine(state) {
  const words = { live: "Live", polling: "Polling", lost: "Reconnecting", idle: "Up to date" };
  const e = byId("line");
  if (e.dataset.state === state && e.textContent === words[state]) return;
  e.dataset.state = state;
  e.textContent = words[state];
}

/**
 * Follows the events of a dataset, document or job. Each event arrives once, in
 * order, whatever the line does: the browser sends the number of the last one
 * it saw and the server goes on behind it. Where streams do not work, the same
 * log is polled. Of what comes at once only the newest status is handed on.
 *
 * @param {string} path of the resource
 * @param {{status?: (s: any) => void, event?: (e: SheafEvent) => void, end?: (s: any) => void, poll?: () => void}} on
 *   status: the resource as it is; end: nothing more will come; poll: look for yourself, the log cannot be had
 * @param {AbortSignal} signal ends it
 * @param {{after?: string, of?: string[], beat?: number}} [options] after: number of the last event known, or "now"; of: the kinds of events that are handed on, for a view of many documents that needs only some; beat: how long what comes is gathered at least, in milliseconds
 */
export function follow(path, on, signal, { after = "now", of = kinds, beat } = {}) {
  let last = after;
  let over = false;
  const wanted = new Set([...of, "status", "end"]);
  /** @typedef {{kind: string, id: string, data: string}} Frame its data as JSON, which is read when it is handed on */
  const { add, flush } = gather((/** @type {Frame[]} */ frames) => {
    const newest = frames.findLast((f) => f.kind === "status");
    for (const f of frames) {
      if (signal.aborted) return;
      if (f.kind !== "status") take(f.kind, JSON.parse(f.data));
      else {
        if (f.id) last = f.id;
        if (f === newest) on.status?.(JSON.parse(f.data));
      }
    }
  }, signal, beat);
  /** @param {string} kind @param {any} data */
  const take = (kind, data) => {
    if (kind === "end") {
      showLine("idle");
      return on.end?.(data);
    }
    if (last !== "now" && data.seq <= Number(last)) return; // a repeat
    last = String(data.seq);
    if (wanted.has(kind)) on.event?.(data);
  };
  /** @param {string} kind @param {string} id @param {string} data */
  const arrived = (kind, id, data) => {
    if (signal.aborted) return;
    over ||= kind === "end";
    add({ kind, id, data });
    if (over) flush(); // nothing more comes
  };
  const url = () => `${path}${path.includes("?") ? "&" : "?"}after=${last}`;
  const done = () => over || signal.aborted;

  /** Streams end with the view that wanted them. */
  const withEventSource = () => {
    const source = new EventSource(url());
    signal.addEventListener("abort", () => source.close());
    source.onopen = () => showLine("live");
    source.onerror = () => {
      if (done()) return source.close();
      showLine("lost");
      if (source.readyState !== EventSource.CLOSED) return;
      flush();
      void poll(); // refused: it will not try again by itself
    };
    for (const kind of wanted) {
      source.addEventListener(kind, (e) => {
        const m = /** @type {MessageEvent} */ (e);
        arrived(kind, m.lastEventId, m.data);
        if (over) source.close();
      });
    }
  };

  /** An EventSource cannot send a key, so the stream is read by hand. */
  const withFetch = async () => {
    let passed = "0"; // the last event that was not wanted
    for (let wait = 500; !done(); wait = Math.min(wait * 2, 15_000)) {
      try {
        const r = await fetch(url(), { headers: { ...auth(), Accept: "text/event-stream" }, signal });
        if (!r.ok || !r.body || !r.headers.get("Content-Type")?.startsWith("text/event-stream")) return poll();
        showLine("live");
        wait = 500;
        let text = "";
        const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
          const { value, done: ended } = await reader.read();
          if (ended) break;
          text += value;
          for (let at; (at = text.indexOf("\n\n")) >= 0; text = text.slice(at + 2)) {
            const fields = new Map(text.slice(0, at).split("\n").map((l) => /** @type {[string, string]} */ ([l.slice(0, l.indexOf(":")), l.slice(l.indexOf(":") + 2)])));
            const data = fields.get("data"), kind = fields.get("event") || "message";
            if (data && wanted.has(kind)) arrived(kind, fields.get("id") || "", data);
            else if (data) passed = fields.get("id") || passed;
          }
        }
      } catch (e) {
        if (done()) return;
      }
      flush(); // the next stream goes on behind it
      if (Number(passed) > Number(last)) last = passed;
      if (done()) return;
      showLine("lost");
      await new Promise((r) => setTimeout(r, wait));
    }
  };

  const poll = async () => {
    showLine("polling");
    while (!done()) {
      await new Promise((r) => setTimeout(r, pollInterval));
      if (done()) return;
      if (on.poll) {
        on.poll();
        continue;
      }
      try {
        const page = await get(`${path}/events?limit=1000&after=${last === "now" ? 0 : last}`, signal);
        for (const e of page.items) take(e.kind, e);
        const status = await get(path, signal);
        on.status?.(status);
        showLine("polling");
        if (["succeeded", "partially_succeeded", "failed", "canceled"].includes(status.state) && !page.items.length) {
          over = true;
          take("end", status);
        }
      } catch {
        if (!done()) showLine("lost");
      }
    }
  };

  if (key()) void withFetch();
  else if ("EventSource" in window) withEventSource();
  else void poll();
}
