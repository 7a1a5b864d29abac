// @ts-check
/** Styles of views that few look at: they come with the view. */
import { el } from "./dom.js";

/** @type {Map<string, Promise<void>>} */
const asked = new Map();

/** Waits for a sheet of the page's own; without it the view is plain and complete. @param {string} href */
export function sheet(href) {
  let there = asked.get(href);
  if (!there) {
    there = new Promise((done) => document.head.append(el("link", { rel: "stylesheet", href, onload: () => done(), onerror: () => done() })));
    asked.set(href, there);
  }
  return there;
}
