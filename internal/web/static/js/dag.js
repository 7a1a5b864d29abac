// @ts-check
/**
 * A graph without cycles in layers: boxes that are buttons, and edges behind
 * them. It is drawn across where there is room for it, and down otherwise.
 */
import { draw, el, svg } from "./dom.js";

/**
 * @typedef {{id: string, from: string[]}} DagNode
 * @typedef {{tone: string, text: (import("./dom.js").Child)[]}} Face what a box shows
 * @typedef {{id: string, layer: number, row: number, real: boolean, before: Spot[], after: Spot[]}} Spot
 */

/** Edges that pass layers are led around boxes while there are no more bends than this. */
const mostBends = 2000;

/** Rounds in which the order within layers is improved. */
const rounds = 6;

/**
 * Gives each node a layer behind all that it reads, and an order in which few
 * edges cross. It is the same for the same graph.
 * @param {DagNode[]} nodes in an order in which they can run
 */
export function arrange(nodes) {
  /** @type {Map<string, Spot>} */
  const spots = new Map();
  for (const n of nodes) spots.set(n.id, { id: n.id, layer: 0, row: 0, real: true, before: [], after: [] });
  const edges = nodes.flatMap((n) => n.from.filter((f) => spots.has(f) && f !== n.id).map((f) => /** @type {[string, string]} */ ([f, n.id])));
  for (let round = 0, moved = true; moved && round < nodes.length; round++) { // once, where they stand in order
    moved = false;
    for (const [f, t] of edges) {
      const from = /** @type {Spot} */ (spots.get(f)), to = /** @type {Spot} */ (spots.get(t));
      if (to.layer <= from.layer) {
        to.layer = from.layer + 1;
        moved = true;
      }
    }
  }
  /** @type {Spot[][]} */
  const layers = [];
  const stand = (/** @type {Spot} */ s) => {
    (layers[s.layer] ||= []).push(s);
    s.row = layers[s.layer].length - 1;
  };
  for (const n of nodes) stand(/** @type {Spot} */ (spots.get(n.id)));
  let bends = 0;
  /** The way of each edge, with its bends. */
  const ways = edges.map(([f, t]) => {
    const from = /** @type {Spot} */ (spots.get(f)), to = /** @type {Spot} */ (spots.get(t)), way = [from];
    for (let l = from.layer + 1; l < to.layer && bends < mostBends; l++, bends++) {
      const bend = /** @type {Spot} */ ({ id: `${f}>${t}`, layer: l, row: 0, real: false, before: [], after: [] });
      stand(bend);
      way.push(bend);
    }
    way.push(to);
    for (let i = 1; i < way.length; i++) {
      way[i].before.push(way[i - 1]);
      way[i - 1].after.push(way[i]);
    }
    return way;
  });
  const middle = (/** @type {Spot[]} */ of, /** @type {number} */ otherwise) => (of.length ? of.reduce((n, s) => n + s.row / Math.max(layers[s.layer].length - 1, 1), 0) / of.length : otherwise);
  for (let round = 0; round < rounds; round++) {
    const down = round % 2 === 0;
    for (const layer of down ? layers.slice(1) : layers.slice(0, -1).reverse()) {
      const wish = new Map(layer.map((s) => [s, middle(down ? s.before : s.after, s.row / Math.max(layer.length - 1, 1))]));
      layer.sort((a, b) => (wish.get(a) || 0) - (wish.get(b) || 0) || a.row - b.row);
      layer.forEach((s, i) => (s.row = i));
    }
  }
  return { layers, ways, spots };
}

/** Sizes in pixels: of a box, of one that is too narrow for its kind beside its name, of what an edge needs to pass, between layers. */
const plain = 62, tight = 80, bend = 10, between = 36;

/**
 * @param {{label: string, nodes: DagNode[], face: (id: string) => Face, pick?: (id: string) => void, signal: AbortSignal}} o
 */
export function dag({ label, nodes, face, pick, signal }) {
  const { layers, ways, spots } = arrange(nodes);
  const plane = el("div", { class: "dag", role: "group", "aria-label": `${label}. Arrow keys move between nodes.` });
  const edges = svg("svg", { class: "dag-edges", "aria-hidden": "true", focusable: "false" });
  const root = el("div", { class: "dag-frame" }, plane);
  plane.append(edges);
  /** @type {Map<string, HTMLButtonElement>} */
  const boxes = new Map();
  for (const n of nodes) {
    const b = el("button", { type: "button", class: "dag-node", tabindex: "-1", "data-node": n.id, onclick: () => {
      focusable(n.id);
      pick?.(n.id);
    } });
    boxes.set(n.id, b);
    plane.append(b);
  }
  const paths = ways.map((way) => {
    const p = svg("path", { class: "dag-edge" }), head = svg("path", { class: "dag-head" });
    edges.append(p, head);
    return { way, p, head, from: way[0].id, to: way[way.length - 1].id };
  });

  /** One box at a time is in the order of the tab key. @param {string} id */
  function focusable(id) {
    for (const [k, b] of boxes) b.tabIndex = k === id ? 0 : -1;
  }
  focusable(nodes[0]?.id);

  let across = true, drawn = "";
  function place() {
    // The frame may have been made narrower because the graph is drawn down: that must not keep it so.
    const room = Math.max(root.clientWidth - 8, (root.closest(".run, .flow-view")?.clientWidth || 0) - 50) || 960;
    const most = Math.max(1, ...layers.map((l) => l.length));
    across = layers.length * 132 + (layers.length - 1) * between <= room;
    const inside = across ? room : root.clientWidth - 8 || room;
    const wide = across ? Math.max(132, Math.min(200, (room - (layers.length - 1) * between) / layers.length)) : Math.max(124, Math.min(200, (inside - (most - 1) * 14) / most));
    const height = wide < 168 ? tight : plain;
    const key = `${across} ${Math.floor(wide)}`;
    if (key === drawn) return;
    drawn = key;
    const thick = (/** @type {Spot} */ s) => (s.real ? (across ? height : wide) : bend);
    const gap = across ? 18 : 14, step = across ? wide + between : height + between;
    const spans = layers.map((l) => l.reduce((n, s) => n + thick(s), 0) + (l.length - 1) * gap), span = Math.max(...spans, 0);
    /** Top left of each spot and its size. @type {Map<Spot, [number, number, number, number]>} */
    const at = new Map();
    layers.forEach((l, i) => {
      let along = (span - spans[i]) / 2;
      for (const s of l) {
        const deep = i * step;
        at.set(s, across ? [deep, along, wide, thick(s)] : [along, deep, thick(s), height]);
        along += thick(s) + gap;
      }
    });
    const size = layers.length * step - between, [w, h] = across ? [size, span] : [span, size];
    plane.style.width = `${Math.ceil(w)}px`;
    plane.style.height = `${Math.ceil(h)}px`;
    plane.dataset.way = across ? "across" : "down";
    plane.classList.toggle("tight", height === tight);
    edges.setAttribute("viewBox", `0 0 ${Math.ceil(w)} ${Math.ceil(h)}`);
    for (const [id, b] of boxes) {
      const [x, y, bw, bh] = /** @type {[number, number, number, number]} */ (at.get(/** @type {Spot} */ (spots.get(id))));
      Object.assign(b.style, { left: `${x}px`, top: `${y}px`, width: `${bw}px`, height: `${bh}px` });
    }
    for (const { way, p, head } of paths) {
      let d = "", x = 0, y = 0;
      way.forEach((s, i) => {
        const [sx, sy, sw, sh] = /** @type {[number, number, number, number]} */ (at.get(s));
        if (i) {
          const [tx, ty] = across ? [sx - (i === way.length - 1 ? 5 : 0), sy + sh / 2] : [sx + sw / 2, sy - (i === way.length - 1 ? 5 : 0)];
          const half = (across ? tx - x : ty - y) / 2;
          d += across ? `C${x + half} ${y} ${tx - half} ${ty} ${tx} ${ty}` : `C${x} ${y + half} ${tx} ${ty - half} ${tx} ${ty}`;
          [x, y] = [tx, ty];
        }
        if (i === way.length - 1) return;
        [x, y] = across ? [sx + sw, sy + sh / 2] : [sx + sw / 2, sy + sh];
        if (!i) d = `M${x} ${y}`;
        else d += `L${x} ${y}`;
      });
      p.setAttribute("d", d);
      head.setAttribute("d", across ? `M${x - 4} ${y - 4}L${x + 4} ${y}L${x - 4} ${y + 4}Z` : `M${x - 4} ${y - 4}L${x} ${y + 4}L${x + 4} ${y - 4}Z`);
    }
  }

  plane.addEventListener("keydown", (e) => {
    const here = e.target instanceof HTMLElement && e.target.dataset.node, spot = here && spots.get(here);
    if (!spot || e.ctrlKey || e.metaKey || e.altKey) return;
    const along = across ? { ArrowLeft: "in", ArrowRight: "out", ArrowUp: "before", ArrowDown: "after" } : { ArrowUp: "in", ArrowDown: "out", ArrowLeft: "before", ArrowRight: "after" };
    const real = (/** @type {Spot[]} */ of, /** @type {"before"|"after"} */ way) => {
      let next = of;
      for (let i = 0; i < layers.length && next.length && !next[0].real; i++) next = next[0][way];
      return next[0]?.id;
    };
    const beside = (/** @type {number} */ d) => {
      const l = layers[spot.layer].filter((s) => s.real);
      return l[l.indexOf(spot) + d]?.id;
    };
    const to = /** @type {Record<string, () => string|undefined>} */ ({ in: () => real(spot.before, "before"), out: () => real(spot.after, "after"), before: () => beside(-1), after: () => beside(1) });
    const key = e.key === "Home" ? () => nodes[0]?.id : e.key === "End" ? () => nodes[nodes.length - 1]?.id : to[/** @type {Record<string, string>} */ (along)[e.key]];
    if (!key) return;
    e.preventDefault();
    const id = key();
    if (!id) return;
    focusable(id);
    boxes.get(id)?.focus();
  });
  const seen = new ResizeObserver(place);
  seen.observe(root);
  signal.addEventListener("abort", () => seen.disconnect());

  return {
    root,
    /** Shows what has changed. @param {string} [picked] */
    update(picked) {
      /** @type {Map<string, string>} */
      const tones = new Map();
      for (const [id, b] of boxes) {
        const f = face(id);
        tones.set(id, f.tone);
        b.className = `dag-node ${f.tone}`;
        draw(b, f.text);
        if (pick) b.setAttribute("aria-pressed", String(id === picked));
      }
      for (const { p, head, from, to } of paths) {
        const lit = picked === from || picked === to, off = tones.get(to) === "off" || tones.get(from) === "off";
        for (const e of [p, head]) {
          e.classList.toggle("lit", lit);
          e.classList.toggle("off", off);
        }
      }
      if (picked && boxes.has(picked)) focusable(picked);
      place();
    },
  };
}
