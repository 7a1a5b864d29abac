// @ts-check
/** Keys of the keyboard that work everywhere, and the list of all. */
import { byId, button, el } from "./dom.js";
import { dataset, go } from "./nav.js";

const switchedOff = "sheaf-keys-off";

/** Whether a key means what this page says, and is not typed into something. @param {KeyboardEvent} e */
export function ours(e) {
  if (localStorage.getItem(switchedOff) || e.ctrlKey || e.metaKey || e.altKey || e.isComposing || e.defaultPrevented) return false;
  return !(e.target instanceof Element && e.target.closest("input:not([type=checkbox]),textarea,select,dialog[open],[contenteditable]"));
}

/** @type {Record<string, [string, () => string]>} */
const places = {
  d: ["Documents", () => `/datasets/${encodeURIComponent(dataset())}`],
  s: ["Datasets", () => "/datasets"],
  j: ["Jobs", () => "/jobs"],
  o: ["Operations", () => "/operations"],
};

/** @type {[string, string][]} */
const list = [
  ["Ctrl K", "Go to any dataset, document or job"],
  ["/", "Search"],
  ...Object.entries(places).map(([k, [name]]) => /** @type {[string, string]} */ ([`g ${k}`, `Go to ${name}`])),
  ["j, k", "Next and previous document"],
  ["↑, ↓, Page, Home, End", "Move through the documents"],
  ["x", "Select the document"],
  ["p", "Preview it beside the list"],
  ["Enter", "Open it"],
  ["←, →", "Previous and next page"],
  ["f", "Find in the document"],
  ["Esc", "Clear the selection, close a dialog"],
  ["?", "Show this list"],
];

function showKeys() {
  if (document.querySelector("dialog[open]")) return;
  const off = () => localStorage.getItem(switchedOff) === "yes";
  const said = () => (off() ? "Turn keys on" : "Turn keys off");
  const turn = button(said(), () => {
    if (off()) localStorage.removeItem(switchedOff);
    else localStorage.setItem(switchedOff, "yes");
    turn.textContent = said();
  });
  const d = el("dialog", { "aria-labelledby": "keys-title", onclose: () => d.remove() }, el("h2", { id: "keys-title", tabindex: "-1" }, "Keyboard"),
    el("dl", { class: "facts keys" }, list.flatMap(([keys, text]) => [el("dt", {}, el("kbd", {}, keys)), el("dd", {}, text)])),
    el("div", { class: "actions" }, turn, button("Close", () => d.close(), { class: "primary" })));
  document.body.append(d);
  d.showModal();
}

let led = -Infinity; // when g was pressed

/** Follows the keys of the whole page. */
export function listenToKeys() {
  byId("keys").addEventListener("click", showKeys);
  document.addEventListener("keydown", (e) => {
    // Not of the keys that can be turned off: no reader of the screen takes it, and it works while something is typed.
    if ((e.ctrlKey || e.metaKey) && !e.altKey && !e.shiftKey && e.key.toLowerCase() === "k") {
      e.preventDefault();
      return void import("./palette.js").then(({ openPalette }) => openPalette());
    }
    if (!ours(e)) return;
    const place = e.timeStamp - led < 1500 ? places[e.key] : undefined;
    led = e.key === "g" ? e.timeStamp : -Infinity;
    if (!place && e.key !== "/" && e.key !== "?") return;
    e.preventDefault();
    if (place) go(place[1]());
    else if (e.key === "/") (byId("search").hidden ? /** @type {HTMLElement|null} */ (document.querySelector(".search-form [name=q]")) : byId("q"))?.focus();
    else showKeys();
  }, { capture: true }); // before a view's own keys: j after g is a place
}
