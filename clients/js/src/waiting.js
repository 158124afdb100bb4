/**
 * Waiting: how long until the next try, and whether there may be one.
 *
 * What always holds: never sooner than the service says, and never more retries than the budget has, over all calls.
 */

const FIRST = 300;
const LONGEST = 10_000;
const SPREAD = 1_000;
const TIMER = 2 ** 31 - 1; // more than this rings at once

/**
 * @param {number} attempt the one that failed, from 1
 * @param {number | undefined} asked what Retry-After says, in milliseconds
 * @param {() => number} random
 * @returns {number} milliseconds
 */
export function pause(attempt, asked, random) {
  const backoff = Math.min(LONGEST, FIRST * 2 ** (attempt - 1));
  // Full jitter, and a little of it on top of Retry-After: otherwise all pages that were sent away return together.
  return Math.round(asked === undefined ? random() * backoff : asked + random() * Math.min(backoff, SPREAD));
}

/**
 * @param {Headers} headers
 * @param {number} now
 * @returns {number | undefined} milliseconds
 */
export function retryAfter(headers, now) {
  const value = headers.get("Retry-After")?.trim();
  if (!value) return undefined;
  if (/^\d+$/.test(value)) return Number(value) * 1000;
  const until = Date.parse(value);
  if (Number.isNaN(until)) return undefined;
  const said = Date.parse(headers.get("Date") ?? ""); // the service's clock, where it can be seen
  return Math.max(0, until - (Number.isNaN(said) ? now : said));
}

/** A bucket of retries that fills up again with time, so that an outage is not answered with a storm. */
export class Budget {
  #left;
  #at;
  #size;
  #perMillisecond;
  #now;

  /**
   * @param {{ retries: number, perSeconds: number }} size
   * @param {() => number} now
   */
  constructor({ retries, perSeconds }, now) {
    this.#left = this.#size = retries;
    this.#perMillisecond = retries / (perSeconds * 1000);
    this.#now = now;
    this.#at = now();
  }

  /** @returns {boolean} whether there was one left */
  take() {
    const now = this.#now();
    this.#left = Math.min(this.#size, this.#left + Math.max(0, now - this.#at) * this.#perMillisecond);
    this.#at = now;
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }
}

/**
 * @param {number} milliseconds
 * @param {AbortSignal} signal
 * @returns {Promise<void>} rejects when the signal aborts
 */
export function sleep(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", abort);
      resolve();
    }, Math.min(milliseconds, TIMER));
    signal.addEventListener("abort", abort, { once: true });
  });
}

/**
 * @param {number} milliseconds
 * @returns {{ signal: AbortSignal, cancel: () => void }} a signal that aborts after so long
 */
export function alarm(milliseconds) {
  const controller = new AbortController();
  const late = () => controller.abort(new DOMException("No answer in time", "TimeoutError"));
  const timer = setTimeout(late, Math.min(milliseconds, TIMER));
  return { signal: controller.signal, cancel: () => clearTimeout(timer) };
}
