// @ts-check
/** The frame: addresses, navigation, keys of the keyboard, the API key. */
import { aborted, ApiError, get, key, keyStays, onUnauthorized, setKey } from "./api.js";
import { dialog } from "./dialog.js";
import { button, byId, el, empty, trouble } from "./dom.js";
import { listenToKeys } from "./keys.js";
import { showLine } from "./live.js";
import { current, dataset, forget, frame, go, home, remember, title } from "./nav.js";
import { listen } from "./upload.js";

/** @typedef {import("./types.js").Context} Context */
/** @typedef {import("./types.js").View} View */

/** Each address and the module that draws it. @type {[RegExp, string[], () => Promise<{view: (c: Context) => Promise<View> | View}>, string][]} */
const routes = [
  [/^\/datasets\/([^/]+)$/, ["ds"], () => import("./views/documents.js"), "documents"],
  [/^\/datasets\/([^/]+)\/documents\/([^/]+)$/, ["ds", "doc"], () => import("./views/document.js"), "documents"],
  [/^\/datasets\/([^/]+)\/evaluations$/, ["ds"], () => import("./views/evaluations.js"), "documents"],
  [/^\/datasets\/([^/]+)\/settings$/, ["ds"], () => import("./views/settings.js"), "documents"],
  [/^\/datasets\/([^/]+)\/runs$/, ["ds"], () => import("./views/runs.js"), "documents"],
  [/^\/datasets\/([^/]+)\/graph$/, ["ds"], () => import("./views/graph.js"), "documents"],
  [/^\/datasets\/([^/]+)\/mindmap$/, ["ds"], () => import("./views/mindmap.js"), "documents"],
  [/^\/datasets$/, [], () => import("./views/datasets.js"), "datasets"],
  [/^\/flows$/, [], () => import("./views/flows.js"), "datasets"],
  [/^\/flows\/([^/]+)$/, ["flow"], () => import("./views/flows.js"), "datasets"],
  [/^\/search$/, [], () => import("./views/search.js"), "search"],
  [/^\/jobs$/, [], () => import("./views/jobs.js"), "jobs"],
  [/^\/jobs\/([^/]+)$/, ["job"], () => import("./views/job.js"), "jobs"],
  [/^\/operations$/, [], () => import("./views/operations.js"), "operations"],
  [/^\/tenants$/, [], () => import("./views/tenants.js"), "operations"],
  [/^\/tenants\/([^/]+)$/, ["tenant"], () => import("./views/tenant.js"), "operations"],
];

/** The field at the top searches the dataset on show, and everything where there is none. */
function sayWhatIsSearched() {
  const ds = current.params.ds, what = !ds ? "Search all datasets" : /^[0-9a-f]{32}$/.test(ds) ? "Search this dataset" : `Search in ${ds.length > 24 ? `${ds.slice(0, 23)}…` : ds}`;
  byId("q").setAttribute("placeholder", what);
  /** @type {HTMLElement} */ (byId("search").querySelector("label")).textContent = what;
}

async function show() {
  if (location.pathname === "/") history.replaceState(null, "", `/datasets/${encodeURIComponent(home())}`);
  const path = location.pathname, query = new URLSearchParams(location.search);
  if (path === current.path && current.view?.update) return current.view.update(query);
  const first = current.path === "";
  current.stop.abort();
  showFault();
  const stop = new AbortController();
  Object.assign(current, { path, params: {}, view: undefined, stop });
  const root = byId("view");
  const route = routes.find(([re]) => re.test(path));
  for (const a of document.querySelectorAll("#nav a")) a.toggleAttribute("aria-current", false);
  document.querySelector(`#nav a[data-view="${route?.[3]}"]`)?.setAttribute("aria-current", "page");
  showLine("idle");
  if (!route) {
    title("Not found");
    root.replaceChildren(el("h1", { tabindex: "-1" }, "Page not found"), el("p", {}, "The link may be out of date. ", el("a", { href: "/" }, "Go to the documents"), "."));
    return;
  }
  const values = /** @type {RegExpExecArray} */ (route[0].exec(path));
  route[1].forEach((n, i) => (current.params[n] = decodeURIComponent(values[i + 1])));
  sayWhatIsSearched();
  const docs = document.querySelector('#nav a[data-view="documents"]');
  docs?.setAttribute("href", `/datasets/${encodeURIComponent(dataset())}`);
  try {
    const module = await route[2]();
    if (stop.signal.aborted) return;
    const view = await module.view({ root, params: current.params, query, signal: stop.signal });
    if (stop.signal.aborted) return;
    current.view = view;
    if (current.params.ds) remember(current.params.ds); // it is there
  } catch (e) {
    if (stop.signal.aborted) return;
    if (e instanceof ApiError && e.status === 401) {
      title("API key");
      root.replaceChildren(el("h1", { tabindex: "-1" }, "API key required"), empty("An API key is required", el("p", {}, "The operator creates keys with “sheaf key create”."), button("Enter an API key", () => void onUnauthorized.ask(), { class: "primary" })));
      return;
    }
    title("Trouble");
    const gone = e instanceof ApiError && e.status === 404;
    if (gone && current.params.ds) {
      forget(current.params.ds);
      docs?.setAttribute("href", `/datasets/${encodeURIComponent(home())}`);
    }
    root.replaceChildren(el("h1", { tabindex: "-1" }, "Something went wrong"), trouble(e, () => {
      current.path = "";
      void show();
    }), gone ? el("p", {}, el("a", { href: "/datasets" }, "All datasets")) : "");
  }
  if (!first && !root.contains(document.activeElement)) { // a view that is come back to has the focus where it was
    window.scrollTo(0, 0);
    /** @type {HTMLElement|null} */ (root.querySelector("h1"))?.focus({ preventScroll: true });
  }
}

/** Asks for the API key, once at a time. */
let asking = false;
onUnauthorized.ask = async () => {
  byId("key").hidden = false;
  if (asking) return;
  asking = true;
  const done = await askKey();
  asking = false;
  if (done) location.reload();
};

function askKey() {
  return dialog({
    title: "API key",
    no: "Cancel",
    body: [el("p", {}, "This server requires an API key. By default the key is kept in this tab only and forgotten when you close it."),
      el("label", { class: "field" }, "API key", el("input", { name: "key", type: "password", autocomplete: "off", value: key(), spellcheck: "false" })),
      el("label", { class: "check" }, el("input", { type: "checkbox", name: "stays", checked: keyStays() }), " Remember on this computer, in all tabs")],
    action: "Use this key",
    run: async (form) => {
      const old = key(), stayed = keyStays();
      setKey(String(form.get("key") || "").trim(), form.get("stays") === "on");
      const r = await fetch("/v1/datasets?limit=1", { headers: key() ? { "X-Api-Key": key() } : {} });
      if (r.status === 401) {
        setKey(old, stayed);
        throw new Error("The key is unknown or revoked. Ask the server's operator for a new one.");
      }
    },
  });
}

document.addEventListener("click", (e) => {
  if (e.defaultPrevented || e.button || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
  const a = e.target instanceof Element && e.target.closest("a");
  if (!a || a.target || a.hasAttribute("download") || a.origin !== location.origin) return;
  if (a.hash && a.pathname === location.pathname && a.search === location.search) return; // a jump within the page
  const url = a.pathname + a.search;
  if (!routes.some(([re]) => re.test(a.pathname)) && a.pathname !== "/") return;
  e.preventDefault();
  go(url);
});

byId("search").addEventListener("submit", (e) => {
  e.preventDefault();
  const q = /** @type {HTMLInputElement} */ (byId("q")).value.trim();
  if (q) go(`/search?${new URLSearchParams({ q, ...(current.params.ds ? { dataset: current.params.ds } : {}) })}`);
});

byId("key").addEventListener("click", async () => {
  if (await askKey()) location.reload();
});

// What no view shows: a click that the server refuses must not look as if nothing happened.
window.addEventListener("unhandledrejection", (e) => {
  if (!aborted(e.reason)) showFault(e.reason);
});

/** @param {unknown} [err] nothing takes away what is shown */
function showFault(err) {
  document.querySelector(".fault")?.remove();
  if (err) document.body.append(el("div", { class: "fault" }, trouble(err), button("Close", () => showFault())));
}

window.addEventListener("popstate", () => {
  current.back = true;
  void show().finally(() => (current.back = false));
});
byId("key").hidden = !key(); // without keys there is none to be entered
listen(dataset);
listenToKeys();
if (localStorage.getItem("sheaf-watched")) void import("./notify.js").then(({ follow }) => follow()); // jobs whose end is waited for
frame.show = () => void show();
frame.show();
get("/healthz").then((h) => (byId("version").textContent = `Sheaf ${h.version}`), () => {});
