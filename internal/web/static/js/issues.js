// @ts-check
/** Why documents could not be read, grouped by cause, each with the one cure that helps. */
import { documentsPath, reparseDialog, retryDocuments } from "./actions.js";
import { send } from "./api.js";
import { grouped } from "./causes.js";
import { announce, button, draw, el, name, trouble } from "./dom.js";
import { number, plural } from "./format.js";
import { deleteLater } from "./later.js";
import { spoken } from "./names.js";

/** @typedef {import("./types.js").Issue} Issue */
/** @typedef {import("./causes.js").Group} Group */
/** @typedef {import("./causes.js").Cure} Cure */
/** Causes that are shown at first: the documents below should stay in sight. */
const firstShown = () => (matchMedia("(max-width: 860px)").matches ? 2 : 3);

/**
 * The box of issues of a dataset.
 * @param {{ds: string, show: (codes: string[]) => void, done: () => void}} o show: the documents of a group; done: something was begun
 */
export function issueBox({ ds, show, done }) {
  const list = el("ul", { class: "issues" });
  const more = button("", () => {
    open = !open;
    drawn = "";
    update(last);
  }, { class: "link" });
  const box = el("section", { class: "issue-box", "aria-labelledby": "issues-title", hidden: true }, el("h2", { id: "issues-title" }, "Issues"), list, more);
  let open = false, drawn = "";
  /** @type {Issue[]} */
  let last = [];

  /** @param {Group} g */
  function row(g) {
    const failed = g.issues.reduce((n, i) => n + i.failed, 0), partly = g.documents - failed;
    const chosen = { count: g.documents, body: { filter: { failure_code: g.codes, state: ["failed", "partially_succeeded"] } } };
    const after = (/** @type {Promise<boolean>} */ p) => void p.then((yes) => yes && done());
    /** @type {Record<Cure, () => Node|null>} */
    const cures = {
      retry: () => button(`Retry ${number(g.documents)}…`, () => after(retryDocuments(ds, chosen))),
      reparse: () => button(`Reprocess ${number(g.documents)}…`, () => after(reparseDialog(ds, chosen))),
      // Those that are searchable in part stay.
      delete: () => (failed ? button(`Delete ${number(failed)}…`, () => after(deleteLater(ds, { count: failed, body: { filter: { failure_code: g.codes, state: ["failed"] } }, has: (d) => d.state === "failed" && g.codes.includes(d.failure?.code || "") }, done)), { class: "danger" }) : null),
      password: () => unlock(g),
    };
    return el("li", {}, el("div", { class: "issue-text" },
      el("details", {}, el("summary", { title: "Examples" }, el("strong", {}, g.cause.title(g.documents)), partly && failed ? el("span", { class: "muted" }, `, ${number(partly)} of them partially readable`) : partly ? el("span", { class: "muted" }, ", partially readable") : null),
        el("ul", {}, g.issues.map((i) => el("li", {}, el("a", { href: `/datasets/${encodeURIComponent(ds)}/documents/${i.document_id}?tab=problems` }, name(i.document)), ": ", spoken(i.sample.message), " ", el("code", {}, i.code))))),
      el("p", {}, g.cause.key === "part" && g.issues.length === 1 ? spoken(g.issues[0].sample.message) : g.cause.cure)),
    el("div", { class: "tools" }, cures[g.cause.act](), button(`Show ${number(g.documents)}`, () => show(g.codes), { class: "link" })));
  }

  /** A password for all that are locked, in place. @param {Group} g */
  function unlock(g) {
    const field = el("input", { type: "password", autocomplete: "off", required: true, "aria-label": "File password", placeholder: "Password" });
    const problem = el("div");
    const go = el("button", {}, `Unlock ${number(g.documents)}`);
    const form = el("form", { class: "unlock", onsubmit: async (/** @type {Event} */ e) => {
      e.preventDefault();
      go.disabled = true;
      try {
        const r = await send(documentsPath(ds, "reparse"), { filter: { failure_code: g.codes }, parser_config: { password: field.value } });
        announce(`${plural(r.documents, "document")} queued with the password`);
        done();
      } catch (err) {
        problem.replaceChildren(trouble(err));
      }
      go.disabled = false;
    } }, field, go, problem);
    return form;
  }

  /** @param {Issue[]} issues of the dataset */
  function update(issues) {
    last = issues;
    const groups = grouped(issues), shown = open ? groups : groups.slice(0, firstShown());
    const state = JSON.stringify([open, shown.map((g) => [g.cause.key, g.documents, g.codes, g.issues.map((i) => [i.failed, i.document_id])])]);
    box.hidden = !groups.length;
    if (state === drawn || list.contains(document.activeElement) && list.querySelector("input:focus")) return; // a password is being typed
    drawn = state;
    const opened = new Set([...list.querySelectorAll("details[open]")].map((d) => d.closest("li")?.dataset.cause));
    draw(list, shown.map((g) => {
      const li = row(g);
      li.dataset.cause = g.cause.key;
      li.querySelector("details")?.toggleAttribute("open", opened.has(g.cause.key));
      return li;
    }));
    more.hidden = groups.length <= firstShown();
    more.textContent = open ? "Show fewer" : `and ${plural(groups.length - firstShown(), "other cause")}`;
  }
  return { box, update };
}
