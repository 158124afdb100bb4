/** Tabs between which an arbiter decides. Their storage is never told of each other: nothing may depend on that. */

import assert from "node:assert/strict";

import { Entries } from "../src/entries.js";
import { test } from "../support/bounded.js";
import { answer, MemoryStorage, newWorld, post, START, URL_OF_ORDERS } from "../support/world.js";

const NAME = "semel.once:pay";
const anything = () => true;
const entryOf = (key) => () => ({ key, given: false, since: START, fingerprint: "f", method: "POST", url: URL_OF_ORDERS });

/** Turns as the arbiter gives them, in memory. `dropped` turns never come. */
function newArbiter() {
  const notes = new Map();
  const arbiter = {
    notes,
    dropped: false,
    kept: true,
    async alone(name, held) {
      await undefined;
      if (arbiter.dropped) return undefined;
      const written = [];
      const value = held({ noted: notes.get(name), note: (note) => written.push(note) });
      if (arbiter.kept) for (const note of written) notes.set(name, note);
      return { value, kept: arbiter.kept };
    },
  };
  return arbiter;
}

function newTab(arbiter, more = {}) {
  const storage = new MemoryStorage();
  const entries = new Entries({ storage: () => storage, prefix: "semel.once:", locks: undefined, lost() {}, arbiter, ...more });
  return { storage, entries, obtain: (key) => entries.obtain("pay", entryOf(key), anything) };
}

test("tabs that were told nothing of each other take one key", async () => {
  const arbiter = newArbiter();
  const taken = await Promise.all(["a", "b", "c"].map((key) => newTab(arbiter).obtain(key)));
  assert.deepEqual(taken.map(({ entry }) => entry.key), ["a", "a", "a"]);
  assert.deepEqual(taken.map(({ certain }) => certain), [true, false, false]);
});

test("a tab writes the key that it took into its own storage", async () => {
  const arbiter = newArbiter();
  await newTab(arbiter).obtain("a");
  const second = newTab(arbiter);
  await second.obtain("b");
  assert.equal(JSON.parse(second.storage.getItem(NAME)).key, "a");
});

test("a key that one tab let go is not taken by a tab that still sees it", async () => {
  const arbiter = newArbiter();
  const [first, second] = [newTab(arbiter), newTab(arbiter)];
  await first.obtain("a");
  await second.obtain("b");
  await first.entries.finish("pay", "a");
  assert.equal((await second.obtain("c")).entry.key, "c");
});

test("a tab that finishes late leaves alone what another has begun anew", async () => {
  const arbiter = newArbiter();
  const [first, second] = [newTab(arbiter), newTab(arbiter)];
  await first.obtain("a");
  await second.obtain("b");
  await second.entries.finish("pay", "a");
  await second.obtain("c");
  await first.entries.finish("pay", "a");
  assert.equal((await newTab(arbiter).obtain("d")).entry.key, "c");
});

test("nothing ran is not noted over the try of another tab", async () => {
  const arbiter = newArbiter();
  const [first, second] = [newTab(arbiter), newTab(arbiter)];
  await first.obtain("a");
  await second.obtain("b");
  await first.entries.nothingRan("pay", "a");
  assert.equal((await newTab(arbiter).obtain("c")).certain, false);
});

test("behind a will to forget the same page takes a new key", async () => {
  const tab = newTab(newArbiter());
  await tab.obtain("a");
  assert.equal(tab.entries.forget("pay"), true);
  assert.equal((await tab.obtain("b")).entry.key, "b");
});

test("a forgotten key is nowhere when its turn has come", async () => {
  const arbiter = newArbiter();
  const tab = newTab(arbiter);
  await tab.obtain("a");
  tab.entries.forget("pay");
  await arbiter.alone("behind", () => {});
  assert.equal(tab.storage.length, 0);
  assert.deepEqual(arbiter.notes.get(NAME), { gone: "a" });
});

test("a forgotten key stays forgotten if the page is left before its turn", async () => {
  const arbiter = newArbiter();
  const tab = newTab(arbiter);
  await tab.obtain("a");
  const { alone } = arbiter;
  arbiter.alone = () => new Promise(() => {});
  tab.entries.forget("pay");
  arbiter.alone = alone;
  const refreshed = newTab(arbiter, { storage: () => tab.storage });
  assert.deepEqual(refreshed.entries.all(), []);
  assert.equal((await refreshed.obtain("b")).entry.key, "b");
});

test("without a turn to be had the mark of a forgotten key goes too", async () => {
  const arbiter = newArbiter();
  const tab = newTab(arbiter);
  await tab.obtain("a");
  arbiter.dropped = true;
  tab.entries.forget("pay");
  for (let ticks = 0; ticks < 3; ticks++) await undefined;
  assert.equal(tab.storage.length, 0);
});

for (const [what, how] of [["there are no turns", { dropped: true }], ["what was noted may be lost", { kept: false }]]) {
  test(`where ${what} a tab waits for calm before it sends`, async () => {
    const arbiter = Object.assign(newArbiter(), how);
    let calms = 0;
    await newTab(arbiter, { calm: async () => void (calms += 1) }).obtain("a");
    assert.equal(calms, 1);
  });
}

for (const [what, open] of [["is forbidden", () => { throw new DOMException("no", "SecurityError"); }], ["never opens", () => ({})]]) {
  test(`a database that ${what} is done without`, async () => {
    const patient = { signal: new AbortController().signal, cancel() {} };
    const alarm = (milliseconds) => (milliseconds === 5_000 ? { signal: AbortSignal.abort(), cancel() {} } : patient);
    const world = newWorld({ answers: [answer(201)], alarm, indexedDB: { open } });
    assert.equal((await world.send(URL_OF_ORDERS, post(), { intent: "pay" })).status, 201);
    assert.equal(world.storage.length, 0);
  });
}
