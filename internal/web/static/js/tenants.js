// @ts-check
/** What a tenant holds, and changing its shares. */
import { get, send } from "./api.js";
import { dialog } from "./dialog.js";
import { announce, el } from "./dom.js";
import { bytes, number } from "./format.js";

/** @typedef {import("./types.js").Tenant} Tenant */

/** @param {string} id */
export const tenantPath = (id) => `/v1/admin/tenants/${encodeURIComponent(id)}`;

/** Gives the focus back to a button that was drawn anew. @param {string} label */
export function focusOn(label) {
  /** @type {HTMLElement|undefined} */ ([...document.querySelectorAll("main button")].find((b) => b.getAttribute("aria-label") === label))?.focus();
}

/** What is held, with its bound. @param {(n: number) => string} unit @param {number} held @param {number} bound 0 for none */
export const against = (unit, held, bound) => (bound ? `${unit(held)} of ${unit(bound)}` : unit(held));

/**
 * Changes a tenant's share, quotas and pause. Only what differs is sent.
 * @param {string} id @param {AbortSignal} signal @param {() => Promise<any>} then draws what has changed
 */
export async function editTenant(id, signal, then) {
  /** @type {Tenant} */
  const t = await get(tenantPath(id), signal);
  const count = (/** @type {string} */ name, /** @type {string} */ label, /** @type {number} */ value, /** @type {string} */ hint) => el("label", { class: "field" }, label,
    el("input", { name, type: "number", step: 1, required: true, value: String(value) }), el("span", { class: "under" }, hint));
  const held = (/** @type {string} */ text) => `now ${text}; 0 for no limit`;
  await dialog({
    title: `Edit tenant ${id}`, action: "Save",
    body: [
      el("label", { class: "field" }, "Name", el("input", { name: "name", required: true, maxlength: 255, value: t.name, autocomplete: "off" })),
      el("div", { class: "grid-fields" },
        count("weight", "Weight", t.weight, "share relative to other tenants"), count("cap", "Cap", t.cap, "tasks at once; 0: all workers")),
      el("div", { class: "grid-fields" },
        count("documents", "Max documents", t.quota.documents, held(number(t.holds.documents))), count("bytes", "Max bytes", t.quota.bytes, held(bytes(t.holds.bytes))), count("queued_tasks", "Max queued tasks", t.quota.queued_tasks, held(number(t.holds.queued_tasks)))),
      el("label", { class: "check" }, el("input", { type: "checkbox", name: "paused", checked: t.paused }), " Paused: hold queued tasks; running tasks continue"),
    ],
    run: async (form) => {
      /** @type {Record<string, any>} */
      const to = {}, quota = /** @type {Record<string, number>} */ ({});
      if (form.get("name") !== t.name) to.name = form.get("name");
      for (const k of /** @type {const} */ (["weight", "cap"])) if (Number(form.get(k)) !== t[k]) to[k] = Number(form.get(k));
      for (const k of /** @type {const} */ (["documents", "bytes", "queued_tasks"])) if (Number(form.get(k)) !== t.quota[k]) quota[k] = Number(form.get(k));
      if (Object.keys(quota).length) to.quota = quota;
      if ((form.get("paused") !== null) !== t.paused) to.paused = !t.paused;
      await send(tenantPath(id), to, "PATCH");
      announce(`Tenant ${id} updated`);
      await then();
    },
  });
  focusOn(`Edit tenant ${id}`);
}
