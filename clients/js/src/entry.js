/**
 * One entry: what is written down of an unfinished intent, and what counts as one when it is read.
 *
 * What always holds: whatever else stands in storage, broken or of another program, counts as nothing.
 */

/** What is known of the tries sent so far. One digit each: to change it takes no room, even where storage is full. */
export const NOTHING_RAN = 0;
export const SENDING = 1; // one page sends, and has not said more; if it is gone, nobody knows
export const MAY_HAVE_RUN = 2;

/**
 * @typedef {object} Entry
 * @property {string} key
 * @property {boolean} given whether the caller chose the key, and wrote the header
 * @property {number} since when the key was made, in milliseconds
 * @property {string} fingerprint
 * @property {string} method
 * @property {string} url without its query, which may hold secrets
 * @property {number} [ran] one of the above
 */

/** What a header can carry. */
const SENDABLE = /^[\t\x20-\x7e\x80-\xff]+$/;

/**
 * @param {string | null | undefined} written
 * @returns {Entry | undefined} nothing, if it is not one of ours
 */
export function parsed(written) {
  if (typeof written !== "string") return undefined;
  try {
    const { key, given, since, fingerprint, method, url, ran } = JSON.parse(written);
    const whole = [key, fingerprint, method, url].every((text) => typeof text === "string") && Number.isFinite(since);
    return whole && SENDABLE.test(key) ? { key, given: given === true, since, fingerprint, method, url, ran } : undefined;
  } catch {
    return undefined;
  }
}

/**
 * @param {string | null | undefined} written
 * @returns {string | undefined} the key that was let go, where a mark says so
 */
export function goneOf(written) {
  try {
    const { gone } = JSON.parse(written ?? "{}");
    return typeof gone === "string" ? gone : undefined;
  } catch {
    return undefined;
  }
}
