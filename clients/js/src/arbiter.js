/**
 * The arbiter of tabs: one after the other, and each sees what the one before it noted under the same name.
 *
 * What always holds: nothing that runs here runs beside another tab. `localStorage` cannot decide who came first: a
 * browser tells the other tabs late what one of them wrote, under a lock too. Transactions of IndexedDB follow each
 * other over all tabs, on pages without HTTPS as well. What was noted counts for a minute: by then `localStorage` has
 * told everybody, and it alone is the memory.
 */

/** @typedef {import("./entry.js").Entry} Entry */
/** @typedef {{ entry?: Entry, gone?: string }} Note an entry as it was written last, or the key that was let go */
/** @typedef {{ noted?: Note, note: (note: Note) => void }} Turn */

const DATABASE = "semel.once";
const NOTES = "notes";
const FRESH = 60_000;
/** How many milliseconds a turn is waited for: some browsers never open a database, and do not say so. */
const PATIENCE = 5_000;

export class Arbiter {
  /** @type {Promise<IDBDatabase> | undefined} */
  #opened;
  #broken = false;
  #factory;
  #now;
  #alarm;

  /**
   * @param {object} how
   * @param {IDBFactory} how.indexedDB
   * @param {() => number} how.now
   * @param {(milliseconds: number) => { signal: AbortSignal, cancel: () => void }} how.alarm
   */
  constructor({ indexedDB, now, alarm }) {
    this.#factory = indexedDB;
    this.#now = now;
    this.#alarm = alarm;
  }

  /**
   * Run `held` when it is its turn.
   *
   * @template T
   * @param {string} name
   * @param {(turn: Turn) => T} held
   * @returns {Promise<{ value: T, kept: boolean } | undefined>} nothing: it did not run, there are no turns here; not
   *   `kept`: it ran, and what it noted may be lost
   */
  async alone(name, held) {
    if (this.#broken) return undefined;
    const late = this.#alarm(PATIENCE);
    /** @type {(() => T) | undefined} */
    let outcome;
    let kept = true;
    try {
      const turn = this.#turn(name, (turn) => {
        if (!late.signal.aborted) outcome = outcomeOf(() => held(turn));
      });
      await Promise.race([turn, aborted(late.signal)]);
    } catch {
      kept = false;
      this.#close(); // it may have been thrown away with the data of the site
      this.#broken = late.signal.aborted; // nobody waits as long a second time
    } finally {
      late.cancel();
    }
    return outcome && { value: outcome(), kept };
  }

  /**
   * @param {string} name
   * @param {(turn: Turn) => void} take
   * @returns {Promise<void>} when what was noted is there for all
   */
  async #turn(name, take) {
    const transaction = begun(await (this.#opened ??= this.#open()));
    const notes = transaction.objectStore(NOTES);
    const found = notes.get(name);
    found.onsuccess = () => {
      const noted = this.#isFresh(found.result) ? found.result.note : undefined;
      take({ noted, note: (note) => void notes.put({ note, at: this.#now() }, name) });
    };
    await ended(transaction);
  }

  /** @returns {Promise<IDBDatabase>} */
  async #open() {
    const asked = this.#factory.open(DATABASE, 1);
    asked.onupgradeneeded = () => void asked.result.createObjectStore(NOTES);
    const database = await answered(asked);
    // Who deletes the database must not wait for this tab, and the next turn opens it anew.
    database.onversionchange = database.onclose = () => this.#close();
    const transaction = begun(database);
    const walk = transaction.objectStore(NOTES).openCursor();
    walk.onsuccess = () => {
      if (walk.result && !this.#isFresh(walk.result.value)) walk.result.delete();
      walk.result?.continue();
    };
    await ended(transaction);
    return database;
  }

  #close() {
    this.#opened?.then((database) => database.close()).catch(() => {});
    this.#opened = undefined;
  }

  /**
   * @param {{ at: number } | undefined} found
   * @returns {boolean} not if it is of the future either: then the clock was set back
   */
  #isFresh(found) {
    return found !== undefined && Math.abs(this.#now() - found.at) < FRESH;
  }
}

/** @param {IDBDatabase} database */
function begun(database) {
  // What must outlive the browser stands in `localStorage`; a turn need not wait for the disk.
  return database.transaction(NOTES, "readwrite", { durability: "relaxed" });
}

/**
 * @template T
 * @param {() => T} held
 * @returns {() => T} gives what `held` gave, or throws what it threw
 */
function outcomeOf(held) {
  try {
    const value = held();
    return () => value;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}

/**
 * @template T
 * @param {IDBRequest<T>} asked
 * @returns {Promise<T>}
 */
function answered(asked) {
  return new Promise((resolve, reject) => {
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
  });
}

/**
 * @param {IDBTransaction} transaction
 * @returns {Promise<void>}
 */
function ended(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error);
  });
}

/**
 * @param {AbortSignal} signal
 * @returns {Promise<never>}
 */
function aborted(signal) {
  return new Promise((_, reject) => {
    const late = () => reject(signal.reason);
    if (signal.aborted) late();
    else signal.addEventListener("abort", late);
  });
}
