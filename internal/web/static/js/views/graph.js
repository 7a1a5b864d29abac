// @ts-check
/** The graph of a dataset: entities, what they stand beside, and the chunks that say so. */
import { aborted, all, ApiError, datasetPath, documentNames, get, request, send } from "../api.js";
import { datasetHead } from "../datasetparts.js";
import { dialog } from "../dialog.js";
import { announce, button, draw, el, empty, grid, name, svg, trouble } from "../dom.js";
import { settle } from "../forces.js";
import { number, plural, time } from "../format.js";
import { go, note, title } from "../nav.js";
import { repeat } from "../repeat.js";
import { sheet } from "../sheet.js";

/** @typedef {{document_id: string, chunk_id: string, pages?: number[]}} Source */
/** @typedef {{id: string, name: string, type: string, description?: string, count: number, degree: number, rank: number, community?: number, sources: Source[], chunks: number, names?: {name: string, reason: string, count: number}[]}} Entity */
/** @typedef {{id: string, names: string[]}} Split */
/** @typedef {{source: string, target: string, description?: string, count: number, weight: number, sources: Source[]}} Relation */
/** @typedef {{entities: Entity[], relations: Relation[], communities: {id: number, title: string, size: number}[], built_at: string, stale?: boolean, truncated: boolean, total: Record<string, number>}} Part */

/** Points that are drawn at once, those of the first look, and neighbours of one click. */
const most = 200, first = 80, neighbours = 40;

/** How soon a graph is looked at again that is empty or being made, and another one, in milliseconds. */
const changing = 2000, settled = 15000;

/** Labels beside points, beyond those of the chosen one and its neighbours. */
const labels = 45;

/** Shapes tell types apart; what a model calls otherwise is a hexagon. @type {Record<string, [string, string]>} */
const shapes = { organization: ["square", "M-1-1H1V1H-1Z"], person: ["circle", "M-1 0A1 1 0 1 1 1 0A1 1 0 1 1-1 0Z"], name: ["diamond", "M0-1.25L1.25 0L0 1.25L-1.25 0Z"], term: ["triangle", "M0-1.2L1.15.9H-1.15Z"] };
const other = ["hexagon", "M-.55-1H.55L1.1 0L.55 1H-.55L-1.1 0Z"];
const shapeOf = (/** @type {string} */ type) => shapes[type] || other;

/** About how wide a letter of a label is, in pixels. */
const letter = 7.7;

const clip = (/** @type {string} */ s, most = 26) => (s.length > most ? s.slice(0, most - 1) + "…" : s);

/** How many splits a dataset can have. */
const mostSplits = 1000;

/** @param {import("../types.js").Context} c */
export async function view({ root, params, query, signal }) {
  const base = datasetPath(params.ds);
  /** @type {[import("../types.js").Dataset, any]} */
  const [ds] = await Promise.all([get(base, signal), sheet("/flows.css")]);
  title(`${ds.name}, graph`);
  const facts = el("p", { class: "muted facts-line", role: "status" }), message = el("div"), plane = svg("svg", { class: "graph-plane", role: "group", "aria-label": "Entities and their relations. Arrow keys move, Enter shows neighbours." });
  const frame = el("div", { class: "graph-frame" }, plane), side = el("section", { class: "graph-side", "aria-label": "Selected entity" }), table = el("section"), apart = el("section"), legend = el("p", { class: "legend graph-legend" });
  const input = el("input", { type: "search", name: "entity", autocomplete: "off", placeholder: "Find an entity", "aria-label": "Find an entity", oninput: () => later() });
  const matches = el("ul", { class: "matches", hidden: true, "aria-label": "Entities found" });
  const find = el("form", { class: "find-entity", onsubmit: (/** @type {Event} */ e) => {
    e.preventDefault();
    const q = input.value.trim();
    if (q) void search(q).then((found) => (found[0] ? choose(found[0].name) : announce("No entity with that name")));
  } }, input, el("button", {}, "Show"), button("Most central", () => go(location.pathname)), matches);
  const body = el("div", { class: "graph-body" }, el("div", { class: "graph-main" }, frame, legend), side);
  root.replaceChildren(...datasetHead(params.ds, ds.name, "graph"), find, facts, message, body, table, apart);

  /** @type {Map<string, Entity>} */
  let entities = new Map();
  /** @type {Map<string, Relation>} */
  let relations = new Map();
  /** @type {Map<string, import("../forces.js").Point>} */
  let points = new Map();
  /** @type {Part["communities"]} */
  let communities = [];
  /** What was read last. @type {Part|null} */
  let current = null;
  /** Entities: the one to read, the one that was read, and the selected one. */
  let wanted = "", shown = "", picked = "";
  let asked = 0, retry = settled;
  /** Names of documents by id. @type {Map<string, string>} */
  const documents = new Map();

  // ---- searching ----
  /** @param {string} q @returns {Promise<Entity[]>} */
  async function search(q) {
    const mine = ++asked;
    try {
      const found = (await get(`${base}/graph/entities?${new URLSearchParams({ q, limit: "8" })}`, signal)).items;
      if (mine !== asked) return found;
      matches.hidden = false;
      draw(matches, found.length ? found.map((/** @type {Entity} */ e) => el("li", {}, button(clip(e.name, 60), () => choose(e.name)), el("span", { class: "muted" }, `${e.type}, ${plural(e.count, "mention")}`))) : el("li", { class: "muted" }, "No entity with that name."));
      return found;
    } catch (e) {
      if (!aborted(e)) draw(message, trouble(e));
      return [];
    }
  }
  let typed = 0;
  function later() {
    clearTimeout(typed);
    const q = input.value.trim();
    if (!q) {
      asked++;
      matches.hidden = true;
      return;
    }
    typed = setTimeout(() => void search(q), 200);
  }
  function choose(/** @type {string} */ called) {
    asked++;
    matches.hidden = true;
    input.value = "";
    go(`${location.pathname}?${new URLSearchParams({ entity: called })}`);
  }

  // ---- reading ----
  /** @param {string} entity "" for the most central ones @param {number} limit @returns {Promise<Part|null>} */
  async function read(entity, limit) {
    try {
      const part = await get(`${base}/graph?${new URLSearchParams({ ...(entity ? { entity } : {}), limit: String(limit) })}`, signal);
      message.replaceChildren();
      return part;
    } catch (e) {
      retry = settled;
      if (aborted(e) || signal.aborted) return null;
      if (e instanceof ApiError && e.code === "graph_building") {
        retry = Math.max(1, e.retryAfter) * 1000;
        draw(message, el("p", { class: "page-note", role: "status" }, "The graph is being built from the chunks and will appear here."));
      } else draw(message, trouble(e), entity ? el("p", {}, el("a", { href: location.pathname }, "Show the most central entities")) : "");
      return null;
    }
  }
  const keyOf = (/** @type {Relation} */ r) => `${r.source}\n${r.target}`;

  // Documents change, also just before a graph is read. One that is being explored
  // stays, with a way to the current one.
  const look = repeat(signal, async () => {
    const was = current;
    if (was && was.entities.length && !was.stale) {
      const now = await get(`${base}/graph?limit=1`, signal).catch(() => was);
      if (now.built_at === was.built_at) return settled;
    }
    if (!was || picked === shown) return readAnew();
    if (!message.hasChildNodes()) draw(message, el("p", { class: "page-note", role: "status" }, "Documents have changed since. ", button("Show the current graph", () => void load(entities.get(picked)?.name || ""))));
    return settled;
  });

  /** @param {string} entity */
  function load(entity) {
    wanted = entity;
    current = null;
    return look();
  }

  /** Shows what is wanted, and answers when to look again. */
  async function readAnew() {
    const entity = wanted, part = await read(entity, first);
    if (entity !== wanted) return changing; // another was chosen meanwhile
    current = part;
    body.hidden = table.hidden = legend.hidden = !part || !part.entities.length;
    if (!part) return retry;
    entities = new Map(part.entities.map((e) => [e.id, e]));
    relations = new Map(part.relations.map((r) => [keyOf(r), r]));
    communities = part.communities;
    picked = shown = entity && part.entities[0] ? part.entities[0].id : "";
    points = settle([...entities.keys()], edges(), new Map(), picked || undefined);
    const t = part.total;
    draw(facts, `${plural(t.entities, "entity", "entities")}, ${plural(t.relations, "relation")}, ${plural(t.communities, "community", "communities")} · made `, time(part.built_at), part.stale ? " · documents have changed since; updating" : "",
      t.dropped_entities + t.dropped_relations ? ` · ${plural(t.dropped_entities, "entity", "entities")} and ${plural(t.dropped_relations, "relation")} with the least support are hidden` : "", t.failed_ranges ? ` · ${plural(t.failed_ranges, "range")} could not be read` : "");
    if (!part.entities.length) draw(message, empty("No entities yet", el("p", {}, "The graph is built from names and terms that recur in the documents. ", el("a", { href: `/datasets/${encodeURIComponent(params.ds)}` }, "Add documents"), ", or have a language model extract them in ", el("a", { href: `/datasets/${encodeURIComponent(params.ds)}/runs?start=graphrag` }, "a run"), ".")));
    show();
    void showSplits();
    return part.entities.length && !part.stale ? settled : changing;
  }
  const edges = () => [...relations.values()].map((r) => /** @type {[string, string, number]} */ ([r.source, r.target, r.weight]));

  /** Adds the neighbours of an entity to what is drawn. @param {string} id */
  async function expand(id) {
    const e = entities.get(id);
    if (!e) return;
    picked = id;
    note({ entity: e.name });
    show();
    const part = await read(e.name, neighbours);
    if (!part || picked !== id) return;
    const before = entities.size, keep = new Set(part.entities.map((x) => x.id)).add(id);
    for (const x of part.entities) entities.set(x.id, x);
    for (const r of part.relations) relations.set(keyOf(r), r);
    for (const c of part.communities) if (!communities.some((x) => x.id === c.id)) communities.push(c);
    for (const [old] of [...entities].sort((a, b) => a[1].rank - b[1].rank)) { // the least central make room
      if (entities.size <= most) break;
      if (!keep.has(old)) entities.delete(old);
    }
    for (const [k, r] of relations) if (!entities.has(r.source) || !entities.has(r.target)) relations.delete(k);
    points = settle([...entities.keys()], edges(), points, id);
    show();
    announce(`${e.name}: ${plural(near(id).length, "neighbour")}, ${plural(Math.max(0, entities.size - before), "new entity", "new entities")}`);
  }
  const near = (/** @type {string} */ id) => [...relations.values()].filter((r) => r.source === id || r.target === id).sort((a, b) => b.weight - a.weight);

  // ---- drawing ----
  let drawnFor = 0;
  function show() {
    const wide = Math.max(280, frame.clientWidth || 880), high = Math.round(wide < 600 ? wide * 1.1 : wide * 0.62);
    drawnFor = frame.clientWidth;
    const held = document.activeElement instanceof SVGElement && plane.contains(document.activeElement) ? document.activeElement.getAttribute("data-id") : "";
    const ids = [...entities.keys()], beside = new Set(near(picked).flatMap((r) => [r.source, r.target]));
    const xs = ids.map((i) => points.get(i)?.x || 0), ys = ids.map((i) => points.get(i)?.y || 0);
    const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const px = (/** @type {string} */ id) => 30 + ((points.get(id)?.x ?? 0) - x0) / Math.max(x1 - x0, 1e-6) * (wide - 60), py = (/** @type {string} */ id) => 30 + ((points.get(id)?.y ?? 0) - y0) / Math.max(y1 - y0, 1e-6) * (high - 60);
    const heaviest = Math.max(1, ...ids.map((i) => entities.get(i)?.count || 1));
    const named = new Set([...ids].sort((a, b) => (entities.get(b)?.rank || 0) - (entities.get(a)?.rank || 0)).slice(0, wide < 600 ? Math.round(labels / 5) : labels));
    const sizeOf = (/** @type {string} */ id) => (4 + 7 * Math.sqrt((entities.get(id)?.count || 1) / heaviest)) * Math.min(1, Math.max(0.5, Math.sqrt(70 / ids.length)));
    // Labels stand where they cover neither each other nor a point, and end inside the frame. Where there is no such side, what is not chosen goes without.
    /** @type {[number, number, number, number][]} */
    const covered = ids.map((id) => [px(id) - sizeOf(id), py(id) - sizeOf(id), px(id) + sizeOf(id), py(id) + sizeOf(id)]);
    /** @type {Map<string, Record<string, string|number>>} */
    const sides = new Map();
    const weight = (/** @type {string} */ id) => (id === picked ? 2 : beside.has(id) ? 1 : 0);
    for (const id of ids.filter((id) => weight(id) || named.has(id)).sort((a, b) => weight(b) - weight(a) || (entities.get(b)?.rank || 0) - (entities.get(a)?.rank || 0))) {
      const long = clip(entities.get(id)?.name || "").length * letter * (id === picked ? 1.15 : 1), away = sizeOf(id) + 4, x = px(id), y = py(id);
      /** @type {[number, number, string, number][]} place, anchor and left edge */
      const spots = [[away, 4, "start", away], [-away, 4, "end", -away - long], [0, -away - 2, "middle", -long / 2], [0, away + 10, "middle", -long / 2],
        [away, -away - 2, "end", away - long], [away, away + 10, "end", away - long], [-away, -away - 2, "start", -away], [-away, away + 10, "start", -away]];
      const boxes = spots.map(([, dy, , left]) => /** @type {[number, number, number, number]} */ ([x + left, y + dy - 11, x + left + long, y + dy + 3]));
      const inside = boxes.map((b) => b[0] >= 0 && b[1] >= 0 && b[2] <= wide && b[3] <= high);
      let at = boxes.findIndex((b, i) => inside[i] && !covered.some((c) => c[0] < b[2] && b[0] < c[2] && c[1] < b[3] && b[1] < c[3]));
      if (at < 0 && !weight(id)) continue; // it is named when it is chosen
      if (at < 0) at = Math.max(inside.indexOf(true), 0);
      covered.push(boxes[at]);
      sides.set(id, { x: spots[at][0].toFixed(1), y: spots[at][1].toFixed(1), "text-anchor": spots[at][2] });
    }
    plane.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    const focusable = held && entities.has(held) ? held : picked && entities.has(picked) ? picked : ids[0];
    draw(plane, [...relations.values()].map((r) => svg("line", { class: `graph-edge${picked && (r.source === picked || r.target === picked) ? " lit" : ""}`, x1: px(r.source).toFixed(1), y1: py(r.source).toFixed(1), x2: px(r.target).toFixed(1), y2: py(r.target).toFixed(1) })),
      ids.map((id) => {
        const e = /** @type {Entity} */ (entities.get(id)), size = sizeOf(id), side = sides.get(id), [shape, d] = shapeOf(e.type);
        const close = id === picked || beside.has(id);
        return svg("g", { class: `graph-point ${shape}${id === picked ? " on" : ""}${picked && !close ? " far" : ""}`, transform: `translate(${px(id).toFixed(1)} ${py(id).toFixed(1)})`, role: "button", tabindex: id === focusable ? "0" : "-1", "data-id": id, "aria-pressed": String(id === picked), "aria-label": `${clip(e.name, 80)}, ${e.type}, ${plural(e.count, "mention")}, ${plural(e.degree, "relation")}` },
          svg("circle", { class: "graph-hit", r: Math.max(size + 4, 12) }), svg("path", { class: "graph-shape", d, transform: `scale(${size.toFixed(1)})` }), side ? svg("text", side, clip(e.name)) : null);
      }));
    if (held) /** @type {SVGElement|null} */ (plane.querySelector(`[data-id="${CSS.escape(held)}"]`))?.focus({ preventScroll: true });
    const there = new Set(ids.map((i) => entities.get(i)?.type || ""));
    draw(legend, [...there].sort().map((type) => el("span", { class: "graph-key" }, svg("svg", { viewBox: "-1.6 -1.6 3.2 3.2", "aria-hidden": "true", class: shapeOf(type)[0] }, svg("path", { class: "graph-shape", d: shapeOf(type)[1] })), type)), el("span", { class: "muted" }, `${plural(ids.length, "entity", "entities")} shown; larger ones are mentioned more often`));
    showSide();
    showTable();
  }

  /** @param {Source} s @param {string} of whose source it is @param {string} [document] */
  const link = (s, of, document) => {
    const page = s.pages?.[0];
    return el("a", { href: `/datasets/${encodeURIComponent(params.ds)}/documents/${s.document_id}?${new URLSearchParams({ ...(page ? { page: String(page) } : {}), chunk: s.chunk_id })}`, "aria-label": document ? undefined : `${page ? `p. ${page}` : "chunk"} that names ${clip(of, 80)}` }, document ? [name(document), page ? `, page ${page}` : ""] : page ? `p. ${page}` : "chunk");
  };
  const cites = (/** @type {Source[]} */ all, /** @type {string} */ of) => all.map((s, i) => [i ? ", " : "", link(s, of)]).flat();

  function showSide() {
    const e = entities.get(picked);
    if (!e) return draw(side, el("h2", {}, "Select an entity"), el("p", { class: "muted" }, "Its neighbors are added to the drawing, and the supporting passages are listed here with their pages."));
    const c = communities.find((x) => x.id === e.community), rows = near(picked);
    draw(side, el("h2", {}, name(e.name)), e.description ? el("p", {}, el("bdi", {}, e.description)) : null,
      el("dl", { class: "facts" }, el("dt", {}, "Type"), el("dd", {}, e.type), el("dt", {}, "Mentions"), el("dd", {}, `${number(e.count)} in ${plural(e.chunks, "chunk")}`), el("dt", {}, "Relations"), el("dd", {}, number(e.degree)), c ? [el("dt", {}, "Community"), el("dd", {}, el("bdi", {}, c.title), ` (${number(c.size)})`)] : null),
      e.names?.length ? [el("h3", {}, "Merged from"), el("ul", { class: "files" }, e.names.map((n) => el("li", {}, name(n.name), el("span", { class: "muted" }, ` by ${n.reason}, ${plural(n.count, "sentence")}`)))), e.names.length > 1 ? button("Split the entity", () => void split(e)) : null] : null,
      el("h3", {}, "Mentioned in"), el("ul", { class: "files" }, e.sources.map((s) => el("li", {}, link(s, e.name, documents.get(s.document_id) ?? "document")))),
      el("h3", {}, "Related to"), rows.length ? el("ul", { class: "graph-near" }, rows.map((r) => {
        const to = entities.get(r.source === picked ? r.target : r.source);
        return to ? el("li", {}, button(clip(to.name, 60), () => void expand(to.id), { class: "link" }), el("span", { class: "muted" }, ` ${plural(r.count, "sentence")}: `), cites(r.sources, to.name), r.description ? el("p", { class: "muted" }, el("bdi", {}, r.description)) : null) : null;
      })) : el("p", { class: "muted" }, "Nothing shown."));
    const unknown = [...new Set(e.sources.map((s) => s.document_id))].filter((d) => !documents.has(d));
    for (const d of unknown) documents.set(d, "document");
    void documentNames(params.ds, unknown, signal).then((found) => {
      for (const d of found) documents.set(d.id, d.name);
      if (found.length && picked === e.id) showSide();
    }, () => {});
  }

  function showTable() {
    const rows = [...entities.values()].sort((a, b) => b.rank - a.rank);
    draw(table, el("h2", {}, "Entities shown"), grid("Entities shown", [["Entity"], ["Type"], ["Mentions", "num"], ["Relations", "num"], ["Cited", "wide"]], rows.map((e) => [
      button(clip(e.name, 80), () => {
        void expand(e.id);
        body.scrollIntoView({ block: "nearest" });
      }, { class: "link" }), e.type, number(e.count), number(e.degree), cites(e.sources, e.name)])));
  }

  // ---- keeping names apart ----
  /** Asks which names of an entity go, and keeps them apart. @param {Entity} e */
  async function split(e) {
    const names = e.names || [], two = names.length === 2;
    /** @type {string[]} */
    let chosen = [];
    const done = await dialog({ title: `Split ${clip(e.name, 60)}`, action: "Keep them apart",
      body: [el("p", {}, "Each selected name becomes a separate entity now and in future documents; the others stay merged. No model is called, and you can undo this."),
        el("fieldset", { class: "facet" }, el("legend", {}, "Names to keep apart"), names.map((n, i) => el("label", {}, el("input", { type: "checkbox", name: "names", value: n.name, checked: two || !i }), el("span", {}, name(n.name), el("span", { class: "muted" }, ` by ${n.reason}, ${plural(n.count, "sentence")}`)))))],
      run: (form) => {
        chosen = form.getAll("names").map(String);
        if (chosen.length < 2) throw new Error("Select two or more names to keep apart.");
        return send(`${base}/graph/splits`, { names: chosen });
      } });
    if (!done) return;
    announce(`${chosen.join(" and ")} are kept apart`);
    note({ entity: chosen[0] });
    await load(chosen[0]);
  }

  /** Lists what is kept apart, each with a button that takes it back. */
  async function showSplits() {
    try {
      /** @type {Split[]} */
      const splits = await all(`${base}/graph/splits`, mostSplits, signal);
      draw(apart, splits.length ? [el("h2", {}, "Kept apart"), grid("Names kept apart", [["Names"], ["", "row-actions"]], splits.map((s) => [
        s.names.map((n, i) => [i ? " | " : "", name(n)]).flat(), button("Undo the split", () => void merge(s), { "aria-label": `Undo the split: ${clip(s.names.join(" and "), 80)}` })]))] : "");
    } catch (err) {
      if (!aborted(err)) draw(apart, trouble(err));
    }
  }

  /** @param {Split} s */
  async function merge(s) {
    const done = await dialog({ title: "Undo the split", action: "Merge again", body: [el("p", {}, `${s.names.join(" and ")} will be merged again where the graph identifies them with each other.`)], run: () => request(`${base}/graph/splits/${s.id}`, { method: "DELETE" }) });
    if (!done) return;
    announce("Split undone");
    await load(picked ? entities.get(picked)?.name || "" : "");
  }

  plane.addEventListener("click", (e) => {
    const id = e.target instanceof Element && e.target.closest(".graph-point")?.getAttribute("data-id");
    if (id) void expand(id);
  });
  plane.addEventListener("keydown", (e) => {
    const here = e.target instanceof Element ? e.target.getAttribute("data-id") : null, ways = /** @type {Record<string, [number, number]>} */ ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] });
    if (!here || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "Enter" || e.key === " ") {
      e.preventDefault();
      return void expand(here);
    }
    const way = ways[e.key], at = points.get(here);
    if (!way || !at) return;
    e.preventDefault();
    // The nearest in that direction; what lies aside counts as farther.
    let best = "", least = Infinity;
    for (const [id, p] of points) {
      const along = (p.x - at.x) * way[0] + (p.y - at.y) * way[1], aside = Math.abs((p.x - at.x) * way[1]) + Math.abs((p.y - at.y) * way[0]);
      if (id !== here && along > 1e-6 && along + 2 * aside < least) [best, least] = [id, along + 2 * aside];
    }
    const to = best && /** @type {SVGElement|null} */ (plane.querySelector(`[data-id="${CSS.escape(best)}"]`));
    if (!to) return;
    plane.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
    to.setAttribute("tabindex", "0");
    to.focus();
  });

  const sized = new ResizeObserver(() => {
    if (frame.clientWidth && frame.clientWidth !== drawnFor && entities.size) show();
  });
  sized.observe(frame);
  signal.addEventListener("abort", () => sized.disconnect());
  await load(query.get("entity") || "");
  return {
    update(/** @type {URLSearchParams} */ q) {
      void load(q.get("entity") || "");
    },
  };
}
