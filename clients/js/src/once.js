/**
 * `once(fetch)`: a fetch whose requests happen once, however often they are asked for.
 *
 * What always holds: the key is kept before the first byte is sent, every try of an intent carries the same key, and
 * an intent has one request under way on a page.
 */

import { Arbiter } from "./arbiter.js";
import { Entries } from "./entries.js";
import { KeyInUse } from "./errors.js";
import { Job } from "./job.js";
import { methodOf, prepare } from "./request.js";
import { Retention } from "./retention.js";
import { isShared, settingsOf, storageOf, takesKey } from "./settings.js";
import { Tries } from "./tries.js";
import { Budget } from "./waiting.js";

export { KeyInUse, StartOver, Unfinished } from "./errors.js";

/** Where nobody decides between tabs: how many milliseconds until all tabs see what one of them has written. */
const CALM = 200;

/** @typedef {import("./once.d.ts").Options} Options */
/** @typedef {import("./once.d.ts").SendOptions} SendOptions */
/** @typedef {import("./once.d.ts").Send} Send */
/** @typedef {import("./tries.js").Tools} Tools */

/**
 * @param {typeof globalThis.fetch} fetch
 * @param {Options} [options]
 * @returns {Send}
 */
export function once(fetch, options = {}) {
  if (typeof fetch !== "function") throw new TypeError("once(fetch) takes a function such as window.fetch.");
  const settings = settingsOf(options);
  /** @type {Map<string, Job>} */
  const underWay = new Map();
  /** @type {Set<Promise<unknown>>} calls whose request is still being read */
  const arriving = new Set();
  const tools = { ...toolsOf(fetch, settings), arrived: () => Promise.allSettled(arriving) };

  /**
   * @param {RequestInfo | URL} input
   * @param {RequestInit} [init]
   * @param {SendOptions} [how]
   */
  async function send(input, init, how = {}) {
    checkIntent(how.intent);
    const header = how.header ?? settings.header;
    const named = how.intent !== undefined || carries(input, init, header);
    if (!takesKey(settings, methodOf(input, init), named)) return fetch(input, init);
    // A job waits for those who are arriving before it ends: else a second click, slower to be read than a fast service
    // is to answer, would find nothing under way and start another.
    const arrival = arrive(input, init, header, how);
    arriving.add(arrival);
    const { response } = await arrival.finally(() => arriving.delete(arrival));
    return response;
  }

  /**
   * @param {RequestInfo | URL} input
   * @param {RequestInit | undefined} init
   * @param {string} header
   * @param {SendOptions} how
   */
  async function arrive(input, init, header, how) {
    const request = await prepare(input, init, settings.subtle);
    request.signal?.throwIfAborted();
    const key = request.headers.get(header);
    if (key === "") throw new TypeError(`The header ${header} is empty; nothing was sent. Leave it out, or write a key.`);
    const intent = how.intent ?? (key === null ? request.fingerprint : `key:${key}`);
    const job = joinable(intent, request, key) ?? start(new Job(intent, header, request, key));
    return { response: job.join(request.signal, how.settled) };
  }

  /**
   * @param {string} intent
   * @param {import("./request.js").Prepared} request
   * @param {string | null} key the caller's own
   */
  function joinable(intent, request, key) {
    const job = underWay.get(intent);
    if (!job || job.signal.aborted) return undefined;
    if (job.request.fingerprint === request.fingerprint && job.given === key) return job;
    throw new KeyInUse({ intent, key: tools.entries.read(intent)?.key ?? "" });
  }

  /**
   * Nothing is awaited between the look at `underWay` and this: a second click finds the first.
   *
   * @param {Job} job
   */
  function start(job) {
    underWay.set(job.intent, job);
    job.outcome = run(job).finally(() => {
      if (underWay.get(job.intent) === job) underWay.delete(job.intent);
    });
    return job;
  }

  /** @param {Job} job */
  async function run(job) {
    const { intent, request, given: key } = job;
    const { method, fingerprint } = request;
    const url = request.url.split("?")[0];
    const make = () => {
      return { key: key ?? settings.newKey(), given: key !== null, since: settings.now(), fingerprint, method, url };
    };
    const suits = (/** @type {import("./entries.js").Entry} */ entry) =>
      entry.fingerprint === fingerprint && (key === null || entry.key === key);
    const { entry, certain } = await tools.entries.obtain(intent, make, suits);
    if (!suits(entry)) throw new KeyInUse({ intent, key: entry.key });
    return new Tries({ settings, tools, job, entry, certain }).run();
  }

  /** Unfinished intents, the oldest first. */
  send.pending = () => {
    const all = tools.entries.all().map(([intent, { key, since, method, url }]) => ({ intent, key, since, method, url }));
    return all.sort((one, other) => one.since - other.since);
  };

  /**
   * Start over by will: the next call with this intent takes a new key.
   *
   * @param {string} intent
   */
  send.forget = (intent) => {
    underWay.delete(intent);
    return tools.entries.forget(intent);
  };

  return send;
}

/**
 * @param {typeof globalThis.fetch} fetch
 * @param {import("./settings.js").Settings} settings
 * @returns {Omit<Tools, "arrived">}
 */
function toolsOf(fetch, settings) {
  let persisted = true;
  const lost = (/** @type {unknown} */ error) => {
    if (persisted) tell({ type: "not-persisted", error });
    persisted = false;
  };
  const tell = (/** @type {any} */ event) => {
    try {
      settings.observe(event);
    } catch (error) {
      console.error(error); // who watches does not change what happens
    }
  };
  const calm = isShared(settings.storage) ? () => settings.sleep(CALM, new AbortController().signal) : undefined;
  const { indexedDB, now, alarm } = settings;
  const arbiter = indexedDB && new Arbiter({ indexedDB, now, alarm });
  return {
    fetch,
    entries: new Entries({ ...settings, storage: storageOf(settings.storage), arbiter, lost, calm }),
    retention: new Retention(settings.retention, fetch, settings.now),
    budget: new Budget(settings.budget, settings.now),
    tell,
  };
}

/** @param {unknown} intent */
function checkIntent(intent) {
  if (intent === undefined || (typeof intent === "string" && intent !== "")) return;
  throw new TypeError("intent is a text that names what is to happen once; nothing was sent.");
}

/**
 * Whether the caller wrote the key himself.
 *
 * @param {RequestInfo | URL} input
 * @param {RequestInit | undefined} init
 * @param {string} header
 */
function carries(input, init, header) {
  const headers = init?.headers ?? (input instanceof Request ? input.headers : undefined);
  return headers !== undefined && new Headers(headers).has(header);
}
