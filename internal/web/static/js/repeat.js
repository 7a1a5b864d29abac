// @ts-check
/** Views that no stream tells of changes: they look again. */

/** How often it is seen whether somebody looks at the page once more, in milliseconds. */
const awake = 1000;

/**
 * Looks again and again until the view is left. What nobody looks at is not asked for.
 * @param {AbortSignal} signal @param {() => Promise<number>} look answers in how many milliseconds to look again
 * @returns {() => Promise<void>} looks now
 */
export function repeat(signal, look) {
  let timer = 0;
  const later = (/** @type {number} */ wait) => {
    clearTimeout(timer); // of two looks at once the last goes on
    if (!signal.aborted) timer = setTimeout(next, wait);
  };
  const now = async () => {
    clearTimeout(timer);
    later(await look());
  };
  const next = () => (document.hidden ? later(awake) : void now());
  signal.addEventListener("abort", () => clearTimeout(timer));
  return now;
}
