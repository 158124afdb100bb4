/**
 * Retention: how long a service remembers a key. As it was told, or as the policy document of the service says.
 *
 * What always holds: the document is asked for only when a kept key is about to be sent again. Without it a day is
 * assumed, which is what semel keeps.
 */

import { alarm } from "./waiting.js";

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;
const WELL_KNOWN = "/.well-known/idempotency-policy";
const PATIENCE = 5_000;
const FRESH = 5 * MINUTE;
const MARGIN = 5 * MINUTE;

/** @typedef {{ path: string, methods: string[], retentionSeconds: number }} Route */

export class Retention {
  /** @type {Map<string, { at: number, routes: Promise<Route[]> }>} */
  #known = new Map();
  /** @type {Map<string, Route[]>} the last that could be had */
  #last = new Map();
  #seconds;
  #fetch;
  #now;

  /**
   * @param {number | undefined} seconds
   * @param {typeof globalThis.fetch} fetch
   * @param {() => number} now
   */
  constructor(seconds, fetch, now) {
    this.#seconds = seconds;
    this.#fetch = fetch;
    this.#now = now;
  }

  /**
   * Whether a key may be sent, again or for the first time.
   *
   * @param {{ since: number }} entry
   * @param {string} method
   * @param {string} url
   * @returns {Promise<boolean>}
   */
  async covers({ since }, method, url) {
    const age = this.#now() - since;
    if (age < -MINUTE) return false; // made in the future: the clock was set back, and the true age is not known
    if (this.#seconds === undefined && age < MINUTE) return true;
    const kept = this.#seconds === undefined ? await this.#described(method, new URL(url)) : this.#seconds * 1000;
    return age < kept - Math.min(MARGIN, kept / 10);
  }

  /**
   * @param {string} method
   * @param {URL} url
   */
  async #described(method, url) {
    const routes = await this.#routes(url.origin);
    const route = routes.find(({ path, methods }) => methods.includes(method) && fits(path, url.pathname));
    return route ? route.retentionSeconds * 1000 : DAY;
  }

  /** @param {string} origin */
  #routes(origin) {
    const known = this.#known.get(origin);
    if (known && Math.abs(this.#now() - known.at) < FRESH) return known.routes;
    const asked = { at: this.#now(), routes: this.#read(origin + WELL_KNOWN) };
    this.#known.set(origin, asked);
    asked.routes = asked.routes.then(
      (routes) => (this.#last.set(origin, routes), routes),
      () => {
        if (this.#known.get(origin) === asked) this.#known.delete(origin); // the next who asks may have more luck
        return this.#last.get(origin) ?? [];
      },
    );
    return asked.routes;
  }

  /**
   * @param {string} url
   * @returns {Promise<Route[]>}
   */
  async #read(url) {
    const fetch = this.#fetch;
    const { signal, cancel } = alarm(PATIENCE);
    try {
      const response = await fetch(url, { headers: { Accept: "application/json" }, signal });
      if (response.status >= 500) throw new Error(`status ${response.status}`);
      const document = response.ok ? await response.json() : {};
      return document.version === 1 && Array.isArray(document.routes) ? document.routes.filter(isRoute) : [];
    } finally {
      cancel();
    }
  }
}

/** @param {any} given */
function isRoute(given) {
  return typeof given?.path === "string" && Array.isArray(given.methods) && given.retentionSeconds >= 0;
}

/**
 * `*` stands for one segment and a last `**` for any rest; slashes too many, or one at the end, do not count.
 *
 * @param {string} pattern
 * @param {string} path
 * @returns {boolean}
 */
export function fits(pattern, path) {
  const pieces = pattern.replace(/\/+$/, "").split("/").map((piece) => {
    if (piece === "**") return "[^]*";
    return piece === "*" ? "[^/]+" : piece.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  });
  return new RegExp(`^${pieces.join("/") || "/"}$`).test(plain(path));
}

/** @param {string} path */
function plain(path) {
  const short = path.replace(/\/{2,}/g, "/").replace(/\/$/, "") || "/";
  try {
    return decodeURIComponent(short);
  } catch {
    return short;
  }
}
