// @ts-check
/** All tenants with their shares and what they hold, for the operator. */
import { get, key } from "../api.js";
import { button, draw, el, grid, name, trouble } from "../dom.js";
import { bytes, number } from "../format.js";
import { title } from "../nav.js";
import { against, editTenant, tenantPath } from "../tenants.js";

/** Tenants on one page: what each holds is a request of its own. */
const most = 20;

/** @param {import("../types.js").Context} c */
export async function view({ root, query, signal }) {
  title("Tenants");
  const problem = el("div"), list = el("section");
  const show = async () => {
    /** @type {{items: import("../types.js").Tenant[], next_cursor: string|null}} */
    const page = await get(`/v1/admin/tenants?${new URLSearchParams({ limit: String(most), ...(query.get("after") ? { cursor: query.get("after") || "" } : {}) })}`, signal);
    /** @type {import("../types.js").Tenant[]} */
    const ts = await Promise.all(page.items.map((t) => get(tenantPath(t.id), signal)));
    draw(list, grid("Tenants", [["Tenant"], ["Weight", "num"], ["Cap", "num"], ["Documents", "num wide"], ["Originals", "num wide"], ["Queued", "num wide"], ["", "row-actions"]], ts.map((t) => [
      [el("a", { href: `/tenants/${encodeURIComponent(t.id)}`, "aria-label": `Keys of tenant ${t.id}` }, name(t.id)), t.name !== t.id ? el("span", { class: "under" }, name(t.name)) : null, t.paused ? el("span", { class: "badge off" }, "Paused") : null],
      number(t.weight), t.cap ? number(t.cap) : "fleet", against(number, t.holds.documents, t.quota.documents), against(bytes, t.holds.bytes, t.quota.bytes), against(number, t.holds.queued_tasks, t.quota.queued_tasks),
      button("Edit…", () => void editTenant(t.id, signal, show).catch((err) => draw(problem, trouble(err))), { "aria-label": `Edit tenant ${t.id}` })])),
    page.next_cursor ? el("p", {}, el("a", { href: `/tenants?${new URLSearchParams({ after: page.next_cursor })}` }, "More tenants")) : null);
  };
  await show();
  root.replaceChildren(el("p", { class: "crumbs" }, el("a", { href: "/operations" }, "Operations")), el("div", { class: "head" }, el("h1", { tabindex: "-1" }, "Tenants")), key() ? "" : unguarded(), problem, list);
  return { update: (/** @type {URLSearchParams} */ q) => {
    query = q;
    void show().catch((err) => draw(problem, trouble(err)));
  } };
}

/** Without keys everybody may do everything: how that is changed. */
export const unguarded = () => el("div", { class: "page-note" }, el("p", {}, "This server requires no API key: anyone who can reach it has full access. To require keys, create a key with the admin scope, set ", el("code", {}, "server.auth"), " to true (", el("code", {}, "SHEAF_SERVER_AUTH=true"), "), and restart the server."));
