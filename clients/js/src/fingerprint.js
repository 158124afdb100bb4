/**
 * Fingerprints: a digest of what is asked. Nothing of a body can be read from it, and it is all that is kept of one.
 *
 * What always holds: every part goes in with its length, so that no two requests read the same.
 */

const text = new TextEncoder();

/**
 * @typedef {string | Uint8Array} Part
 */

/**
 * @param {{ method: string, url: string, mediaType: string, body: Uint8Array, form: [string, FormDataEntryValue][] | null }} request
 * @param {Pick<SubtleCrypto, "digest"> | undefined} [subtle] absent in insecure contexts
 * @returns {Promise<string>}
 */
export async function fingerprint({ method, url, mediaType, body, form }, subtle = globalThis.crypto?.subtle) {
  /** @type {Part[]} */
  const parts = [method, url, mediaType, form ? "form" : "bytes"];
  // A form by its entries: the boundary between them is another one each time.
  if (form) for (const entry of form) parts.push(...(await formParts(entry)));
  else parts.push(body);
  const bytes = joined(parts);
  return subtle ? `sha256-${await sha256(bytes, subtle)}` : `weak-${weak(bytes, 1)}${weak(bytes, 2)}`;
}

/**
 * @param {[string, FormDataEntryValue]} entry
 * @returns {Promise<Part[]>}
 */
async function formParts([name, value]) {
  if (typeof value === "string") return ["text", name, value];
  return ["file", name, value.name, value.type, new Uint8Array(await value.arrayBuffer())];
}

/**
 * @param {Part[]} parts
 * @returns {Uint8Array}
 */
function joined(parts) {
  const pieces = parts.flatMap((part) => {
    const bytes = typeof part === "string" ? text.encode(part) : part;
    return [text.encode(`${bytes.length}:`), bytes];
  });
  const whole = new Uint8Array(pieces.reduce((length, piece) => length + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

/**
 * @param {Uint8Array} bytes
 * @param {Pick<SubtleCrypto, "digest">} subtle
 */
async function sha256(bytes, subtle) {
  const digest = new Uint8Array(await subtle.digest("SHA-256", /** @type {BufferSource} */ (bytes)));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * 64 bits that tell honest requests apart, and nothing more: two 32-bit multiply-and-xor hashes, mixed at the end.
 * For pages without `crypto.subtle`, which are those not served over HTTPS.
 *
 * @param {Uint8Array} bytes
 * @param {number} seed
 */
function weak(bytes, seed) {
  let high = 0xdeadbeef ^ seed;
  let low = 0x41c6ce57 ^ seed;
  for (const byte of bytes) {
    high = Math.imul(high ^ byte, 2654435761);
    low = Math.imul(low ^ byte, 1597334677);
  }
  high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909);
  low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909);
  return [high, low].map((half) => (half >>> 0).toString(16).padStart(8, "0")).join("");
}
