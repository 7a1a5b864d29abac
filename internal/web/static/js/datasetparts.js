// @ts-check
/** What there is of a dataset beside its documents, as tabs. */
import { el, name } from "./dom.js";

const parts = /** @type {const} */ ([["runs", "Runs"], ["graph", "Graph"], ["mindmap", "Mind map"]]);

/** @param {string} ds as the address names it @param {string} called its name @param {string} part @param {...import("./dom.js").Child} tools */
export const datasetHead = (ds, called, part, ...tools) => {
  const base = `/datasets/${encodeURIComponent(ds)}`;
  return [el("div", { class: "head" }, el("div", {}, el("p", { class: "crumbs" }, el("a", { href: "/datasets" }, "Datasets"), " / ", el("a", { href: base }, name(called)), " / "), el("h1", { tabindex: "-1" }, parts.find(([k]) => k === part)?.[1] || "")), tools.length ? el("div", { class: "tools" }, tools) : null),
    el("nav", { class: "tabs", "aria-label": "Parts of the dataset" }, el("a", { href: base }, "Documents"), parts.map(([k, label]) => el("a", { href: `${base}/${k}`, "aria-current": k === part ? "page" : undefined }, label)))];
};
