// @ts-check
/** The datasets of the tenant: all of them while they are few, otherwise those that are asked for. */
import { aborted, get } from "./api.js";
import { el } from "./dom.js";

/** @typedef {import("./types.js").Dataset} Dataset */

/** Datasets that are listed to choose from. With more than that, names are typed. */
const few = 200;

/** Names that are proposed for what is typed. */
const proposed = 20;

/** Ids in one request. */
const together = 100;

/** Datasets whose name contains a text. @param {string} q @param {number} limit @param {AbortSignal} signal @returns {Promise<Dataset[]>} */
export const named = async (q, limit, signal) => (await get(`/v1/datasets?${new URLSearchParams({ q, limit: String(limit) })}`, signal)).items;

/**
 * Reads the newest datasets.
 * @param {AbortSignal} signal
 * @returns {Promise<{sets: Dataset[], many: boolean}>} those that are known, and whether there are others
 */
export async function newest(signal) {
  const page = await get(`/v1/datasets?limit=${few}`, signal);
  return { sets: page.items, many: !!page.next_cursor };
}

/** Reads those of ids that are not among sets, and adds them. @param {Dataset[]} sets @param {string[]} ids @param {AbortSignal} signal */
export async function learn(sets, ids, signal) {
  const known = new Set(sets.map((s) => s.id)), unknown = [...new Set(ids)].filter((id) => !known.has(id));
  for (let at = 0; at < unknown.length; at += together) {
    const p = new URLSearchParams([["limit", String(together)], ...unknown.slice(at, at + together).map((id) => ["id", id])]);
    sets.push(...(await get(`/v1/datasets?${p}`, signal)).items);
  }
}

/**
 * A field for the name of a dataset, "" for all: a list or, where there are many, text that names are proposed for.
 * @param {{sets: Dataset[], many: boolean}} of
 * @param {Record<string, any>} props
 * @param {AbortSignal} signal
 * @returns {{input: HTMLSelectElement|HTMLInputElement, proposals: HTMLElement|null}} the field, and what has to be beside it
 */
export function datasetField({ sets, many }, props, signal) {
  if (!many) return { input: el("select", props, el("option", { value: "" }, "All datasets"), sets.map((s) => el("option", { value: s.name }, s.name.slice(0, 80)))), proposals: null };
  const proposals = el("datalist", { id: "dataset-names" });
  const propose = (/** @type {Dataset[]} */ found) => proposals.replaceChildren(...found.map((s) => el("option", { value: s.name })));
  propose(sets.slice(0, proposed));
  let typing = 0, version = 0;
  const input = el("input", { type: "search", list: proposals.id, placeholder: "All datasets", autocomplete: "off", spellcheck: "false", maxlength: 255, ...props, oninput: () => {
    clearTimeout(typing);
    typing = setTimeout(async () => {
      const mine = ++version;
      try {
        const found = input.value.trim() ? await named(input.value.trim(), proposed, signal) : sets.slice(0, proposed);
        if (mine === version) propose(found);
      } catch (e) {
        if (!aborted(e)) propose([]); // a name can be typed whole
      }
    }, 150);
  } });
  signal.addEventListener("abort", () => clearTimeout(typing));
  return { input, proposals };
}
