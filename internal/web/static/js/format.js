// @ts-check
import { el } from "./dom.js";

const count = new Intl.NumberFormat();
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const date = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** @param {number} n */
export const number = (n) => count.format(n);

/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many) => `${number(n)} ${n === 1 ? one : many || one + "s"}`;

/** @param {number} n @param {string} currency ISO 4217, or whatever it was called */
export function money(n, currency) {
  try {
    return new Intl.NumberFormat(undefined, { style: "currency", currency, maximumFractionDigits: n && n < 1 ? 4 : 2 }).format(n);
  } catch {
    return `${n.toFixed(n && n < 1 ? 4 : 2)} ${currency}`.trim();
  }
}

/** @param {number} n bytes */
export function bytes(n) {
  if (n < 1000) return `${n} B`;
  let u = -1;
  do { n /= 1000; u++; } while (n >= 999.5 && u < 3);
  return `${n < 10 ? n.toFixed(1) : Math.round(n)} ${["kB", "MB", "GB", "TB"][u]}`;
}

/** @param {number} ms */
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 90 * 60) return `${Math.round(s / 60)} min`;
  if (s < 48 * 3600) return `${(s / 3600).toFixed(1)} h`;
  return `${Math.round(s / 86400)} d`;
}

/** A wait, in whole seconds while they are few. @param {number} ms */
export const seconds = (ms) => (ms < 90_000 ? `${Math.ceil(ms / 1000)} s` : duration(ms));

/** A range is honest where a number would not be. @param {number|null|undefined} p50 @param {number|null|undefined} p90 seconds */
export function eta(p50, p90) {
  if (p50 === null || p50 === undefined) return "estimating the time left";
  const a = duration(Math.max(p50, 1) * 1000), b = duration(Math.max(p90 ?? p50, 1) * 1000);
  return a === b ? `about ${a} left` : `${a} to ${b} left`;
}

/** @param {number} x 0–1 */
export const percent = (x) => `${Math.floor(x * 100)} %`;

/** A time in the reader's zone, with UTC on hover. @param {string|undefined} t @param {boolean} [short] */
export function time(t, short) {
  if (!t || t.startsWith("0001")) return "–";
  const d = new Date(t);
  return el("time", { datetime: t, title: d.toISOString().replace("T", " ").replace(/\.\d+Z/, "") + " UTC" }, short ? clock.format(d) : moment(d));
}

/** A time where no element can stand, as time has it. @param {Date} d */
export const moment = (d) => (d.getFullYear() === new Date().getFullYear() ? day : date).format(d);

/** Milliseconds between two times; now stands for the second when it is missing. @param {string|undefined} a @param {string|undefined} b */
export function between(a, b) {
  if (!a || a.startsWith("0001")) return 0;
  return Math.max(0, (b && !b.startsWith("0001") ? Date.parse(b) : Date.now()) - Date.parse(a));
}

/** Formats by media type, as people call them. @type {Record<string, string>} */
export const formats = {
  "application/pdf": "PDF",
  "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "Word",
  "application/vnd.oasis.opendocument.text": "OpenDocument text",
  "application/vnd.oasis.opendocument.presentation": "OpenDocument slides",
  "application/vnd.oasis.opendocument.spreadsheet": "OpenDocument sheet",
  "application/vnd.openxmlformats-officedocument.presentationml.presentation": "PowerPoint",
  "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "Excel",
  "text/csv": "CSV",
  "text/tab-separated-values": "TSV",
  "text/html": "HTML",
  "text/markdown": "Markdown",
  "application/x-ipynb+json": "Notebook",
  "application/json": "JSON",
  "application/x-ndjson": "JSON Lines",
  "application/vnd.ms-outlook": "Outlook mail",
  "application/msword": "Word before 2007",
  "application/rtf": "RTF",
  "application/vnd.ms-powerpoint": "PowerPoint before 2007",
  "application/vnd.ms-excel": "Excel before 2007",
  "image/png": "PNG",
  "image/jpeg": "JPEG",
  "image/tiff": "TIFF",
  "image/webp": "WebP",
  "image/gif": "GIF",
  "image/bmp": "BMP",
  "audio/mpeg": "MP3",
  "audio/mp3": "MP3",
  "audio/wav": "WAV",
  "audio/x-wav": "WAV",
  "audio/mp4": "M4A",
  "audio/x-m4a": "M4A",
  "audio/aac": "AAC",
  "audio/amr": "AMR",
  "audio/flac": "FLAC",
  "audio/x-flac": "FLAC",
  "audio/ogg": "Ogg",
  "application/ogg": "Ogg",
  "audio/aiff": "AIFF",
  "audio/webm": "WebM",
  "video/webm": "WebM",
  "video/mp4": "MP4",
  "application/epub+zip": "EPUB",
  "application/mbox": "Mailbox",
  "message/rfc822": "Mail",
  "application/zip": "ZIP",
  "application/x-tar": "TAR",
  "application/gzip": "gzip",
  "application/x-bzip2": "bzip2",
  "application/zstd": "Zstandard",
  "application/x-subrip": "Subtitles",
  "text/vtt": "Subtitles",
  "text/calendar": "Calendar",
  "text/vcard": "Contacts",
  "application/xml": "XML",
  "image/svg+xml": "SVG",
  "application/yaml": "YAML",
  "text/x-tex": "LaTeX",
  "text/plain": "Text",
};

/** Whether the server draws pages of it. @param {string} media */
export const drawable = (media) => /^(application\/pdf|image\/(png|jpeg|tiff|webp))$/.test(media);

/** @param {string} media */
export const format = (media) => formats[media] || media.replace(/^.*\//, "").replace(/^(x-|vnd\.)/, "");

/** @param {string|undefined} unit @param {number} n */
export const units = (unit, n) => (n ? plural(n, unit || "unit") : "–");
