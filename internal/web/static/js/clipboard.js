// @ts-check
import { key } from "./api.js";
import { button, el } from "./dom.js";

/** Copying, also where the browser has no clipboard: it has one on pages of https and of this machine only. */

/**
 * Copies a text. Where that is not allowed what is shown of it is selected, to be copied by hand.
 * @param {string} text @param {HTMLElement} [shown] what holds the text
 * @returns {Promise<boolean>} whether it is copied
 */
export async function copyText(text, shown) {
  try {
    await navigator.clipboard.writeText(text); // there may be none, which throws as well
    return true;
  } catch { /* the old way copies what is selected */ }
  const open = document.querySelector("dialog[open]");
  const field = document.createElement("textarea");
  field.value = text;
  field.readOnly = true;
  field.className = "hidden";
  field.setAttribute("aria-hidden", "true");
  const focus = document.activeElement;
  (open || document.body).append(field); // behind a dialog nothing can be selected
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (focus instanceof HTMLElement) focus.focus({ preventScroll: true });
  if (!done && shown instanceof HTMLInputElement) shown.select();
  else if (!done && shown) getSelection()?.selectAllChildren(shown);
  return done;
}

/**
 * A button's click: copies, and says on the button for two seconds what became of it.
 * @param {HTMLElement} button @param {string} text @param {HTMLElement} [shown]
 */
export async function copyBy(button, text, shown) {
  const label = button.dataset.label || (button.dataset.label = button.textContent || "Copy");
  const done = await copyText(text, shown);
  button.textContent = done ? "Copied" : shown ? "Selected" : "Not allowed";
  const said = document.getElementById("announce");
  if (said) said.textContent = done ? "Copied" : shown ? "The browser does not allow copying; the text is selected" : "The browser does not allow copying";
  setTimeout(() => (button.textContent = label), 2000);
}

/** Text that a shell takes as one word. @param {string} s */
export const quoted = (s) => (/^[\w./:=@%+-]+$/.test(s) ? s : `'${s.replaceAll("'", `'\\''`)}'`);

/** How a command says who asks, where the server wants to know. */
export const authHeader = () => (key() ? ["-H", '"Authorization: Bearer $SHEAF_KEY"'] : []);

/** The command that asks the API what the page asks. @param {string} path @param {any} body */
export const apiCommand = (path, body) => ["curl", ...authHeader(), "-H", quoted("Content-Type: application/json"), "-d", quoted(JSON.stringify(body)), quoted(location.origin + path)].join(" ");

/** A value as Python writes it. @param {any} v @returns {string} */
const literal = (v) => (v === null ? "None" : v === true ? "True" : v === false ? "False" : Array.isArray(v) ? `[${v.map(literal).join(", ")}]`
  : typeof v === "object" ? `{${Object.entries(v).map(([k, x]) => `${JSON.stringify(k)}: ${literal(x)}`).join(", ")}}` : JSON.stringify(v));

/** The search as a Python program of the standard library, which prints score, document and place of each hit. @param {string} path @param {any} body */
export const apiPython = (path, body) => [`import json${key() ? ", os" : ""}, urllib.request`, "", `query = ${literal(body)}`,
  `headers = {"Content-Type": "application/json"${key() ? ', "Authorization": "Bearer " + os.environ["SHEAF_KEY"]' : ""}}`,
  `request = urllib.request.Request(${literal(location.origin + path)}, json.dumps(query).encode(), headers)`,
  "with urllib.request.urlopen(request, timeout=60) as answer:", '    for hit in json.load(answer)["hits"]:', '        print(hit["score"], hit["document"]["name"], hit["chunk"]["pages"])'].join("\n");

/** A command to be copied. @param {string} text @param {string} [what] it is */
export function commandBox(text, what = "The same as a command") {
  const shown = el("pre", { tabindex: "0", "aria-label": what }, text);
  return el("div", { class: "curl" }, shown, button("Copy", (e) => void copyBy(/** @type {HTMLElement} */ (e.currentTarget), text, shown), { "aria-label": what === "The same as a command" ? "Copy the command" : `Copy ${what}` }));
}
