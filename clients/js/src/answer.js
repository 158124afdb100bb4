/**
 * Answers: a response of which every byte has arrived. Half an answer is a network error.
 */

const WITHOUT_BODY = new Set([101, 103, 204, 205, 304]);

/**
 * @typedef {object} Answer
 * @property {number} status
 * @property {Headers} headers
 * @property {boolean} replayed whether the service says that it gave a stored outcome again
 * @property {{ type?: unknown } | undefined} problem the members of `application/problem+json`
 * @property {() => Response} response another one for each who asks
 */

/**
 * @param {Response} received
 * @returns {Promise<Answer>} rejects if the body is cut
 */
export async function whole(received) {
  const bytes = await received.arrayBuffer();
  const { status, headers } = received;
  return {
    status,
    headers,
    replayed: ["Idempotency-Replayed", "Idempotent-Replayed"].some((name) => headers.get(name)?.trim() === "true"),
    problem: problemOf(headers, bytes),
    response: () => rebuilt(received, bytes),
  };
}

/**
 * @param {Response} received
 * @param {ArrayBuffer} bytes
 * @returns {Response}
 */
function rebuilt(received, bytes) {
  const { status, statusText, url, redirected, type } = received;
  if (status === 0) return received; // a redirect that was not to be followed: it has no parts to build from
  const body = WITHOUT_BODY.has(status) ? null : bytes.slice(0);
  const response = new Response(body, { status, statusText, headers: new Headers(received.headers) });
  return named(response, { url, redirected, type });
}

/**
 * A response with the members that its maker could not set; its clones have them too.
 *
 * @param {Response} response
 * @param {object} members
 * @returns {Response}
 */
function named(response, members) {
  const clone = () => named(Response.prototype.clone.call(response), members);
  const same = Object.entries({ ...members, clone }).map(([name, value]) => [name, { value, configurable: true }]);
  return Object.defineProperties(response, Object.fromEntries(same));
}

/**
 * @param {Headers} headers
 * @param {ArrayBuffer} bytes
 */
function problemOf(headers, bytes) {
  if (!/^application\/problem\+json\b/i.test(headers.get("Content-Type") ?? "")) return undefined;
  try {
    const problem = JSON.parse(new TextDecoder().decode(bytes));
    return typeof problem === "object" && problem !== null ? problem : undefined;
  } catch {
    return undefined;
  }
}
