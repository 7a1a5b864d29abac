// The reference of the API reads without scripts; this adds a filter, buttons
// that copy, and that an address with an operation opens it.

const filter = document.querySelector("#api-filter");
filter.hidden = false;
filter.addEventListener("input", () => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const group of document.querySelectorAll(".api-index section")) {
    let any = words.length === 0;
    for (const link of group.querySelectorAll("li a")) {
      const shown = words.every(w => link.dataset.text.includes(w));
      link.parentElement.hidden = !shown;
      any ||= shown;
    }
    group.hidden = !any;
  }
});

// A proxy that speaks TLS is where the examples should ask.
const { base } = document.querySelector("#view").dataset;
if (base !== location.origin) {
  for (const code of document.querySelectorAll(".copied code, .api-body > ul code")) code.textContent = code.textContent.replaceAll(base, location.origin);
}

for (const button of document.querySelectorAll(".copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch { // not allowed on pages without TLS: selected, it can be copied by hand
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

function open() {
  const at = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (at instanceof HTMLDetailsElement) {
    at.open = true;
    at.scrollIntoView();
  }
}
addEventListener("hashchange", open);
open();
