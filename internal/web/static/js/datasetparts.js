// @ts-check
/** The views of a dataset, as tabs that stand on each of them. */
import { el, name } from "./dom.js";

const parts = /** @type {const} */ ([["", "Documents"], ["search", "Search"], ["runs", "Runs"], ["graph", "Graph"], ["mindmap", "Mind map"], ["evaluations", "Evaluations"], ["settings", "Settings"]]);

/** @param {string} ds as the address names it @param {string} called its name @param {string} part */
export function datasetTabs(ds, called, part) {
  const base = `/datasets/${encodeURIComponent(ds)}`;
  const address = (/** @type {string} */ k) => (k === "search" ? `/search?${new URLSearchParams({ dataset: called })}` : k ? `${base}/${k}` : base);
  return el("nav", { class: "tabs", "aria-label": "Views of the dataset" }, parts.map(([k, label]) => el("a", { href: address(k), "aria-current": k === part ? "page" : undefined }, label)));
}

/** @param {string} ds as the address names it @param {string} called its name @param {string} part @param {...import("./dom.js").Child} tools */
export const datasetHead = (ds, called, part, ...tools) => [
  el("div", { class: "head" }, el("div", {}, el("p", { class: "crumbs" }, el("a", { href: "/datasets" }, "Datasets"), " / ", el("a", { href: `/datasets/${encodeURIComponent(ds)}` }, name(called)), " / "), el("h1", { tabindex: "-1" }, parts.find(([k]) => k === part)?.[1] || "")), tools.length ? el("div", { class: "tools" }, tools) : null),
  datasetTabs(ds, called, part)];
