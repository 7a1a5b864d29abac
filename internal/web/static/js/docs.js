// The reference of the API reads without scripts; this adds a filter, buttons
// that copy, and that an address with an operation opens it.

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
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch { // not allowed on pages without TLS: selected, it can be copied by hand
      getSelection()?.selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
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
