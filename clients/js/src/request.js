/**
 * What is asked: a request taken apart once, so that every try sends the very same bytes.
 *
 * What always holds: a body is read before anything is kept or sent. The caller may change it afterwards, and a retry
 * still carries what the fingerprint was made of.
 */

import { fingerprint } from "./fingerprint.js";

/**
 * @typedef {object} Prepared
 * @property {string} method
 * @property {string} url absolute, without its fragment
 * @property {Headers} headers
 * @property {string} fingerprint
 * @property {AbortSignal | undefined} signal the caller's
 * @property {(fetch: typeof globalThis.fetch, headers: Headers, signal: AbortSignal) => Promise<Response>} send
 */

/**
 * @param {RequestInfo | URL} input
 * @param {RequestInit | undefined} init
 * @returns {string} the method, in capitals
 */
export function methodOf(input, init) {
  return (init?.method ?? (input instanceof Request ? input.method : "GET")).toUpperCase();
}

/**
 * @param {RequestInfo | URL} input
 * @param {RequestInit | undefined} init
 * @param {Pick<SubtleCrypto, "digest"> | undefined} [subtle]
 * @returns {Promise<Prepared>}
 * @throws {TypeError} it cannot be sent, or not again; nothing was sent
 */
export async function prepare(input, init, subtle) {
  refuseStreams(init?.body);
  // What fetch would refuse is refused here, as a mistake of the caller: from fetch a TypeError means the network.
  const { signal: _, ...rest } = init ?? {};
  const request = new Request(input instanceof Request ? input.clone() : input, rest);
  if (request.mode === "no-cors") {
    throw new TypeError('With mode "no-cors" no key can be sent and no answer be read; nothing was sent. Use CORS.');
  }
  const given = init?.body instanceof FormData ? [...init.body] : null;
  const mediaType = (request.headers.get("Content-Type") ?? "").split(";")[0].trim().toLowerCase();
  const form = given ?? (mediaType === "multipart/form-data" ? await entriesOf(request.clone()) : null);
  const body = new Uint8Array(await request.arrayBuffer());
  const url = request.url.split("#")[0];
  const method = methodOf(input, init);
  return {
    method,
    url,
    headers: request.headers,
    fingerprint: await fingerprint({ method, url, mediaType, body, form }, subtle),
    signal: init?.signal ?? (input instanceof Request ? input.signal : undefined),
    send(fetch, headers, signal) {
      const sent = { ...rest, method: request.method, headers, signal, body: body.length ? body : undefined };
      // By the address as it was: the page may go elsewhere, or the caller change his URL, before the last try.
      return input instanceof Request ? fetch(new Request(url, asked(request, sent))) : fetch(url, sent);
    },
  };
}

/** @param {unknown} body */
function refuseStreams(body) {
  const stream = typeof ReadableStream === "function" && body instanceof ReadableStream;
  if (stream || (typeof body === "object" && body !== null && Symbol.asyncIterator in body)) {
    throw new TypeError(
      "A stream cannot be sent again, so it cannot be sent once; nothing was sent. Read it into a Blob or ArrayBuffer.",
    );
  }
}

/** @param {Request} request */
async function entriesOf(request) {
  try {
    return [...(await request.formData())];
  } catch {
    return null; // written by hand, and not as a form: then it is compared byte for byte
  }
}

/**
 * What a request object says beside its body, for a new one with the bytes.
 *
 * @param {Request} request
 * @param {RequestInit} sent
 * @returns {RequestInit}
 */
function asked(request, sent) {
  const { cache, credentials, integrity, keepalive, mode, redirect, referrer, referrerPolicy } = request;
  return { cache, credentials, integrity, keepalive, mode, redirect, referrer, referrerPolicy, ...sent };
}
