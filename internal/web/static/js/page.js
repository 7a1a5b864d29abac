// @ts-check
/** A drawn page with boxes over it. */
import { documentPath, image } from "./api.js";
import { el, svg } from "./dom.js";

/** @typedef {import("./types.js").Box} Box */

/**
 * @param {{ds: string, doc: string, name: string, page: number, dpi: number, boxes: {box: Box, key: string, label: string}[], signal: AbortSignal, pick?: (key: string) => void, lazy?: boolean}} o
 */
export function pageImage({ ds, doc, name, page, dpi, boxes, signal, pick, lazy }) {
  const figure = el("figure", { class: "page", "aria-busy": "true" });
  const img = el("img", { alt: `Page ${page} of ${name.slice(0, 200)}`, loading: lazy ? "lazy" : undefined, decoding: "async" });
  const over = svg("svg", { class: "boxes", preserveAspectRatio: "none" });
  img.addEventListener("load", () => {
    figure.removeAttribute("aria-busy");
    // The server draws at dpi; boxes are in points, 72 to the inch.
    over.setAttribute("viewBox", `0 0 ${(img.naturalWidth * 72) / dpi} ${(img.naturalHeight * 72) / dpi}`);
  });
  img.addEventListener("error", () => {
    figure.removeAttribute("aria-busy");
    figure.replaceChildren(el("p", { class: "muted no-image" }, "This page cannot be drawn."));
  });
  drawBoxes(over, boxes, pick);
  figure.append(img, over);
  image(`${documentPath(ds, doc)}/pages/${page}/image?dpi=${dpi}`, signal).then((src) => (img.src = src), () => img.dispatchEvent(new Event("error")));
  return figure;
}

/**
 * Draws boxes in place of those that were there.
 * @param {Element} over the drawing over the page @param {{box: Box, key: string, label: string}[]} boxes @param {(key: string) => void} [pick]
 */
export function drawBoxes(over, boxes, pick) {
  over.replaceChildren(...boxes.map(({ box, key, label }) => {
    const r = svg("rect", { x: box.x0 - 1, y: box.y0 - 1, width: Math.max(box.x1 - box.x0, 2) + 2, height: Math.max(box.y1 - box.y0, 2) + 2, rx: 1.5, "data-key": key });
    if (pick) {
      r.append(svg("title", {}, label));
      r.addEventListener("click", () => pick(key));
    }
    return r;
  }));
}

/**
 * The pictures inside the file that a chunk describes or is followed by.
 * @param {{ds: string, doc: string, chunk: import("./types.js").Chunk, signal: AbortSignal}} o
 */
export function pictures({ ds, doc, chunk, signal }) {
  return (chunk.metadata?.pictures || "").split("\n").filter(Boolean).map((name, i) => {
    const img = el("img", { class: "figure", alt: `Picture ${i + 1} of the text below`, decoding: "async" });
    img.addEventListener("error", () => img.remove());
    image(`${documentPath(ds, doc)}/pictures/${encodeURIComponent(name)}?side=640`, signal).then((src) => (img.src = src), () => img.remove());
    return img;
  });
}

/**
 * The figures of a chunk, cut out of their page.
 * @param {{ds: string, doc: string, chunk: import("./types.js").Chunk, signal: AbortSignal}} o
 */
export function figures({ ds, doc, chunk, signal }) {
  return (chunk.metadata?.figures || "").split("\n").filter(Boolean).map((line) => {
    const [page, box] = line.split(":"), [x0, y0, x1, y1] = box.split(",").map(Number);
    const img = el("img", { class: "figure", alt: `Figure on page ${page}`, decoding: "async", width: Math.round(x1 - x0), height: Math.round(y1 - y0) });
    img.addEventListener("error", () => img.remove());
    image(`${documentPath(ds, doc)}/pages/${page}/image?${new URLSearchParams({ dpi: "144", box })}`, signal).then((src) => (img.src = src), () => img.remove());
    return img;
  });
}
