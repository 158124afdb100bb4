/**
 * Settings: the options, checked once and completed.
 */

import { newKey } from "./keys.js";
import { alarm, sleep } from "./waiting.js";

/** @typedef {import("./once.js").Options} Options */

const UNSAFE = new Set(["POST", "PUT", "PATCH", "DELETE"]);

const DEFAULTS = {
  storage: /** @type {NonNullable<Options["storage"]>} */ ("tab"),
  prefix: "semel.once:",
  header: "Idempotency-Key",
  quoted: true,
  methods: ["POST", "PATCH"],
  tries: 8,
  giveUpAfter: 60_000,
  answerWithin: 30_000,
  budget: { retries: 20, perSeconds: 60 },
  retention: /** @type {number | undefined} */ (undefined),
  verdict: /** @type {Options["verdict"]} */ (undefined),
  observe: /** @type {NonNullable<Options["observe"]>} */ (() => {}),
  indexedDB: /** @type {Options["indexedDB"]} */ (undefined),
  locks: /** @type {Options["locks"]} */ (undefined),
  subtle: /** @type {Options["subtle"]} */ (undefined),
  now: () => Date.now(),
  sleep,
  alarm,
  random: () => Math.random(),
  newKey: () => newKey(),
};

/** @typedef {typeof DEFAULTS} Settings */

/**
 * @param {Options} options
 * @returns {Settings}
 * @throws {TypeError} an option is not known, or cannot be so
 */
export function settingsOf(options) {
  const unknown = Object.keys(options).filter((name) => !Object.hasOwn(DEFAULTS, name));
  if (unknown.length) throw new TypeError(`There is no option "${unknown[0]}", only ${Object.keys(DEFAULTS).join(", ")}.`);
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  /** @type {Settings} */
  const settings = { ...DEFAULTS, ...given };
  settings.methods = [...settings.methods].map((method) => method.toUpperCase());
  const safe = settings.methods.find((method) => !UNSAFE.has(method));
  if (safe) throw new TypeError(`${safe} takes no key, only ${[...UNSAFE].join(", ")} do.`);
  if (!(settings.tries >= 1)) throw new TypeError("tries is 1 or more.");
  for (const name of /** @type {const} */ (["giveUpAfter", "answerWithin"])) {
    if (!(settings[name] > 0)) throw new TypeError(`${name} is a number of milliseconds above 0.`);
  }
  if (settings.retention !== undefined && !(settings.retention > 0)) {
    throw new TypeError("retention is a number of seconds above 0.");
  }
  const { retries, perSeconds } = settings.budget;
  if (!(retries >= 0 && perSeconds > 0)) throw new TypeError("budget is { retries, perSeconds }, such as 20 in 60.");
  storageOf(settings.storage);
  if (isShared(settings.storage)) {
    settings.locks ??= globalThis.navigator?.locks;
    settings.indexedDB ??= browsersDatabase();
  }
  return settings;
}

/**
 * @param {Settings["storage"]} storage
 * @returns {() => import("./shelf.js").StorageLike | undefined | null}
 */
export function storageOf(storage) {
  if (storage === "tab") return () => globalThis.sessionStorage;
  if (storage === "shared") return () => globalThis.localStorage;
  if (typeof storage?.getItem === "function") return () => storage;
  throw new TypeError('storage is "tab", "shared", or an object with getItem, setItem and removeItem.');
}

/**
 * Whether other tabs use this storage too.
 *
 * @param {Settings["storage"]} storage
 */
export function isShared(storage) {
  try {
    return storage === "shared" || storage === globalThis.localStorage;
  } catch {
    return false; // the mere look is forbidden, so it cannot be the one that was given
  }
}

/** @returns {IDBFactory | undefined} */
function browsersDatabase() {
  try {
    return globalThis.indexedDB;
  } catch {
    return undefined; // the mere look is forbidden, as in a sandboxed frame
  }
}

/**
 * Whether a request takes a key: by its method, or because the caller names what is to happen once.
 *
 * @param {Settings} settings
 * @param {string} method
 * @param {boolean} named
 */
export function takesKey(settings, method, named) {
  return settings.methods.includes(method) || (named && UNSAFE.has(method));
}
