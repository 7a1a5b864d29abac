// @ts-check
/** Settings of a dataset, with what the API says of each. */
import { datasetHead } from "../datasetparts.js";
import { reparseDialog } from "../actions.js";
import { datasetPath, get, send } from "../api.js";
import { announce, button, draw, el, name, trouble } from "../dom.js";
import { plural } from "../format.js";
import { go, title } from "../nav.js";
import { fieldsOf, markFault, settingFields, settingTable, valueOf } from "../settingfields.js";
import { webhooks } from "../webhooks.js";

/** @param {import("../types.js").Context} c */
export async function view({ root, params, signal }) {
  const base = datasetPath(params.ds);
  /** @type {[import("../types.js").Dataset, import("../settingfields.js").Table]} */
  let [ds, table] = await Promise.all([get(base, signal), settingTable(signal)]);
  title(`${ds.name}, settings`);
  /** What was changed since this was opened: the documents that are there may take all of it at once. @type {Set<string>} */
  const changed = new Set();
  const message = el("div"), save = el("button", { class: "primary" }, "Save");

  /** The settings that differ from those that are saved; null takes one back. */
  function changes() {
    /** @type {Record<string, any>} */
    const config = {};
    for (const i of fieldsOf(form)) {
      const was = /** @type {any} */ (ds.parser_config)[i.name] ?? null, to = valueOf(i);
      if (JSON.stringify(was) !== JSON.stringify(to) && !(i.name === "password" && to === null)) config[i.name] = to;
    }
    return config;
  }

  const called = el("input", { id: "set-name", value: ds.name, maxlength: 255, required: true, autocomplete: "off" });
  const form = el("form", { class: "dataset-settings", onsubmit: async (/** @type {Event} */ e) => {
    e.preventDefault();
    message.replaceChildren();
    for (const x of form.querySelectorAll("[aria-invalid]")) x.removeAttribute("aria-invalid");
    try {
      const config = changes();
      const change = { ...(called.value.trim() !== ds.name ? { name: called.value.trim() } : {}), ...(Object.keys(config).length ? { parser_config: config } : {}) };
      if (!Object.keys(change).length) return draw(message, el("p", { class: "muted", role: "status" }, "Nothing was changed."));
      save.disabled = true;
      const old = ds.name;
      ds = await send(base, change, "PATCH");
      for (const k of Object.keys(config)) if (k !== "raptor" && k !== "graphrag") changed.add(k); // no document has those
      announce("Saved");
      if (ds.name !== old && params.ds === old) return go(`/datasets/${encodeURIComponent(ds.name)}/settings`, { replace: true });
      tried?.soon(); // beside what is saved now
      draw(message, el("p", { role: "status" }, "Saved. New documents use these settings. ", changed.size && ds.documents ? button(`Reprocess the ${plural(ds.documents, "existing document")}…`, () => void again([...changed]), { class: "link" }) : ""));
    } catch (err) {
      draw(message, trouble(err));
      markFault(form, err);
    }
    save.disabled = false;
  } },
  el("section", {}, el("h2", {}, "Name"), el("div", { class: "setting" }, el("label", { for: "set-name" }, "Dataset name"), called, el("p", { class: "muted" }, "Used in links and by API clients. Clients that use the dataset's id are not affected."))),
  settingFields(table, { values: /** @type {any} */ (ds.parser_config), dataset: true }),
  el("div", { class: "actions" }, message, save));

  /** The documents that are there take what was changed. @param {string[]} keys */
  async function again(keys) {
    const done = await reparseDialog(params.ds, { count: ds.documents, body: { all: true, parser_config: Object.fromEntries(keys.map((k) => [k, null])) } });
    if (done) go(`/datasets/${encodeURIComponent(params.ds)}`);
  }

  /** @type {ReturnType<typeof import("../trysettings.js").trySettings>|null} */
  let tried = null;
  const beside = el("div", { class: "try-settings" }, form);
  const opens = button("Preview on a page", async () => {
    const { trySettings } = await import("../trysettings.js");
    if (signal.aborted || tried) return;
    tried = trySettings({ ds: params.ds, over: "dataset", config: changes, signal });
    beside.append(tried.root);
    beside.classList.add("trying");
    opens.remove();
    const h = /** @type {HTMLElement} */ (tried.root.querySelector("h2"));
    h.tabIndex = -1;
    h.focus({ preventScroll: true });
    if (innerWidth <= 1100) tried.root.scrollIntoView();
  });
  form.addEventListener("input", () => tried?.soon());

  const hooks = webhooks({ base, signal });
  root.replaceChildren(...datasetHead(params.ds, ds.name, "settings", opens),
    el("p", { class: "muted" }, "Used for documents uploaded without their own settings. Empty fields use the default."), beside, hooks.root);
  await hooks.show();
}
