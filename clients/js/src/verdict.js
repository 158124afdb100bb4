/**
 * Verdicts: what an answer says of the work behind it. The table of the reference page, as code.
 *
 * "settled": this is the outcome. "retry": ask again with the same key. "kept": asking again now would not help, and
 * the key is still needed. "start-over": the service says that the key is too old.
 */

/** @typedef {"settled" | "retry" | "kept" | "start-over"} Verdict */

/** What the caller may say. */
export const VERDICTS = new Set(["settled", "retry", "kept"]);

/** Said before anything was done, of this one try. */
export const NOTHING_RAN = new Set([401, 403, 407, 425, 429]);

const NOT_ALLOWED = new Set([401, 403, 407]);
const LATER = new Set([408, 425, 429]);
const NEVER = new Set([501, 505]);

/** What problems of semel mean, by the end of their type. */
const PROBLEMS = /** @type {const} */ ([
  ["key-expired", "start-over"],
  ["failed-before", "settled"],
  ["in-progress", "retry"],
]);

/**
 * @param {import("./answer.js").Answer} answer
 * @returns {Verdict}
 */
export function verdictOn({ status, headers, replayed, problem }) {
  if (replayed || status < 400) return "settled"; // a stored outcome is one, whatever its status
  const type = typeOf(problem);
  for (const [code, verdict] of PROBLEMS) if (isType(type, code)) return verdict;
  if (status === 409) {
    const own = type !== "about:blank" && type !== "";
    return own && !headers.has("Retry-After") ? "kept" : "retry";
  }
  if (NOT_ALLOWED.has(status)) return "kept"; // nothing ran: the user signs in, and asks again
  if (LATER.has(status)) return "retry";
  if (status < 500) return "settled";
  return NEVER.has(status) ? "kept" : "retry"; // of other 5xx nobody knows, and the key arbitrates
}

/**
 * Whether an answer is one that somebody may give who knows nothing of the key.
 *
 * @param {import("./answer.js").Answer} answer
 */
export function isRefusal({ status, replayed, problem }) {
  return status >= 400 && !replayed && !isType(typeOf(problem), "failed-before");
}

/** @param {import("./answer.js").Answer["problem"]} problem */
const typeOf = (problem) => (typeof problem?.type === "string" ? problem.type : "about:blank");

/**
 * @param {string} type
 * @param {string} code
 */
const isType = (type, code) => type === code || type.endsWith(`:${code}`);
