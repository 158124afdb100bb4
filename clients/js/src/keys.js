/**
 * Keys: how they are made, and how they are written into a header.
 */

/**
 * A random UUID. `randomUUID` exists in secure contexts only; `getRandomValues` exists everywhere but in Node 18.
 *
 * @param {Pick<Crypto, "getRandomValues"> & { randomUUID?: () => string }} [source]
 * @returns {string}
 */
export function newKey(source = globalThis.crypto) {
  if (typeof source?.getRandomValues !== "function") {
    throw new TypeError(
      "a key must be random, and there is no crypto.getRandomValues here; nothing was sent. " +
        "Pass newKey, or run Node 20 or newer (18: with --experimental-global-webcrypto)",
    );
  }
  if (typeof source.randomUUID === "function") return source.randomUUID();
  const bytes = source.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40; // version 4
  bytes[8] = (bytes[8] & 0x3f) | 0x80; // the variant of RFC 9562
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/**
 * A key as a structured-field string, which is what the draft for `Idempotency-Key` asks for.
 *
 * @param {string} key
 * @returns {string}
 */
export function quoted(key) {
  return `"${key.replace(/["\\]/g, "\\$&")}"`;
}
