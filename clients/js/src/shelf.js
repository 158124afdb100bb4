/**
 * The shelf: where entries stand. In storage, or in memory where storage fails.
 *
 * What always holds: nothing here throws. What storage would not keep stands in memory until the page is left, and what
 * it would not let go of counts as gone.
 */

import { goneOf, parsed } from "./entry.js";

/** @typedef {import("./entry.js").Entry} Entry */
/** @typedef {Pick<Storage, "getItem" | "setItem" | "removeItem"> & Partial<Pick<Storage, "key" | "length">>} StorageLike */

export class Shelf {
  /** @type {Map<string, Entry>} */
  #memory = new Map();
  /** @type {Set<string>} keys that are finished, though storage would not let go of them */
  #finished = new Set();
  #storage;
  #prefix;
  #lost;

  /**
   * @param {object} how
   * @param {() => StorageLike | undefined | null} how.storage asked each time: the mere look may be forbidden
   * @param {string} how.prefix
   * @param {(error: unknown) => void} how.lost is told that storage failed
   */
  constructor({ storage, prefix, lost }) {
    this.#storage = storage;
    this.#prefix = prefix;
    this.#lost = lost;
  }

  /**
   * @param {string} intent
   * @returns {Entry | undefined}
   */
  read(intent) {
    return this.stored(intent) ?? this.#memory.get(intent);
  }

  /**
   * @param {string} intent
   * @returns {Entry | undefined} what other pages can see too
   */
  stored(intent) {
    const entry = parsed(this.#try((storage) => storage.getItem(this.#prefix + intent)));
    return entry && this.isOpen(entry) ? entry : undefined;
  }

  /** @param {Entry} entry */
  isOpen({ key }) {
    return !this.#finished.has(key);
  }

  /**
   * @param {string} intent
   * @param {Entry} entry
   */
  write(intent, entry) {
    this.#memory.set(intent, entry);
    this.#try((storage) => storage.setItem(this.#prefix + intent, JSON.stringify(entry)));
    if (this.stored(intent)) this.#memory.delete(intent);
    else this.#lost(new Error("Storage did not keep what was written"));
  }

  /**
   * @param {string} intent
   * @param {string} key of the entry that stands there
   */
  remove(intent, key) {
    this.#memory.delete(intent);
    this.#try((storage) => storage.removeItem(this.#prefix + intent));
    if (this.stored(intent)?.key === key) this.#finished.add(key);
  }

  /**
   * Leave a mark in place of an entry: its key is let go, though not all have been told.
   *
   * @param {string} intent
   * @param {string} gone
   */
  mark(intent, gone) {
    this.remove(intent, gone);
    this.#try((storage) => storage.setItem(this.#prefix + intent, JSON.stringify({ gone })));
  }

  /**
   * @param {string} intent
   * @returns {string | undefined} the key whose mark stands there
   */
  marked(intent) {
    return goneOf(this.#try((storage) => storage.getItem(this.#prefix + intent)));
  }

  /** @returns {[string, Entry][]} */
  all() {
    const intents = new Set(this.#memory.keys());
    this.#try((storage) => {
      if (typeof storage.key !== "function") return;
      for (let at = 0; at < (storage.length ?? 0); at++) {
        const name = storage.key(at);
        if (name?.startsWith(this.#prefix)) intents.add(name.slice(this.#prefix.length));
      }
    });
    return [...intents].flatMap((intent) => {
      const entry = this.read(intent);
      return entry ? [/** @type {[string, Entry]} */ ([intent, entry])] : [];
    });
  }

  /**
   * @template T
   * @param {(storage: StorageLike) => T} use
   * @returns {T | undefined}
   */
  #try(use) {
    try {
      const storage = this.#storage();
      if (storage) return use(storage);
      this.#lost(new Error("There is no storage here"));
    } catch (error) {
      this.#lost(error); // full, forbidden, or private: memory goes on
    }
    return undefined;
  }
}
