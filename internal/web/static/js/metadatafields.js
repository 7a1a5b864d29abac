// @ts-check
/** Pairs of a name and a value that are stored with documents at their upload. */
import { button, el, icon } from "./dom.js";

/** Pairs that a document's chunks carry, and characters of a value that a search can filter by. */
const mostPairs = 32, mostValue = 256, mostName = 64;

/**
 * Rows of a name and a value, with one more as they are filled.
 * @param {() => void} changed
 * @returns {{root: HTMLElement, value: (typing?: boolean) => Record<string, string>}} value: the pairs; it throws what is wrong with them, but with typing not of the one that is being filled in
 */
export function metadataFields(changed) {
  const rows = el("div", { class: "pairs", role: "group", "aria-label": "Metadata" });
  const more = button("Add another", () => add().querySelector("input")?.focus(), { class: "link" });
  const count = () => {
    more.hidden = rows.children.length >= mostPairs;
    [...rows.children].forEach((r, i) => {
      const [k, v] = r.querySelectorAll("input");
      k.setAttribute("aria-label", `Name ${i + 1}`);
      v.setAttribute("aria-label", `Value ${i + 1}`);
      r.querySelector("button")?.setAttribute("aria-label", `Remove ${k.value || `pair ${i + 1}`}`);
    });
  };
  function add() {
    const row = el("div", { class: "pair" },
      el("input", { placeholder: "author", maxlength: mostName, autocomplete: "off", spellcheck: "false", oninput: count }), el("input", { placeholder: "Clara Mill", maxlength: mostValue, autocomplete: "off" }),
      el("button", { type: "button", class: "remove", title: "Remove", onclick: () => {
        const next = row.nextElementSibling || row.previousElementSibling;
        row.remove();
        if (!rows.children.length) add();
        count();
        changed();
        (next || rows.lastElementChild)?.querySelector("input")?.focus();
      } }, icon("cross")));
    rows.append(row);
    count();
    return row;
  }
  add();
  for (const on of ["input", "focusout"]) rows.addEventListener(on, () => queueMicrotask(changed));
  return {
    root: el("details", { class: "more-settings metadata" }, el("summary", {}, "Metadata"), el("div", {}, el("p", { class: "muted" }, "Stored with each document and its chunks. Search can filter by it."), rows, more)),
    value(typing = false) {
      /** @type {Record<string, string>} */
      const out = {};
      for (const r of rows.children) {
        const [k, v] = [...r.querySelectorAll("input")].map((i) => i.value.trim());
        if (!k && !v || typing && (!k || !v) && r.contains(document.activeElement)) continue;
        if (!k) throw new Error(`The value “${v.slice(0, 60)}” has no name.`);
        if (!v) throw new Error(`“${k}” has no value.`);
        if (k in out) throw new Error(`“${k}” is given twice.`);
        out[k] = v;
      }
      return out;
    },
  };
}
