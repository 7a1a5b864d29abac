// @ts-check
/** What people make of chunks: change, switch off, delete, add, undo, and the list of a document's edits. */
import { ApiError, all, get, send } from "./api.js";
import { dialog } from "./dialog.js";
import { announce, button, el, empty, icon, trouble } from "./dom.js";
import { number, plural, time } from "./format.js";
import { chunkText } from "./text.js";

/** @typedef {import("./types.js").Chunk} Chunk */
/** @typedef {import("./types.js").Edit} Edit */
/** @typedef {import("./types.js").EditedChunk} EditedChunk */

/** Edits of one document that are read at most. */
const mostEdits = 2000;

/** A change that the server refuses when somebody else was first. @param {number} version that the reader has seen */
const ifMatch = (version) => ({ "If-Match": `"${version}"` });

const conflicting = (/** @type {unknown} */ e) => e instanceof ApiError && e.status === 412;

const lines = (/** @type {FormDataEntryValue|null} */ v) => String(v || "").split("\n").map((s) => s.trim()).filter(Boolean);
const same = (/** @type {string[]} */ a, /** @type {string[]|undefined} */ b) => JSON.stringify(a) === JSON.stringify(b || []);
const asTyped = (/** @type {string} */ text) => text.replace(/\r\n?/g, "\n");

/** The fields of a chunk. @param {Partial<Chunk>} c */
function fields(c) {
  const area = (/** @type {string} */ name, /** @type {string} */ label, /** @type {number} */ rows, /** @type {string} */ text, /** @type {Record<string, any>} */ more = {}) => el("label", { class: "field" }, label, el("textarea", { name, rows, dir: "auto", ...more }, text));
  return [area("text", "Text", 9, c.text || "", { required: true, maxlength: 32768 }), el("div", { class: "grid-fields" }, area("keywords", "Keywords, one per line", 3, (c.keywords || []).join("\n")), area("questions", "Questions it answers, one per line", 3, (c.questions || []).join("\n")))];
}

/**
 * The tools of a document's chunks as they are listed.
 * @param {{base: string, item: (c: Chunk) => HTMLLIElement, reload: () => void}} o path of the document, what draws a chunk, and what draws the whole list
 */
export function chunkEditor({ base, item, reload }) {
  const path = (/** @type {Chunk} */ c) => `${base}/chunks/${c.id}`;
  const at = (/** @type {Chunk} */ c) => /** @type {HTMLLIElement|null} */ (document.getElementById(`c-${c.id}`));
  const busy = new Set();

  /** Puts a row where a chunk stood, and the focus into it. @param {Chunk} c @param {HTMLLIElement} li @param {string} [action] whose button gets the focus */
  function put(c, li, action) {
    const old = at(c);
    if (!old) return reload(); // a new version was published meanwhile
    old.replaceWith(li);
    /** @type {HTMLElement} */ (li.querySelector(`[data-act="${action}"]`) || li).focus({ preventScroll: true });
  }

  /** Draws what became of a chunk. @param {Chunk} c @param {EditedChunk} now @param {string} [action] */
  function show(c, now, action) {
    put(c, now.chunk ? item({ ...now.chunk, edit: now.edit }) : gone(c, now.edit), action);
  }

  /** What stands where a deleted chunk stood. @param {Chunk} c @param {Edit} [e] */
  function gone(c, e) {
    const li = /** @type {HTMLLIElement} */ (el("li", { class: "chunk gone", id: `c-${c.id}`, tabindex: "-1" }, el("p", {}, "Chunk deleted. It no longer appears in search. "), e ? button("Undo", () => void attempt(c, "edit", () => send(`${base}/edits/${e.id}:undo`, {}, "POST", ifMatch(e.version)), "Chunk restored"), { "data-act": "undo" }) : null));
    return li;
  }

  /** Says in a chunk's row what hinders its change. @param {Chunk} c @param {Node} what */
  const complain = (c, what) => {
    for (const x of at(c)?.querySelectorAll(".trouble") || []) x.remove();
    at(c)?.append(what);
  };

  /** @param {Chunk} c @param {string} action @param {() => Promise<EditedChunk>} change @param {string} done what is announced */
  async function attempt(c, action, change, done) {
    if (busy.has(c.id)) return;
    busy.add(c.id);
    try {
      show(c, await change(), action);
      announce(done);
    } catch (e) {
      if (!conflicting(e)) complain(c, trouble(e));
      else {
        const now = await get(path(c)).catch(() => null);
        if (now) show(c, now, action);
        complain(c, trouble(now ? "Someone else changed this chunk. Their version is shown now; repeat your change if you still want it." : "Someone else deleted this chunk. Open Edits above to undo it."));
      }
    } finally {
      busy.delete(c.id);
    }
  }

  /** @param {Chunk} c */
  async function change(c) {
    let version = c.edit?.version || 0;
    /** @type {EditedChunk|null} */
    let theirs = null, mine = /** @type {EditedChunk|null} */ (null);
    const beside = el("div", { class: "theirs" });
    const done = await dialog({ title: "Edit chunk", action: "Save", body: [...fields(c), beside], run: async (form) => {
      const was = theirs?.chunk || c, text = asTyped(String(form.get("text"))), keywords = lines(form.get("keywords")), questions = lines(form.get("questions"));
      const body = { text: text === asTyped(was.text) ? undefined : text, keywords: same(keywords, was.keywords) ? undefined : keywords, questions: same(questions, was.questions) ? undefined : questions };
      try {
        mine = await send(path(c), body, "PATCH", ifMatch(version));
      } catch (e) {
        if (!conflicting(e)) throw e;
        theirs = await get(path(c)).catch(() => null);
        if (!theirs?.chunk) throw new Error("Someone else deleted this chunk while you were editing it. Copy your text, close this dialog, and undo the deletion under Edits.");
        version = theirs.edit?.version || 0;
        beside.replaceChildren(el("h3", {}, "Their version"), ...chunkText(theirs.chunk.text, theirs.chunk.kind));
        throw new Error("Someone else changed this chunk while you were editing it. Your text is above, theirs is below. Save again to replace theirs, or close this dialog to keep theirs.");
      }
    } });
    if (mine || theirs) show(c, /** @type {EditedChunk} */ (mine || theirs), "edit");
    if (done) announce("Chunk saved and searchable");
  }

  /** @param {Chunk} [c] the chunk to stand behind; none for the end of the document */
  async function add(c) {
    /** @type {EditedChunk|null} */
    let answer = null;
    const done = await dialog({ title: c ? "Add a chunk after this one" : "Add a chunk at the end", action: "Add", body: fields({}), run: async (form) => {
      answer = await send(`${base}/chunks`, { text: asTyped(String(form.get("text"))), keywords: lines(form.get("keywords")), questions: lines(form.get("questions")), after: c?.id });
    } });
    const now = /** @type {EditedChunk|null} */ (answer);
    if (!done || !now?.chunk) return;
    announce("Chunk added and searchable");
    let behind = c && at(c);
    if (!behind) return reload();
    while (behind.nextElementSibling?.classList.contains("added")) behind = /** @type {HTMLLIElement} */ (behind.nextElementSibling); // the newest stands last
    const li = item({ ...now.chunk, edit: now.edit });
    behind.after(li);
    li.focus();
    li.scrollIntoView({ block: "nearest" });
  }

  /** One stop of the keyboard for each chunk; arrows lead from tool to tool. @param {Chunk} c @param {HTMLElement[]} [extra] tools that change nothing */
  function tools(c, extra = []) {
    const off = c.edit && !c.edit.enabled;
    const tool = (/** @type {string} */ act, /** @type {string} */ label, /** @type {() => void} */ run, /** @type {Record<string, any>} */ more = {}) => button(label, run, { class: "link", "data-act": act, tabindex: act === "edit" ? "0" : "-1", ...more });
    const bar = el("div", { class: "chunk-tools", role: "toolbar", "aria-label": "This chunk" },
      tool("edit", "Edit…", () => void change(c)),
      tool("off", off ? "Turn on" : "Turn off", () => void attempt(c, "off", () => send(path(c), { enabled: Boolean(off) }, "PATCH", ifMatch(c.edit?.version || 0)), off ? "Chunk is searchable again" : "Chunk no longer appears in search")),
      tool("add", "Add after…", () => void add(c)),
      tool("delete", "Delete", () => void attempt(c, "undo", () => send(path(c), undefined, "DELETE", ifMatch(c.edit?.version || 0)), "Chunk deleted")),
      c.edit ? tool("history", "History…", () => void history(base, /** @type {NonNullable<Chunk["edit"]>} */ (c.edit).id).then((now) => now && show(c, now, "history"), (e) => complain(c, trouble(e)))) : null, extra);
    bar.addEventListener("keydown", (e) => {
      const all = /** @type {HTMLElement[]} */ ([...bar.children]), n = all.indexOf(/** @type {HTMLElement} */ (e.target));
      const to = { ArrowRight: n + 1, ArrowLeft: n - 1, Home: 0, End: all.length - 1 }[e.key];
      if (n < 0 || to === undefined) return;
      e.preventDefault();
      e.stopPropagation();
      const next = all[(to + all.length) % all.length];
      for (const x of all) x.tabIndex = x === next ? 0 : -1;
      next.focus();
    });
    return bar;
  }

  return { tools, add };
}

/** What a chunk's row says of its edit. @param {Chunk} c */
export function editBadge(c) {
  const e = c.edit, one = (/** @type {string} */ tone, /** @type {string} */ shape, /** @type {string} */ text) => el("span", { class: `badge ${tone}` }, icon(shape), text);
  return e ? [e.added ? one("run", "check", "Added") : e.rewritten ? one("run", "check", "Edited") : null, e.enabled ? null : one("off", "stop", "Off: not in search")] : [];
}

/** What a version of an edit says, in words. @param {import("./types.js").EditContent & {enabled: boolean}} v */
const what = (v) => [v.deleted ? "deleted" : "", v.text !== undefined ? "text" : "", v.keywords ? "keywords" : "", v.questions ? "questions" : "", v.enabled ? "" : "turned off"].filter(Boolean).join(", ");

/**
 * Shows the versions of an edit and goes back to the one that is chosen.
 * @param {string} base @param {string} id @returns {Promise<EditedChunk|null>} null when it stays as it is
 */
async function history(base, id) {
  /** @type {import("./types.js").EditHistory} */
  const h = await get(`${base}/edits/${id}`);
  /** @type {EditedChunk|null} */
  let answer = null;
  const row = (/** @type {number} */ version, /** @type {string} */ name, /** @type {import("./dom.js").Children} */ of, /** @type {string} */ text, first = false) => el("li", {},
    version === h.version ? el("strong", {}, `${name}, now`) : el("label", { class: "check" }, el("input", { type: "radio", name: "to", value: version, required: true, checked: first }), name), el("span", { class: "muted" }, of), text ? el("p", { class: "prose", dir: "auto" }, text) : null);
  const rows = h.versions.map((v, i) => row(v.version, `Version ${v.version}`, [` ${what(v) || "as parsed"} · `, time(v.at), v.author ? [" · ", el("bdi", {}, v.author)] : null].flat(), v.text || "", i === 1));
  if (!h.added) rows.push(row(0, "As it was parsed", "", h.excerpt || "", h.versions.length === 1));
  if (rows.length === 1) rows.push(row(0, "Before it was added", " no chunk", "", true));
  await dialog({ title: "Chunk history", action: "Restore this version", body: [el("ol", { class: "history-list" }, rows)], run: async (form) => {
    answer = await send(`${base}/edits/${id}:undo`, { to: Number(form.get("to")) }, "POST", ifMatch(h.version)).catch((e) => {
      throw conflicting(e) ? new Error("Someone else changed this chunk after you opened its history. Close this dialog and open it again to see the latest version.") : e;
    });
    announce("Version restored");
  } });
  return answer;
}

/** How many edits the published version has no chunk for. @param {string} base @param {AbortSignal} signal */
export const unplaced = async (base, signal) => (await all(`${base}/edits?state=unplaced`, mostEdits, signal)).length;

/**
 * All edits of a document: those without a chunk first, since they have no effect.
 * @param {{base: string, unit: string, paged: boolean, signal: AbortSignal, reload: () => void, add: () => void}} o
 */
export async function editList({ base, unit, paged, signal, reload, add }) {
  /** @type {Edit[]} */
  const edits = (await all(`${base}/edits`, mostEdits, signal)).reverse();
  const addButton = button("Add a chunk at the end…", add);
  if (!edits.length) return empty("No chunk of this document has been edited", el("p", {}, "In the Read tab you can edit, turn off and delete chunks, and add your own. Every change is listed here and can be undone."), addButton);
  const card = (/** @type {Edit} */ e) => {
    const note = el("div");
    const run = (/** @type {Promise<any>} */ p) => void p.then((now) => now && reload(), (err) => note.replaceChildren(trouble(conflicting(err) ? "Someone else changed this edit. Reload the page to see the latest, then repeat your change if you still want it." : err)));
    const place = [e.headings?.join(" › "), e.pages?.length ? `${unit} ${e.pages.join(", ")}` : ""].filter(Boolean).join(" · ");
    const shown = e.state === "applied" && !e.deleted && e.chunk_id && (!paged || e.pages?.length);
    return el("li", { class: "chunk" },
      el("h3", {}, e.added ? (e.deleted ? "Added, then removed" : "Added chunk") : `Changed: ${what(e) || "nothing left"}`),
      el("p", { class: "muted" }, place ? `${place} · ` : "", time(e.updated_at), e.author ? [" · ", el("bdi", {}, e.author)] : null),
      e.excerpt ? el("p", { class: "prose", dir: "auto" }, el("span", { class: "muted" }, e.added ? "After: " : "Parsed: "), e.excerpt) : null,
      e.text !== undefined ? el("p", { class: "prose", dir: "auto" }, el("span", { class: "muted" }, "Now: "), e.text) : null,
      el("div", { class: "tools" }, shown ? el("a", { class: "button", href: `?${new URLSearchParams({ ...(paged ? { page: String(e.pages?.[0] || 1) } : {}), chunk: String(e.chunk_id) })}` }, "Show") : null,
        button("History…", () => run(history(base, e.id))), e.state === "undone" ? null : button("Undo", () => run(send(`${base}/edits/${e.id}:undo`, { to: 0 }, "POST", ifMatch(e.version)).then((now) => (announce("Edit undone"), now))))),
      note);
  };
  const section = (/** @type {string} */ title, /** @type {string} */ text, /** @type {Edit["state"]} */ state) => {
    const some = edits.filter((e) => e.state === state);
    return some.length ? el("section", {}, el("h2", {}, `${title} (${number(some.length)})`), text ? el("p", {}, text) : null, el("ol", { class: "chunks" }, some.map(card))) : null;
  };
  return el("div", {}, el("div", { class: "tools" }, el("p", { class: "muted" }, `${plural(edits.length, "chunk")} edited`), addButton),
    section("Without a chunk", "The published version has no chunk with this content, so these edits have no effect. Repeat each on the chunk that replaced it, then undo it here. The edit applies again if a later version has the content.", "unplaced"),
    section("In effect", "", "applied"), section("Undone", "", "undone"));
}
