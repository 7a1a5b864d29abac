// @ts-check
/** Where files go in: a place to drop them, how they are to be read, the command that does the same, and the way to a first answer. */
import { datasetPath, get, send } from "./api.js";
import { authHeader, commandBox, quoted } from "./clipboard.js";
import { button, el, icon, name, trouble } from "./dom.js";
import { drawable, plural } from "./format.js";
import { bar } from "./parts.js";
import { chunkText, marked } from "./text.js";
import { metadataFields } from "./metadatafields.js";
import { filled, moreSettings } from "./settingfields.js";
import { chooser, preset, upload } from "./upload.js";

/** @typedef {import("./types.js").Doc} Doc */

/** How files may be read: chunk method, what it is called, what it is good for. @type {[string, string, string][]} */
const presets = [
  ["", "Automatic", "The dataset default: by headings and paragraphs."],
  ["paper", "Research papers", "Keeps the abstract whole and follows the sections of a paper."],
  ["book", "Books and long reports", "Follows parts and chapters."],
  ["laws", "Laws and contracts", "Keeps articles and clauses whole."],
  ["manual", "Manuals", "Follows numbered sections and keeps their steps together."],
  ["presentation", "Slides", "One chunk per slide."],
  ["table", "Tables", "One chunk per row, with the column names."],
  ["qa", "Questions and answers", "One chunk per question and answer."],
  ["one", "Whole document", "One chunk per document, for short texts."],
];

/** The command that sends a file as the page would. @param {string} ds @param {Record<string, any>} config @param {Record<string, string>} metadata @param {string} lane */
const command = (ds, config, metadata, lane) => ["curl", ...authHeader(), ...Object.entries({ parser_config: config, metadata }).flatMap(([k, v]) => (Object.keys(v).length ? ["-F", quoted(`${k}=${JSON.stringify(v)}`)] : [])), ...(lane ? ["-F", `lane=${lane}`] : []), "-F", "file=@report.pdf", quoted(`${location.origin}${datasetPath(ds)}/documents`)].join(" ");

/** @param {string} ds */
export function dropzone(ds) {
  const about = el("p", { class: "muted" }), curl = el("div");
  const choice = el("select", { "aria-label": "How to parse the files" }, presets.map(([k, label]) => el("option", { value: k }, label)));
  // Urgent work overtakes what is queued, backfill lets all else go first.
  const lane = el("select", { "aria-label": "Lane" }, [["1", "Interactive: ahead of the queue"], ["", "Normal"], ["3", "Backfill: after everything else"]].map(([k, label]) => el("option", { value: k }, label)));
  lane.value = "";
  const fault = el("div");
  const others = moreSettings({ unset: "dataset default", prefix: "drop-", without: ["chunk_method"], level: "h2" });
  const metadata = metadataFields(() => say());
  const strict = () => {
    try {
      return metadata.value();
    } catch (e) {
      fault.replaceChildren(trouble(e));
      throw e;
    }
  };
  const say = () => {
    about.textContent = presets.find(([k]) => k === choice.value)?.[2] || "";
    Object.assign(preset, { dataset: ds, lane: lane.value, metadata: strict, config: () => ({ ...(choice.value ? { chunk_method: choice.value } : {}), ...filled(others) }) });
    try {
      curl.replaceChildren(commandBox(command(ds, preset.config(), metadata.value(true), lane.value)));
      fault.replaceChildren();
    } catch (e) {
      fault.replaceChildren(trouble(e));
    }
  };
  for (const i of [choice, lane]) i.addEventListener("change", say);
  others.addEventListener("input", say);
  say();
  const where = () => ds;
  return el("div", { class: "dropzone" },
    el("div", { class: "drop-here" }, icon("up"), el("p", {}, el("strong", {}, "Drop files or a folder here"), el("br"), "or anywhere on this page"), el("div", { class: "tools" }, chooser("Choose files", where), chooser("Choose a folder", where, true))),
    el("div", { class: "drop-how" }, el("label", { class: "field" }, "Parse as", choice), about, el("label", { class: "field" }, "Lane", lane), others, metadata.root, fault, el("details", { open: !matchMedia("(max-width: 860px)").matches }, el("summary", {}, "Do the same from a terminal"), curl)));
}

const sample = { name: "The keeper's handbook (sample).md", text: `# The keeper's handbook

How sheaves are taken in, counted and found again.

## Taking in

Each cart is weighed twice: once at the gate and once at the barn. The lower weight counts.

## Wet sheaves

A sheaf that is wet at the core looks sound from outside and spoils those around it. It is set aside, marked red and turned every day until it is dry.

## Finding again

| Mark | Meaning |
| --- | --- |
| red | wet, turn daily |
| blue | counted |

Ask for the barn, then for the row.
` };

/**
 * What leads from an empty dataset to a first answer.
 * @param {{ds: string, signal: AbortSignal, close: () => void}} o
 */
export function firstRun({ ds, signal, close }) {
  const steps = ["Add documents", "Watch them being processed", "Ask"];
  const marks = el("ol", { class: "steps" }, steps.map((s, i) => el("li", {}, el("span", { class: "step-number", "aria-hidden": "true" }, String(i + 1)), s)));
  const body = el("div", { class: "first-body" });
  const root = el("section", { class: "empty first-run", "aria-labelledby": "first-title" }, el("p", { class: "empty-title", id: "first-title" }, "No documents yet"), marks, body);
  const heading = /** @type {HTMLElement} */ (root.firstElementChild);
  let step = -1;
  const at = (/** @type {number} */ n, /** @type {string} */ text) => {
    step = n;
    heading.textContent = text;
    [...marks.children].forEach((li, i) => {
      li.toggleAttribute("aria-current", i === n);
      if (i === n) li.setAttribute("aria-current", "step");
      li.classList.toggle("past", i < n);
    });
  };
  const begin = () => {
    at(0, "No documents yet");
    body.replaceChildren(dropzone(ds), el("p", {}, "No file at hand? ", button("Try a sample document", () => upload([new File([sample.text], sample.name, { type: "text/markdown" })], ds), { class: "link" })),
      el("p", { class: "muted" }, "Supported: PDF, Word, Excel, PowerPoint, OpenDocument, HTML, Markdown, LaTeX, CSV, JSON, XML, EPUB, email, archives and plain text."));
  };
  begin();

  /** @param {Doc} d a document that can be searched */
  async function ask(d) {
    at(2, "Ask a first question");
    const chunks = (await get(`${datasetPath(ds)}/documents/${d.id}/chunks?limit=20&fields=text,heading_path`, signal).catch(() => ({ items: [] }))).items;
    const question = example(d, chunks);
    const field = el("input", { type: "search", value: question, required: true, autocomplete: "off", "aria-label": "Question" });
    const answer = el("div", { class: "first-answer", role: "status" });
    const form = el("form", { class: "search-line", role: "search", "aria-label": "First question", onsubmit: async (/** @type {Event} */ e) => {
      e.preventDefault();
      try {
        /** @type {import("./types.js").SearchAnswer} */
        const r = await send(`${datasetPath(ds)}/search`, { query: field.value, limit: 1 });
        const hit = r.hits[0];
        if (!hit) return answer.replaceChildren(el("p", {}, "No results. Try words that appear in the document."));
        const page = drawable(hit.document.media_type) ? hit.chunk.pages?.[0] : 0, link = `/datasets/${encodeURIComponent(ds)}/documents/${hit.document.id}?${new URLSearchParams({ ...(page ? { page: String(page) } : {}), chunk: hit.chunk.id })}`;
        const text = hit.highlight || hit.chunk.text;
        answer.replaceChildren(el("blockquote", {}, ...chunkText(text.length > 900 ? text.slice(0, 900) + "…" : text, hit.chunk.kind, marked), el("footer", {}, "— ", el("a", { href: link }, name(hit.document.name), page ? `, page ${page}` : ""), hit.chunk.heading_path?.length ? el("span", { class: "muted" }, `, ${hit.chunk.heading_path.join(" › ")}`) : "")),
          el("p", {}, "That's it. Every result shows exactly where it comes from. ", el("a", { href: `/search?${new URLSearchParams({ q: field.value, dataset: ds })}` }, "Search with filters"), " or ", button("close this", close, { class: "link" }), "."));
      } catch (err) {
        answer.replaceChildren(trouble(err));
      }
    } }, field, el("button", { class: "primary" }, "Ask"));
    body.replaceChildren(el("p", {}, name(d.name), " is searchable. Ask it something:"), form, answer);
  }

  /** @param {Doc[]} docs the newest first */
  function update(docs) {
    if (step === 2) return;
    const live = docs.find((d) => d.live_generation);
    if (live) return void ask(live);
    if (!docs.length) return step > 0 ? begin() : undefined;
    if (step !== 1) at(1, "Reading your documents");
    const failed = docs.filter((d) => d.state === "failed").length;
    const d = docs.find((x) => x.state === "running") || docs[0];
    body.replaceChildren(el("p", {}, failed === docs.length ? "None of them could be read. The box above explains why." : el("span", {}, `${plural(docs.length, "document")} came in. `, name(d.name), ` is ${d.units ? "being read" : "counted"} first.`)), failed === docs.length ? "" : bar(d.progress, "Progress of the first document"));
  }
  return { root, update };
}

/** A question that the document answers, as a person would ask it. @param {Doc} d @param {{text: string, heading_path: string[]}[]} chunks */
function example(d, chunks) {
  if (d.name === sample.name) return "What happens to a sheaf that is wet?";
  const heading = chunks.map((c) => c.heading_path?.at(-1) || "").find((h) => h.length > 6 && h.length < 80);
  if (heading) return heading.replace(/^[\d.\s]+/, "") || heading;
  const words = (chunks[0]?.text || d.name).replace(/[^\p{L}\p{N}\s'-]/gu, " ").split(/\s+/).filter(Boolean);
  return words.slice(0, 8).join(" ");
}
