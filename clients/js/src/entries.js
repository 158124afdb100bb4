/**
 * Entries: what is remembered of unfinished intents. Key, time, fingerprint, method and path; never a body.
 *
 * What always holds: an entry stands in storage before its request is sent, or in memory if there is no storage. An
 * entry is removed by somebody who shows its key, or by the user's will; those without a name also when they are many
 * and old.
 */

import { MAY_HAVE_RUN, NOTHING_RAN, SENDING } from "./entry.js";
import { Shelf } from "./shelf.js";

/** @typedef {import("./entry.js").Entry} Entry */
/** @typedef {{ request<T>(name: string, held: () => T): Promise<T> }} LocksLike */
/** @typedef {import("./arbiter.js").Turn & { alone: boolean }} Turn `alone`: no other tab is at it now */

const UNNAMED = 100;
const HOUR = 3_600_000;
/** @type {Turn} */
const UNARBITRATED = { alone: false, note: () => {} };

export class Entries {
  #shelf;
  #prefix;
  #arbiter;
  #locks;
  #calm;

  /**
   * @param {object} how
   * @param {() => import("./shelf.js").StorageLike | undefined | null} how.storage
   * @param {string} how.prefix
   * @param {Pick<import("./arbiter.js").Arbiter, "alone">} [how.arbiter] decides between tabs
   * @param {LocksLike | undefined} how.locks where there is no arbiter
   * @param {(error: unknown) => void} how.lost is told that storage failed
   * @param {() => Promise<void>} [how.calm] waits until other processes see what was written, where there are any
   */
  constructor({ storage, prefix, arbiter, locks, lost, calm }) {
    this.#shelf = new Shelf({ storage, prefix, lost });
    this.#prefix = prefix;
    this.#arbiter = arbiter;
    this.#locks = locks;
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
    const { value: taken, alone } = await this.#alone(intent, (turn) => {
      const there = this.#standing(intent, turn);
      if (there) return this.#taken(intent, there, suits, turn);
      made = { ...make(), ran: SENDING };
      this.#tidy(made.since);
      this.#write(intent, made, turn);
      return { entry: made, certain: true };
    });
    if (!made) return taken;
    // Narrows the race of two tabs that nobody decides: what stands there when the dust has settled is the key of both.
    if (!alone) await this.#calm?.();
    const stands = this.#shelf.stored(intent);
    if (stands && stands.key !== made.key) return this.#taken(intent, stands, suits, UNARBITRATED);
    if (!stands) this.#write(intent, made, UNARBITRATED);
    return taken;
  }

  /**
   * What counts now. What was noted is newer than storage, which tells other tabs late.
   *
   * @param {string} intent
   * @param {Turn} turn
   */
  #standing(intent, { noted }) {
    const entry = noted?.entry;
    if (entry && this.#shelf.isOpen(entry) && this.#shelf.marked(intent) !== entry.key) return entry;
    const there = this.#shelf.read(intent);
    return there && there.key === noted?.gone ? undefined : there;
  }

  /**
   * @param {string} intent
   * @param {Entry} entry
   * @param {(entry: Entry) => boolean} suits
   * @param {Turn} turn
   */
  #taken(intent, entry, suits, turn) {
    const certain = entry.ran === NOTHING_RAN;
    if (suits(entry)) this.#write(intent, { ...entry, ran: certain ? SENDING : MAY_HAVE_RUN }, turn);
    return { entry, certain };
  }

  /**
   * Note that nothing ran. Not where somebody else has sent the key too: of his try nothing is known here.
   *
   * @param {string} intent
   * @param {string} key
   * @returns {Promise<void>}
   */
  async nothingRan(intent, key) {
    await this.#alone(intent, (turn) => {
      if (!turn.alone && this.#calm) return; // another tab may be writing that it has sent the key
      const entry = this.#standing(intent, turn);
      if (entry?.key === key && entry.ran === SENDING) this.#write(intent, { ...entry, ran: NOTHING_RAN }, turn);
    });
  }

  /**
   * @param {string} intent
   * @returns {Entry | undefined}
   */
  read(intent) {
    return this.#shelf.read(intent);
  }

  /** @returns {[string, Entry][]} */
  all() {
    return this.#shelf.all();
  }

  /**
   * Remove the entry with this key. Closes the race with a tab that finished first and has begun anew: its key stays.
   *
   * @param {string} intent
   * @param {string} key
   * @returns {Promise<void>}
   */
  async finish(intent, key) {
    await this.#alone(intent, (turn) => {
      if (this.#standing(intent, turn)?.key !== key) return;
      turn.note({ gone: key });
      if (this.#shelf.read(intent)?.key === key) this.#shelf.remove(intent, key);
    });
  }

  /**
   * @param {string} intent
   * @returns {boolean} whether there was anything
   */
  forget(intent) {
    const there = this.#shelf.read(intent);
    if (there) this.#letGo(intent, there.key);
    return there !== undefined;
  }

  /**
   * @param {string} intent
   * @param {string} key
   */
  #letGo(intent, key) {
    if (!this.#arbiter) return this.#shelf.remove(intent, key);
    // The mark stands until the turn has come: a page that is left before it would find the key again in what is noted.
    this.#shelf.mark(intent, key);
    const unmark = () => {
      if (this.#shelf.marked(intent) === key) this.#shelf.remove(intent, key);
    };
    const turned = this.#arbiter.alone(this.#prefix + intent, ({ noted, note }) => {
      if (noted?.entry?.key === key) note({ gone: key });
      unmark();
    });
    void turned.then((done) => done ?? unmark());
  }

  /**
   * @param {string} intent
   * @param {Entry} entry
   * @param {Turn} turn
   */
  #write(intent, entry, turn) {
    turn.note({ entry });
    this.#shelf.write(intent, entry);
  }

  /**
   * Drop what nobody comes back for: a page that saves a draft every few seconds leaves one for each while it is offline.
   *
   * @param {number} now
   */
  #tidy(now) {
    const unnamed = this.#shelf.all().filter(([intent, { fingerprint }]) => intent === fingerprint);
    const newest = unnamed.sort(([, one], [, other]) => other.since - one.since);
    for (const [intent, { since }] of newest.slice(UNNAMED)) if (now - since >= HOUR) this.forget(intent);
  }

  /**
   * @template T
   * @param {string} intent
   * @param {(turn: Turn) => T} held
   * @returns {Promise<{ value: T, alone: boolean }>} whether no other tab was at it
   */
  async #alone(intent, held) {
    const name = this.#prefix + intent;
    const turned = await this.#arbiter?.alone(name, (turn) => held({ ...turn, alone: true }));
    if (turned) return { value: turned.value, alone: turned.kept };
    let ran = false;
    const once = () => {
      ran = true;
      return { value: held({ ...UNARBITRATED, alone: true }), alone: true };
    };
    try {
      if (this.#locks) return await this.#locks.request(name, once);
    } catch (error) {
      if (ran) throw error; // else locks are forbidden here, as in a sandboxed frame
    }
    return { value: held(UNARBITRATED), alone: false };
  }
}
