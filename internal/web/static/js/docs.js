// The reference of the API reads without scripts; this adds a filter, buttons
// that copy, and that an address with an operation opens it.

import { copyBy } from "./clipboard.js";

/** @type {<T extends HTMLElement>(selector: string, within?: ParentNode) => T[]} */
const all = (selector, within = document) => /** @type {any} */ ([...within.querySelectorAll(selector)]);

for (const filter of /** @type {HTMLInputElement[]} */ (all("#api-filter"))) {
  filter.hidden = false;
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const group of all(".api-index section")) {
      let any = words.length === 0;
      for (const item of all("li", group)) {
        const shown = all("a", item).some(link => words.every(w => link.dataset.text?.includes(w)));
        item.hidden = !shown;
        any ||= shown;
      }
      group.hidden = !any;
    }
  });
}

// A proxy that speaks TLS is where the examples should ask.
for (const { dataset: { base } } of all("#view")) {
  if (!base || base === location.origin) continue;
  for (const code of all(".copied code, .api-body > ul code")) code.textContent = code.textContent.replaceAll(base, location.origin);
}

for (const box of all(".copied")) {
  const [button] = all(".copy", box), [code] = all("code", box);
  button.hidden = false;
  button.addEventListener("click", () => void copyBy(button, code.textContent || "", code));
}

// Each operation can be tried: its form is made when it is opened for the first
// time, and sends what it says with the key of this tab.
/** @param {HTMLElement} box */
function form(box) {
  const { method = "", path = "", body = "" } = box.dataset;
  const operation = /** @type {HTMLElement} */ (box.closest(".op"));
  /** @param {string} tag @param {Record<string, any>} with_ @param {...(Node | string)} within */
  const make = (tag, with_, ...within) => {
    const e = Object.assign(document.createElement(tag), with_);
    e.append(...within);
    return e;
  };
  /** @type {{name: string, where: string, input: HTMLInputElement}[]} */
  const fields = [];
  for (const row of /** @type {HTMLTableRowElement[]} */ (all("tbody tr", operation.querySelector("[aria-label^=Parameters]") ?? document.createElement("div")))) {
    const name = row.cells[0].textContent, where = row.cells[1].textContent;
    if (where === "header") continue;
    const input = /** @type {HTMLInputElement} */ (make("input", { autocomplete: "off", required: where === "path", value: name === "ds" ? "default" : "" }));
    fields.push({ name, where, input });
    box.append(make("label", { className: "field" }, `${name} (${where})`, input));
  }
  const text = /** @type {HTMLTextAreaElement} */ (make("textarea", { value: body, rows: Math.min(body.split("\n").length + 1, 14), spellcheck: false }));
  if (body) box.append(make("label", { className: "field" }, "Body", text));
  const send = /** @type {HTMLButtonElement} */ (make("button", { type: "button", className: method === "DELETE" ? "danger" : "" }, `Send ${method}`));
  const answer = make("pre", { tabIndex: 0, hidden: true });
  answer.setAttribute("aria-live", "polite");
  box.append(make("div", { className: "tools" }, send), answer);
  send.addEventListener("click", async () => {
    const missing = fields.find(f => f.input.required && !f.input.value.trim());
    if (missing) {
      missing.input.focus();
      return;
    }
    const query = new URLSearchParams();
    let at = path;
    for (const { name, where, input } of fields) {
      const value = input.value.trim();
      if (where === "path") at = at.replace(`{${name}}`, encodeURIComponent(value));
      else if (value) query.set(name, value);
    }
    /** @type {Record<string, string>} */
    const headers = body ? { "Content-Type": "application/json" } : {};
    const key = sessionStorage.getItem("sheaf-key");
    if (key) headers.Authorization = `Bearer ${key}`;
    send.disabled = true;
    try {
      const resp = await fetch(at + (query.size ? `?${query}` : ""), { method, headers, body: body ? text.value : undefined });
      const type = resp.headers.get("Content-Type") ?? "", got = /json|text|yaml/.test(type) ? await resp.text() : type && `(${type})`;
      let shown = got;
      try { shown = JSON.stringify(JSON.parse(got), null, 2); } catch { /* no JSON: as it is */ }
      answer.textContent = `${resp.status} ${resp.statusText}\n${shown.slice(0, 20000)}`;
    } catch (e) {
      answer.textContent = `The server did not answer: ${e instanceof Error ? e.message : e}`;
    }
    answer.hidden = false;
    send.disabled = false;
  });
  box.prepend(make("h3", {}, "Try it"));
  box.hidden = false;
}

for (const operation of all(".op")) {
  operation.addEventListener("toggle", () => {
    const [box] = all(".try", operation);
    if (box?.hidden) form(box);
  });
}

function show() {
  const at = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (at instanceof HTMLDetailsElement) {
    at.open = true;
    at.scrollIntoView();
  }
}
addEventListener("hashchange", show);
show();
