/**
 * A world for tests: virtual time, a scripted fetch, storage that can fail, locks. Nothing in it waits.
 */

import { webcrypto } from "node:crypto";

import { once } from "../src/once.js";

// Node 18 has it, but not as a global; browsers, and Node from 20 on, do.
globalThis.crypto ??= webcrypto;

/** The time at which every world begins: a date with whole seconds, for HTTP dates. */
export const START = Date.UTC(2030, 0, 1);
export const URL_OF_ORDERS = "https://shop.example/orders";

/** Storage as browsers have it, over a Map. */
export class MemoryStorage {
  /** @type {Map<string, string>} */
  items = new Map();

  get length() {
    return this.items.size;
  }

  key(index) {
    return [...this.items.keys()][index] ?? null;
  }

  getItem(name) {
    return this.items.get(name) ?? null;
  }

  setItem(name, value) {
    this.items.set(name, String(value));
  }

  removeItem(name) {
    this.items.delete(name);
  }
}

/** Locks as `navigator.locks` has them: one holder per name, the others in line. */
export function newLocks() {
  const tails = new Map();
  const names = [];
  return {
    names,
    request(name, held) {
      names.push(name);
      const turn = (tails.get(name) ?? Promise.resolve()).then(() => held());
      tails.set(name, turn.catch(() => {}));
      return turn;
    },
  };
}

/** A promise, and the functions that settle it. */
export function deferred() {
  let resolve;
  let reject;
  const promise = new Promise((...both) => ([resolve, reject] = both));
  return { promise, resolve, reject };
}

/**
 * A scripted service, and a page that talks to it. `answers` are given one after the other, the last for ever: a
 * Response maker, an Error to reject with, or a function of the request.
 */
export function newWorld({ answers = [answer(201)], at = START, ...options } = {}) {
  const world = {
    now: at,
    pauses: [],
    requests: [],
    events: [],
    storage: options.storage ?? new MemoryStorage(),
    keys: () => world.requests.map(({ key }) => key),
    types: () => world.events.map(({ type }) => type),
    kept: () => world.events.find(({ type }) => type === "kept")?.why,
  };
  world.fetch = async (input, init) => {
    const request = new Request(input, init);
    const key = request.headers.get(options.header ?? "Idempotency-Key");
    const seen = { url: request.url, method: request.method, key, init, headers: request.headers, request };
    seen.stored = world.storage.items ? new Map(world.storage.items) : undefined;
    world.requests.push(seen);
    const next = answers[Math.min(world.requests.length, answers.length) - 1];
    if (next instanceof Error) throw next;
    return next(seen, init?.signal ?? request.signal);
  };
  world.page = (more = {}) =>
    once(world.fetch, {
      storage: world.storage,
      observe: (event) => world.events.push(event),
      now: () => world.now,
      random: () => 0.5,
      alarm: () => ({ signal: new AbortController().signal, cancel() {} }),
      sleep: async (milliseconds) => {
        world.pauses.push(milliseconds);
        world.now += milliseconds;
      },
      ...options,
      ...more,
    });
  world.send = world.page();
  return world;
}

/** @returns {() => Response} */
export function answer(status, headers = {}, body = status === 204 ? null : `body of ${status}`) {
  return () => new Response(body, { status, headers });
}

export function problem(status, type, headers = {}) {
  return answer(status, { "Content-Type": "application/problem+json", ...headers }, JSON.stringify({ type, status }));
}

export const offline = () => new TypeError("fetch failed");

export const post = (body = '{"room":1}', more = {}) => ({
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body,
  ...more,
});
