// @ts-check
/** One tenant: what it holds, and its keys. */
import { all, get, key, send } from "../api.js";
import { copyText } from "../clipboard.js";
import { dialog } from "../dialog.js";
import { announce, button, draw, el, empty, grid, name, trouble } from "../dom.js";
import { bytes, number, time } from "../format.js";
import { title } from "../nav.js";
import { against, editTenant, focusOn, tenantPath } from "../tenants.js";
import { unguarded } from "./tenants.js";

/** @typedef {import("../types.js").Key} Key */

/** What a key may do, least first. A key's greatest scope says all. @type {[string, string][]} */
const scopes = [["read", "read: search and look"], ["write", "write: read, upload, change and delete"], ["admin", "admin: everything, for all tenants"]];
const greatest = (/** @type {string[]} */ of) => scopes.findLast(([s]) => of.includes(s))?.[0] || "";
const called = (/** @type {Key} */ k) => k.name || k.id;

/** @param {import("../types.js").Context} c */
export async function view({ root, params, signal }) {
  const id = params.tenant;
  title(`Tenant ${id}`);
  const problem = el("div"), facts = el("section"), made = el("section", { "aria-label": "New key" }), keys = el("section");
  const failed = (/** @type {unknown} */ err) => draw(problem, trouble(err));

  async function showTenant() {
    /** @type {import("../types.js").Tenant} */
    const t = await get(tenantPath(id), signal);
    const fact = (/** @type {string} */ k, /** @type {any} */ v) => [el("dt", {}, k), el("dd", {}, v)];
    draw(facts, el("dl", { class: "facts" }, fact("Name", [name(t.name), t.paused ? el("span", { class: "badge off" }, "Paused") : ""]), fact("Weight", number(t.weight)), fact("Cap", t.cap ? number(t.cap) : "as many tasks as the fleet has workers"),
      fact("Documents", against(number, t.holds.documents, t.quota.documents)), fact("Originals", against(bytes, t.holds.bytes, t.quota.bytes)), fact("Queued tasks", against(number, t.holds.queued_tasks, t.quota.queued_tasks)), fact("Created", time(t.created_at))));
  }

  async function showKeys() {
    /** @type {Key[]} */
    const ks = await all(`${tenantPath(id)}/keys`, 1000, signal);
    draw(keys, el("div", { class: "head" }, el("h2", {}, "Keys"), el("div", { class: "tools" }, button("New key…", () => void create(), { class: "primary", "aria-label": "New key" }))),
      ks.length ? grid("Keys", [["Key"], ["Scopes"], ["Created"], ["Expires"], ["", "row-actions"]], ks.map((k) => [
        [name(called(k)), k.revoked_at ? el("span", { class: "badge off" }, "Revoked") : expired(k) ? el("span", { class: "badge part" }, "Expired") : null, k.name ? el("code", { class: "under" }, k.id) : null],
        k.scopes.join(", "), time(k.created_at), k.expires_at ? time(k.expires_at) : "never",
        k.revoked_at ? "" : [button("Edit…", () => void edit(k), { "aria-label": `Edit key ${called(k)}` }), button("Revoke…", () => void revoke(k), { class: "danger", "aria-label": `Revoke key ${called(k)}` })]]))
        : empty("No keys yet", el("p", {}, "Requests for this tenant need a key.")));
  }
  const expired = (/** @type {Key} */ k) => k.expires_at && Date.parse(k.expires_at) <= Date.now();
  const keyPath = (/** @type {Key} */ k) => `${tenantPath(id)}/keys/${encodeURIComponent(k.id)}`;
  const fields = (/** @type {string} */ called, /** @type {string} */ scope) => [
    el("label", { class: "field" }, "Name", el("input", { name: "name", maxlength: 255, value: called, autocomplete: "off" }), el("span", { class: "under" }, "what the key is used for")),
    el("label", { class: "field" }, "Scope", el("select", { name: "scopes" }, scopes.map(([value, label]) => el("option", { value, selected: value === scope }, label)))),
  ];

  async function create() {
    /** @type {(Key & {secret: string})|undefined} */
    let k;
    const done = await dialog({
      title: `New key for tenant ${id}`, action: "Create",
      body: [...fields("", "write"), el("label", { class: "field" }, "Expires", el("input", { name: "expires_at", type: "datetime-local" }), el("span", { class: "under" }, "leave empty for never"))],
      run: async (form) => {
        const expires = String(form.get("expires_at") || "");
        k = await send(`${tenantPath(id)}/keys`, { name: form.get("name"), scopes: [form.get("scopes")], ...(expires ? { expires_at: new Date(expires).toISOString() } : {}) });
      },
    });
    if (!done || !k) return;
    showSecret(k);
    await showKeys().catch(failed);
  }

  /** Only this answer has the secret: it is drawn once and stored nowhere. @param {Key & {secret: string}} k */
  function showSecret(k) {
    const secret = el("input", { class: "mono", readonly: true, value: k.secret, "aria-label": `Secret of key ${called(k)}`, spellcheck: "false", autocomplete: "off" });
    const copy = async () => {
      const done = await copyText(k.secret, secret);
      secret.select();
      status.textContent = done ? "Secret copied" : "The browser does not allow copying. Copy the selected text yourself.";
    };
    const status = el("span", { class: "muted", role: "status" });
    made.replaceChildren(el("div", { class: "progress-box" }, el("p", {}, "The key ", el("strong", {}, name(called(k))), " has been created. Its secret is shown only once: copy it now."),
      el("div", { class: "search-line secret" }, secret, button("Copy", () => void copy()), button("Done", () => {
        made.replaceChildren();
        focusOn("New key");
      })), status));
    secret.focus();
    secret.select();
  }

  async function edit(/** @type {Key} */ k) {
    const scope = greatest(k.scopes);
    const done = await dialog({
      title: `Edit key ${called(k)}`, action: "Save", body: fields(k.name, scope),
      run: async (form) => {
        /** @type {Record<string, any>} */
        const to = {};
        if (form.get("name") !== k.name) to.name = form.get("name");
        if (form.get("scopes") !== scope) to.scopes = [form.get("scopes")];
        k = await send(keyPath(k), to, "PATCH");
      },
    });
    if (done) announce("Key updated");
    await showKeys().catch(failed);
    focusOn(`Edit key ${called(k)}`);
  }

  async function revoke(/** @type {Key} */ k) {
    const would = el("div", { class: "preview", role: "status" }, el("p", { class: "muted" }, "Checking what this would do …"));
    void send(`${keyPath(k)}?dry_run=true`, undefined, "DELETE").then(
      (/** @type {Key} */ w) => draw(would, el("p", {}, "Revokes ", el("strong", {}, name(called(w))), " (", el("code", {}, w.id), `) of tenant ${w.tenant_id}, with ${w.scopes.length === 1 ? "the scope" : "the scopes"} ${w.scopes.join(", ")}.`)),
      (err) => draw(would, trouble(err)));
    const done = await dialog({
      title: `Revoke key ${called(k)}`, action: "Revoke", danger: true,
      body: [would, el("p", {}, "Requests with this key will be rejected immediately. This cannot be undone.")],
      run: () => send(keyPath(k), undefined, "DELETE"),
    });
    if (done) announce(`Key ${called(k)} revoked`);
    await showKeys().catch(failed);
    focusOn(done ? "New key" : `Revoke key ${called(k)}`);
  }

  await Promise.all([showTenant(), showKeys()]);
  root.replaceChildren(el("p", { class: "crumbs" }, el("a", { href: "/tenants" }, "Tenants")),
    el("div", { class: "head" }, el("h1", { tabindex: "-1" }, "Tenant ", name(id)), el("div", { class: "tools" }, button("Edit…", () => void editTenant(id, signal, showTenant).catch(failed), { "aria-label": `Edit tenant ${id}` }))),
    key() ? "" : unguarded(), problem, facts, made, keys);
}
