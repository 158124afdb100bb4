/**
 * Entries: what is remembered of unfinished intents. Key, time, fingerprint, method and path; never a body.
 *
 * What always holds: an entry stands in storage before its request is sent, or in memory if there is no storage. An
 * entry is removed by somebody who shows its key, or by the user's will; those without a name also when they are many
 * and old.
 */

import { MAY_HAVE_RUN, NOTHING_RAN, parsed, SENDING } from "./entry.js";

/** @typedef {import("./entry.js").Entry} Entry */
/** @typedef {Pick<Storage, "getItem" | "setItem" | "removeItem"> & Partial<Pick<Storage, "key" | "length">>} StorageLike */
/** @typedef {{ request<T>(name: string, held: () => T): Promise<T> }} LocksLike */

const UNNAMED = 100;
const HOUR = 3_600_000;

export class Entries {
  /** @type {Map<string, Entry>} */
  #memory = new Map();
  /** @type {Set<string>} keys that are finished, though storage would not let go of them */
  #finished = new Set();
  #storage;
  #prefix;
  #locks;
  #lost;
  #calm;

  /**
   * @param {object} how
   * @param {() => StorageLike | undefined | null} how.storage asked each time: the mere look may be forbidden
   * @param {string} how.prefix
   * @param {LocksLike | undefined} how.locks
   * @param {(error: unknown) => void} how.lost is told that storage failed
   * @param {() => Promise<void>} [how.calm] waits until other processes see what was written, where there are any
   */
  constructor({ storage, prefix, locks, lost, calm }) {
    this.#storage = storage;
    this.#prefix = prefix;
    this.#locks = locks;
    this.#lost = lost;
    this.#calm = calm;
  }

  /**
   * The entry of an intent, made if there is none. `certain` says that nothing ran under its key.
   *
   * @param {string} intent
   * @param {() => Entry} make
   * @param {(entry: Entry) => boolean} suits whether it is of the same request; else it is left as it is
   * @returns {Promise<{ entry: Entry, certain: boolean }>}
   */
  async obtain(intent, make, suits) {
    /** @type {Entry | undefined} */
    let made;
    let locked = true;
    const taken = await this.#alone(intent, (alone) => {
      locked = alone;
      const there = this.read(intent);
      if (there) return this.#taken(intent, there, suits);
      made = { ...make(), ran: SENDING };
      this.#tidy(made.since);
      this.#write(intent, made);
      return { entry: made, certain: true };
    });
    if (!made) return taken;
    // Closes the race of two tabs without locks: what stands there when the dust has settled is the key of both.
    if (!locked) await this.#calm?.();
    const stands = this.#stored(intent);
    if (stands && stands.key !== made.key) return this.#taken(intent, stands, suits);
    if (!stands) this.#write(intent, made);
    return taken;
  }

  /**
   * @param {string} intent
   * @param {Entry} entry
   * @param {(entry: Entry) => boolean} suits
   */
  #taken(intent, entry, suits) {
    const certain = entry.ran === NOTHING_RAN;
    if (suits(entry)) this.#write(intent, { ...entry, ran: certain ? SENDING : MAY_HAVE_RUN });
    return { entry, certain };
  }

  /**
   * Note that nothing ran. Not where somebody else has sent the key too: of his try nothing is known here.
   *
   * @param {string} intent
   * @param {string} key
   * @returns {Promise<void>}
   */
  nothingRan(intent, key) {
    return this.#alone(intent, (alone) => {
      if (!alone && this.#calm) return; // another tab may be writing that it has sent the key
      const entry = this.read(intent);
      if (entry?.key === key && entry.ran === SENDING) this.#write(intent, { ...entry, ran: NOTHING_RAN });
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

  /**
   * @param {string} intent
   * @param {Entry} entry
   */
  #write(intent, entry) {
    this.#memory.set(intent, entry);
    this.#try((storage) => storage.setItem(this.#prefix + intent, JSON.stringify(entry)));
    if (this.#stored(intent)) this.#memory.delete(intent);
    else this.#lost(new Error("Storage did not keep what was written"));
  }

  /**
   * Drop what nobody comes back for: a page that saves a draft every few seconds leaves one for each while it is offline.
   *
   * @param {number} now
   */
  #tidy(now) {
    const unnamed = this.all().filter(([intent, { fingerprint }]) => intent === fingerprint);
    const newest = unnamed.sort(([, one], [, other]) => other.since - one.since);
    for (const [intent, { since }] of newest.slice(UNNAMED)) if (now - since >= HOUR) this.forget(intent);
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
   * @param {(alone: boolean) => T} held is told whether there is a lock
   * @returns {Promise<T>}
   */
  async #alone(intent, held) {
    let ran = false;
    const once = () => {
      ran = true;
      return held(true);
    };
    if (!this.#locks) return held(false);
    try {
      return await this.#locks.request(this.#prefix + intent, once);
    } catch (error) {
      if (ran) throw error;
      return held(false); // locks are forbidden here, as in a sandboxed frame
    }
  }
}
