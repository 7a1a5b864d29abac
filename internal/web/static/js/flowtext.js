// @ts-check
/** Changes of a flow's text in TOML. The API says what is wrong with it, and where its nodes are. */

/** A value as TOML writes it on one line. @param {any} v @returns {string} */
export function toml(v) {
  if (Array.isArray(v)) return `[${v.map(toml).join(", ")}]`;
  if (v && typeof v === "object") return `{ ${Object.entries(v).map(([k, x]) => `${/^[\w-]+$/.test(k) ? k : JSON.stringify(k)} = ${toml(x)}`).join(", ")} }`;
  return JSON.stringify(v);
}

/** The text with a blank for each character of a string or a comment: what is left are keys, numbers and brackets. @param {string} text */
const masked = (text) => text.replace(/"""[^]*?"""|'''[^]*?'''|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|#[^\n]*/g, (s) => s.replace(/[^\n]/g, " "));

/** Where the bracket that opens at a place closes; -1 where it does not. @param {string} bare masked text @param {number} at */
function closes(bare, at) {
  for (let i = at, open = 0; i < bare.length; i++) {
    if ("[{".includes(bare[i])) open++;
    else if ("]}".includes(bare[i]) && --open === 0) return i;
  }
  return -1;
}

/** A flow's text with one node more: at the end of its list, or as a table of its own. @param {string} text @param {Record<string, any>} node */
export function withNode(text, node) {
  const bare = masked(text), open = /^[ \t]*node[ \t]*=[ \t]*\[/m.exec(bare), end = open ? closes(bare, open.index + open[0].length - 1) : -1;
  if (!open || end < 0) return `${text.trimEnd()}\n\n[[node]]\n${Object.entries(node).map(([k, v]) => `${k} = ${toml(v)}\n`).join("")}`;
  // Behind the last value, whatever comments follow it.
  const last = bare.slice(0, end).trimEnd().length, comma = /[[,]/.test(bare[last - 1]) ? "" : ",";
  return `${text.slice(0, last)}${comma}${text.slice(last, end).trimEnd()}\n  ${toml(node)},\n${text.slice(end)}`;
}

/** Where a node stands: its table, or what is between its braces; null where it is not found. @param {string} text @param {string} bare @param {string} id @returns {[number, number]|null} */
function nodeAt(text, bare, id) {
  for (const m of text.matchAll(/\bid[ \t]*=[ \t]*(["'])([^"'\n]*)\1/g)) {
    if (m[2] !== id || bare[m.index] !== "i") continue;
    let at = m.index - 1;
    for (let open = 0; at >= 0; at--) {
      if ("]}".includes(bare[at])) open++;
      else if ("[{".includes(bare[at]) && open-- === 0) break;
    }
    const from = at >= 0 ? at : bare.lastIndexOf("[[node]]", m.index), next = bare.indexOf("\n[[", m.index), to = at >= 0 ? closes(bare, at) : next < 0 ? bare.length : next;
    if (from >= 0 && to > from && /\bkind[ \t]*=/.test(bare.slice(from, to))) return [from, to];
  }
  return null;
}

/**
 * The text where a node reads another one, in place of what that one reads.
 * @param {string} text @param {string} id of the node that reads @param {string} added @param {string[]} instead
 */
export function reading(text, id, added, instead) {
  const bare = masked(text), at = nodeAt(text, bare, id), found = at && /\bfrom[ \t]*=[ \t]*\[/.exec(bare.slice(...at));
  if (!at || !found) throw new Error(`${id} has no list of inputs in the text. Write ${added} into its from.`);
  const open = at[0] + found.index + found[0].length - 1, end = closes(bare, open);
  const inputs = [...text.slice(open, end).matchAll(/["']([^"'\n]*)["']/g)].map((m) => m[1]).filter((x) => !instead.includes(x));
  return `${text.slice(0, open)}${toml([...inputs, added])}${text.slice(end + 1)}`;
}
