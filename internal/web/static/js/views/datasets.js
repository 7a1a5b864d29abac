// @ts-check
/** The datasets of the tenant. */
import { aborted, datasetPath, get, send } from "../api.js";
import { dialog } from "../dialog.js";
import { announce, button, draw, el, empty, grid, gridRows, name, trouble } from "../dom.js";
import { number, plural, time } from "../format.js";
import { go, note, title } from "../nav.js";

/** @typedef {import("../types.js").Dataset} Dataset */

/** Datasets of a page, and how many need no filter. */
const step = 100, few = 10;

/** @type {import("../dom.js").Head[]} */
const heads = [["Name"], ["Documents", "num"], ["Chunks", "num"], ["Created"], ["", "row-actions"]];

/** @param {import("../types.js").Context} c */
export async function view({ root, query, signal }) {
  title("Datasets");
  let q = query.get("q") || "", question = 0, typing = 0;
  /** @type {Dataset[]} */
  let sets = [];
  /** @type {string|null} */
  let cursor = null;
  const filter = el("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter by name", value: q, autocomplete: "off", maxlength: 255, oninput: () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      q = filter.value.trim();
      note({ q });
      void look();
    }, 200);
  } });
  signal.addEventListener("abort", () => clearTimeout(typing));
  const create = () => dialog({
    title: "New dataset",
    body: [el("label", { class: "field" }, "Name", el("input", { name: "name", required: true, maxlength: 255, pattern: "[^\\/]+", autocomplete: "off" }))],
    action: "Create",
    run: async (form) => {
      const d = await send("/v1/datasets", { name: String(form.get("name")) });
      go(`/datasets/${encodeURIComponent(d.name)}`);
    },
  });
  const pause = async (/** @type {Dataset} */ d) => {
    await send(`${datasetPath(d.id)}:${d.paused ? "resume" : "pause"}`);
    d.paused = !d.paused;
    show();
  };
  const remove = async (/** @type {Dataset} */ d) => {
    const done = await dialog({
      title: "Delete dataset",
      body: [el("p", {}, name(d.name), ` with ${number(d.documents)} documents and ${number(d.chunks)} chunks will be deleted. This cannot be undone. Type its name to confirm.`),
        el("label", { class: "field" }, "Dataset name", el("input", { name: "name", autocomplete: "off" }))],
      action: "Delete",
      danger: true,
      run: async (form) => {
        if (form.get("name") !== d.name) throw new Error("That is not its name. Nothing was deleted.");
        await send(datasetPath(d.id), undefined, "DELETE");
      },
    });
    if (!done) return;
    sets = sets.filter((s) => s !== d);
    show();
  };

  const table = grid("Datasets", heads, []), list = /** @type {HTMLElement} */ (table.querySelector("tbody")), problem = el("div");
  const none = empty("No datasets yet", el("p", {}, "A dataset is a group of documents that are searched together."));
  const noMatch = empty("No dataset matches", el("p", {}, "Its name must contain the text."));
  const more = button("Show more datasets", () => void look(true));
  const filters = el("div", { class: "filters" }, filter);
  function show() {
    draw(problem);
    draw(list, gridRows(heads, sets.map((d) => [[el("a", { href: `/datasets/${encodeURIComponent(d.name)}` }, name(d.name)), d.paused ? el("span", { class: "badge off" }, "Paused") : null], number(d.documents), number(d.chunks), time(d.created_at),
      [button(d.paused ? "Resume" : "Pause", () => void pause(d), { "aria-label": `${d.paused ? "Resume" : "Pause"} ${d.name}` }), button("Delete…", () => void remove(d), { class: "danger", "aria-label": `Delete ${d.name}` })]])));
    table.hidden = !sets.length;
    none.hidden = sets.length > 0 || !!q;
    noMatch.hidden = sets.length > 0 || !q;
    more.hidden = !cursor;
  }
  /** Reads the first page of what is asked for, or one more. Of answers that overtake each other the one to the newest question is shown. */
  async function read(further = false) {
    const mine = further ? question : ++question, p = new URLSearchParams({ limit: String(step) });
    if (q) p.set("q", q);
    if (further && cursor) p.set("cursor", cursor);
    const page = await get(`/v1/datasets?${p}`, signal);
    if (mine !== question) return;
    sets = further ? [...sets, ...page.items] : page.items;
    cursor = page.next_cursor;
    show();
    if (q) announce(cursor ? "Many datasets" : plural(sets.length, "dataset"));
  }
  async function look(further = false) {
    try {
      await read(further);
    } catch (e) {
      if (!aborted(e)) draw(problem, trouble(e, () => void look(further)));
    }
  }
  await read();
  filters.hidden = !q && !cursor && sets.length <= few;
  root.replaceChildren(el("div", { class: "head" }, el("h1", { tabindex: "-1" }, "Datasets"), el("div", { class: "tools" }, button("New dataset…", () => void create(), { class: "primary" }))),
    filters, problem, table, none, noMatch, more);
}
