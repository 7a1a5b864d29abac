// @ts-check
/** All datasets of the tenant. */
import { all, datasetPath, send } from "../api.js";
import { dialog } from "../dialog.js";
import { button, el, empty, grid, name } from "../dom.js";
import { number, time } from "../format.js";
import { go, title } from "../nav.js";

/** @param {import("../types.js").Context} c */
export async function view({ root, signal }) {
  title("Datasets");
  /** @type {import("../types.js").Dataset[]} */
  const sets = await all("/v1/datasets", 2000, signal);
  const create = () => dialog({
    title: "New dataset",
    body: [el("label", { class: "field" }, "Name", el("input", { name: "name", required: true, maxlength: 255, pattern: "[^\\/]+", autocomplete: "off" }))],
    action: "Create",
    run: async (form) => {
      const d = await send("/v1/datasets", { name: String(form.get("name")) });
      go(`/datasets/${encodeURIComponent(d.name)}`);
    },
  });
  const pause = async (/** @type {import("../types.js").Dataset} */ d) => {
    await send(`${datasetPath(d.id)}:${d.paused ? "resume" : "pause"}`);
    await view({ root, params: {}, query: new URLSearchParams(), signal });
  };
  const remove = async (/** @type {import("../types.js").Dataset} */ d) => {
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
    if (done) await view({ root, params: {}, query: new URLSearchParams(), signal });
  };
  root.replaceChildren(
    el("div", { class: "head" }, el("h1", { tabindex: "-1" }, "Datasets"), el("div", { class: "tools" }, button("New dataset…", () => void create(), { class: "primary" }))),
    sets.length ? grid("Datasets", [["Name"], ["Documents", "num"], ["Chunks", "num"], ["Created"], ["", "row-actions"]],
      sets.map((d) => [[el("a", { href: `/datasets/${encodeURIComponent(d.name)}` }, name(d.name)), d.paused ? el("span", { class: "badge off" }, "Paused") : null], number(d.documents), number(d.chunks), time(d.created_at),
        [button(d.paused ? "Resume" : "Pause", () => void pause(d), { "aria-label": `${d.paused ? "Resume" : "Pause"} ${d.name}` }), button("Delete…", () => void remove(d), { class: "danger", "aria-label": `Delete ${d.name}` })]]))
      : empty("No datasets yet", el("p", {}, "A dataset is a group of documents that are searched together.")));
}
