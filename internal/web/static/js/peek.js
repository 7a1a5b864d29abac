// @ts-check
/** A look at a document beside the list, which follows the row that has the focus. */
import { aborted, documentPath, get } from "./api.js";
import { cure } from "./causes.js";
import { el, icon, name, trouble } from "./dom.js";
import { bytes, drawable, format, number, plural, time } from "./format.js";
import { pageImage } from "./page.js";
import { badge, failureLine, ledgerBar } from "./parts.js";
import { chunkText } from "./text.js";

/** @typedef {import("./types.js").Doc} Doc */

/** @param {string} ds @param {AbortSignal} signal of the view */
export function peek(ds, signal) {
  const root = el("aside", { class: "peek", "aria-label": "Preview", hidden: true });
  let stop = new AbortController();
  let shown = "";
  signal.addEventListener("abort", () => stop.abort());

  /** @param {Doc} d */
  function show(d) {
    const at = `${d.id} ${d.state} ${d.generation} ${d.chunks}`;
    if (at === shown) return;
    shown = at;
    stop.abort();
    stop = new AbortController();
    const mine = stop.signal, link = `/datasets/${encodeURIComponent(ds)}/documents/${d.id}`;
    const text = el("div", { class: "peek-text", "aria-busy": "true" });
    const f = d.failure;
    root.replaceChildren(
      el("h2", {}, el("a", { href: link }, name(d.name))),
      el("p", {}, badge(d.state, d.not_before), " ", el("span", { class: "muted" }, [format(d.media_type), bytes(d.size), d.units ? plural(d.units, d.unit || "unit") : "", d.live_generation ? plural(d.chunks, "chunk") : ""].filter(Boolean).join(" · "))),
      f ? el("div", { class: "peek-issue" }, icon("warn"), el("p", {}, failureLine(f)), el("p", { class: "muted" }, cure(f))) : "",
      d.ledger && d.units ? ledgerBar(d) : "",
      el("p", { class: "muted" }, "Added ", time(d.created_at)),
      drawable(d.media_type) && d.units ? pageImage({ ds, doc: d.id, name: d.name, page: 1, dpi: 72, boxes: [], signal: mine, lazy: true }) : "", text);
    if (!d.live_generation) return text.removeAttribute("aria-busy");
    get(`${documentPath(ds, d.id)}/chunks?limit=3&fields=text,kind,heading_path`, mine).then((a) => {
      text.replaceChildren(...a.items.map((/** @type {any} */ c) => el("section", {}, c.heading_path?.length ? el("p", { class: "path" }, c.heading_path.join(" › ")) : "", ...chunkText(c.text.length > 600 ? c.text.slice(0, 600).replace(/\n[^\n]*$/, "") + "\n…" : c.text, c.kind))),
        d.chunks > 3 ? el("p", {}, el("a", { href: link }, `Read all ${number(d.chunks)} chunks`)) : "");
    }, (e) => !aborted(e) && text.replaceChildren(trouble(e))).finally(() => text.removeAttribute("aria-busy"));
  }
  return { root, show };
}
