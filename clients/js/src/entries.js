/**
 * Entries: what is remembered of unfinished intents. Key, time, fingerprint, method and path; never a body.
 *
 * What always holds: an entry stands in storage before its request is sent, or in memory if there is no storage. An
 * entry is removed by somebody who shows its key, or by the user's will.
 */

/**
 * @typedef {object} Entry
 * @property {string} key
 * @property {boolean} given whether the caller chose the key, and wrote the header
 * @property {number} since when the key was made, in milliseconds
 * @property {string} fingerprint
 * @property {string} method
 * @property {string} url without its query, which may hold secrets
 */

/** @typedef {Pick<Storage, "getItem" | "setItem" | "removeItem"> & Partial<Pick<Storage, "key" | "length">>} StorageLike */
/** @typedef {{ request<T>(name: string, held: () => T): Promise<T> }} LocksLike */

export class Entries {
  /** @type {Map<string, Entry>} */
  #memory = new Map();
  /** @type {Set<string>} keys that are finished, though storage would not let go of them */
  #finished = new Set();
  #storage;
  #prefix;
  #locks;
  #lost;

  /**
   * @param {object} how
   * @param {() => StorageLike | undefined | null} how.storage asked each time: the mere look may be forbidden
   * @param {string} how.prefix
   * @param {LocksLike | undefined} how.locks
   * @param {(error: unknown) => void} how.lost is told that storage failed
   */
  constructor({ storage, prefix, locks, lost }) {
    this.#storage = storage;
    this.#prefix = prefix;
    this.#locks = locks;
    this.#lost = lost;
  }

  /**
   * The entry of an intent, made if there is none.
   *
   * @param {string} intent
   * @param {() => Entry} make
   * @returns {Promise<Entry>}
   */
  obtain(intent, make) {
    return this.#alone(intent, () => {
      const there = this.read(intent);
      if (there) return there;
      const entry = make();
      this.#memory.set(intent, entry);
      this.#try((storage) => storage.setItem(this.#prefix + intent, JSON.stringify(entry)));
      // Closes the race of two tabs without locks: what stands there now is the key of both.
      const stands = this.#stored(intent);
      if (stands) this.#memory.delete(intent);
      else this.#lost(new Error("Storage did not keep what was written"));
      return stands ?? entry;
    });
  }

  /**
   * @param {string} intent
   * @returns {Entry | undefined}
   */
  read(intent) {
    return this.#stored(intent) ?? this.#memory.get(intent);
  }

  /**
   * Remove the entry with this key. Closes the race with a tab that finished first and has begun anew: its key stays.
   *
   * @param {string} intent
   * @param {string} key
   * @returns {Promise<void>}
   */
  finish(intent, key) {
    return this.#alone(intent, () => {
      if (this.read(intent)?.key === key) this.forget(intent);
    });
  }

  /**
   * @param {string} intent
   * @returns {boolean} whether there was anything
   */
  forget(intent) {
    const there = this.read(intent);
    if (!there) return false;
    this.#memory.delete(intent);
    this.#try((storage) => storage.removeItem(this.#prefix + intent));
    if (this.#stored(intent)?.key === there.key) this.#finished.add(there.key);
    return true;
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

  /** @param {string} intent */
  #stored(intent) {
    const entry = parsed(this.#try((storage) => storage.getItem(this.#prefix + intent)));
    return entry && !this.#finished.has(entry.key) ? entry : undefined;
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

  /**
   * @template T
   * @param {string} intent
   * @param {() => T} held
   * @returns {Promise<T>}
   */
  async #alone(intent, held) {
    let ran = false;
    const once = () => {
      ran = true;
      return held();
    };
    if (!this.#locks) return held();
    try {
      return await this.#locks.request(this.#prefix + intent, once);
    } catch (error) {
      if (ran) throw error;
      return held(); // locks are forbidden here, as in a sandboxed frame
    }
  }
}

/**
 * @param {string | null | undefined} written
 * @returns {Entry | undefined} nothing, if it is not one of ours
 */
function parsed(written) {
  if (typeof written !== "string") return undefined;
  try {
    const entry = JSON.parse(written);
    const whole = typeof entry?.key === "string" && typeof entry.fingerprint === "string" && Number.isFinite(entry.since);
    return whole ? entry : undefined;
  } catch {
    return undefined;
  }
}
