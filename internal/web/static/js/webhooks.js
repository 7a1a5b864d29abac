// @ts-check
/** The addresses that are told when documents and jobs of a dataset end. */
import { get, request, send } from "./api.js";
import { copyBy } from "./clipboard.js";
import { dialog } from "./dialog.js";
import { announce, button, draw, el, grid, name, trouble } from "./dom.js";
import { number, plural, time } from "./format.js";

/** @typedef {{id: string, url: string, events: string[], secret?: string, enabled: boolean, failures: number, last_error?: string, created_at: string}} Webhook */
/** @typedef {{id: string, event: string, state: string, attempts: number, status?: number, error?: string, created_at: string}} Delivery */

/** What can be told, and what people call it. @type {[string, string][]} */
const events = [["document.succeeded", "Document succeeded"], ["document.partially_succeeded", "Document partly succeeded"], ["document.failed", "Document failed"], ["document.canceled", "Document canceled"], ["document.deleted", "Document deleted"],
  ["job.succeeded", "Job succeeded"], ["job.partially_succeeded", "Job partly succeeded"], ["job.failed", "Job failed"], ["job.canceled", "Job canceled"]];

/** @param {{base: string, signal: AbortSignal}} o base: path of the dataset */
export function webhooks({ base, signal }) {
  const list = el("div"), made = el("div"), problem = el("div"), path = `${base}/webhooks`;
  const root = el("section", { class: "dataset-settings", "aria-label": "Webhooks" }, el("div", { class: "head" }, el("h2", {}, "Webhooks"), el("div", { class: "tools" }, button("New webhook…", () => void edit()))),
    el("p", { class: "muted" }, "A webhook is called when documents and jobs of this dataset end. The operator allows hosts with webhooks.hosts."), problem, made, list);
  const failed = (/** @type {unknown} */ err) => draw(problem, trouble(err));

  async function show() {
    try {
      /** @type {Webhook[]} */
      const all = (await get(path, signal)).items;
      draw(list, all.length ? grid("Webhook endpoints", [["Address", "wide"], ["Events", "wide"], ["State", "wide"], ["", "row-actions"]], all.map((w) => [
        el("bdi", {}, w.url), w.events.length ? w.events.map((e) => events.find(([k]) => k === e)?.[1] || e).join(", ") : "everything",
        [w.enabled ? el("span", { class: "badge ok" }, "On") : el("span", { class: "badge off" }, "Off"), w.failures ? el("p", { class: "warn" }, `${plural(w.failures, "attempt")} in a row failed: ${w.last_error || ""}`) : null],
        [button("Try", () => void ping(w), { "aria-label": `Try ${w.url}` }), button("Edit…", () => void edit(w), { "aria-label": `Edit ${w.url}` }), button("Remove…", () => void remove(w), { class: "danger", "aria-label": `Remove ${w.url}` })]]))
        : el("p", {}, "No webhooks yet."));
    } catch (err) {
      if (!signal.aborted) failed(err);
    }
  }

  /** A new webhook, or a change of one. @param {Webhook} [w] */
  async function edit(w) {
    /** @type {Webhook|undefined} */
    let answer;
    const done = await dialog({
      title: w ? "Edit webhook" : "New webhook", action: w ? "Save" : "Create", no: "Cancel",
      body: [el("label", { class: "field" }, "Address", el("input", { name: "url", type: "url", required: true, maxlength: 2000, value: w?.url || "", placeholder: "https://example.org/hook", autocomplete: "off" })),
        el("fieldset", { class: "facet" }, el("legend", {}, "Events; select none for all"), events.map(([k, label]) => el("label", {}, el("input", { type: "checkbox", name: "events", value: k, checked: w?.events.includes(k) }), label))),
        w ? el("label", { class: "check" }, el("input", { type: "checkbox", name: "enabled", checked: w.enabled }), " On") : ""],
      run: async (form) => {
        const body = { url: String(form.get("url")).trim(), events: form.getAll("events"), ...(w ? { enabled: form.get("enabled") !== null } : {}) };
        answer = await send(w ? `${path}/${w.id}` : path, body, w ? "PATCH" : "POST");
      },
    });
    if (!done) return;
    announce(w ? "Webhook updated" : "Webhook created");
    if (answer?.secret) showSecret(answer);
    await show();
  }

  /** Only this answer has the secret: it is drawn once and stored nowhere. @param {Webhook} w */
  function showSecret(w) {
    const secret = el("input", { class: "mono", readonly: true, value: w.secret, "aria-label": "Webhook secret", spellcheck: "false", autocomplete: "off" });
    made.replaceChildren(el("div", { class: "progress-box" }, el("p", {}, "Messages to ", name(w.url), " are signed with this secret. It is shown only once: copy it now."),
      el("div", { class: "search-line secret" }, secret, button("Copy", (e) => void copyBy(/** @type {HTMLElement} */ (e.currentTarget), w.secret || "", secret)), button("Done", () => made.replaceChildren()))));
    secret.focus();
    secret.select();
  }

  /** Sends a message and says what became of it. @param {Webhook} w */
  async function ping(w) {
    try {
      await send(`${path}/${w.id}:ping`);
      await looked(w);
    } catch (err) {
      failed(err);
    }
  }

  /** @param {Webhook} w */
  async function looked(w) {
    /** @type {Delivery[]} */
    const last = (await get(`${path}/${w.id}/deliveries?limit=5`, signal)).items;
    const again = await dialog({ title: "Recent deliveries", action: "Refresh", no: "Close", body: [el("p", {}, "A delivery's state updates once the endpoint has responded."), deliveries(last)], run: () => Promise.resolve() });
    if (again) await looked(w);
    await show();
  }

  /** @param {Delivery[]} of */
  const deliveries = (of) => grid("Messages", [["Told"], ["State"], ["Attempts", "num"], ["When"]], of.map((d) => [d.event, [d.state, d.error ? el("p", { class: "warn" }, d.error) : null], number(d.attempts), time(d.created_at)]));

  /** @param {Webhook} w */
  async function remove(w) {
    const done = await dialog({ title: "Remove webhook", action: "Remove", no: "Cancel", danger: true, body: [el("p", {}, name(w.url)), el("p", {}, "Its deliveries are removed too, and pending ones are not sent.")],
      run: () => request(`${path}/${w.id}`, { method: "DELETE" }) });
    if (done) await show();
  }
  return { root, show };
}
