// @ts-check
/** Saved queries: questions of a dataset with the hits that they should have. */
import { datasetPath, documentPath } from "./api.js";
import { el, name } from "./dom.js";
import { unitsAt } from "./parts.js";

/** @typedef {import("./types.js").Hit} Hit */
/** @typedef {{document_id?: string, from?: number, to?: number, text?: string}} Expected */
/** @typedef {{id: string, dataset_id: string, question: string, source?: string, expected: Expected[]}} SavedQuery */

/** How many queries a dataset can have, and how many hits a query can expect. */
export const maxQueries = 1000, maxExpected = 20;

/** @param {string} ds */
export const queriesPath = (ds) => `${datasetPath(ds)}/queries`;

/** A text without differences of case and white space. @param {string} s */
const plain = (s) => s.split(/\s+/).filter(Boolean).join(" ").toLowerCase();

/** Whether a hit is what is expected; the server's evaluations decide the same way. @param {Expected} e @param {Hit} h */
export const meets = (e, h) => (!e.document_id || e.document_id === h.document.id) && (!e.from || h.chunk.pages.some((p) => p >= Number(e.from) && p <= Math.max(Number(e.from), e.to || 0))) && (!e.text || plain(h.chunk.text).includes(plain(e.text)));

/** Where the first expected hit stands among hits, from 1; 0: not among them. @param {Expected[]} expected @param {Hit[]} hits */
export const rankOf = (expected, hits) => hits.findIndex((h) => expected.some((e) => meets(e, h))) + 1;

/**
 * What a hit is expected as: its pages, or its document where that has none.
 * Of pages that do not follow each other the first count.
 * @param {Hit} h @param {boolean} paged
 * @returns {Expected}
 */
export function expectedOf(h, paged) {
  const pages = paged ? [...new Set(h.chunk.pages)].sort((a, b) => a - b) : [];
  let to = pages[0];
  while (pages.includes(to + 1)) to++;
  return { document_id: h.document.id, ...(pages.length ? { from: pages[0] } : {}), ...(to > pages[0] ? { to } : {}) };
}

/** As the API takes it. @param {Expected} e */
export const given = ({ document_id: document, from, to, text }) => ({ ...(document ? { document } : {}), ...(from ? { from } : {}), ...(to ? { to } : {}), ...(text ? { text } : {}) });

/** Expectations that differ have different keys. @param {Expected} e */
export const keyOf = (e) => JSON.stringify(given(e));

/** What is expected, in words that lead to it. @param {string} ds @param {Expected} e @param {{name: string, unit?: string}} [document] where it is known */
export function expectation(ds, e, document) {
  const place = e.from ? unitsAt(document?.unit || "page", e.from, Math.max(e.from, e.to || 0)) : document ? "" : "document";
  return [e.document_id ? el("a", { href: `${documentPath(ds, e.document_id).slice(3)}?page=${e.from || 1}` }, document ? name(document.name) : "", document && place ? `, ${place}` : place) : null,
    e.text ? [e.document_id ? ", " : "", el("q", {}, el("bdi", {}, e.text))] : null].flat();
}
