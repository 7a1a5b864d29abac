// @ts-check
/** What people call the settings, also where the server's sentences name them as its API does. */

/** What people call the settings. @type {Record<string, string>} */
const settings = { chunk_method: "Chunk method", chunk_token_num: "Max tokens per chunk", delimiter: "Delimiter", overlapped_percent: "Overlap (%)", children_delimiter: "Child delimiter", html4excel: "Tables as HTML", toc_extraction: "Table of contents",
  image_context_size: "Context around images (tokens)", table_context_size: "Context around tables (tokens)", ocr_pictures: "Read text in images", auto_keywords: "Keywords per chunk", auto_questions: "Questions per chunk", auto_context: "Position in the document", tag_kb_ids: "Tag sets", topn_tags: "Tags per chunk", pii: "Personal data", password: "Password", flow: "Flow", task_page_size: "Pages per task", pages: "Pages", table_rows: "Rows per task", encoding: "Encoding", media_type: "Read as", parser: "Parser", raptor: "Summaries", graphrag: "Graph by a model" };

/** Settings as the API calls them. */
export const settingNames = Object.keys(settings);

/** @param {string} name */
export const setting = (name) => settings[name] || name;

/**
 * A sentence of the server with the settings called as they are on the page.
 * @param {string} text
 */
export const spoken = (text) => text
  .replace(/^The (?:document|file) (?:needs a password|is protected by a password)[^;]*;.*$/, "The file is locked with a password.")
  .replace(/^The (?:given password|password in parser_config\.password) does not open.*$/, "The password does not open the file.")
  .replace(/\bparser_config(?:: |\.)([a-z0-9_]+)(:?)/g, (all, key, colon) => (settings[key] ? (colon ? `${settings[key]}:` : `“${settings[key]}”`) : all))
  .replace(/^parser_config: /, "")
  .replace(/, or null for what holds without it$/, ", or leave the field empty");
