/** A refusal behind a try that may have run: it can come from somebody who never saw that try. */

import assert from "node:assert/strict";

import { test } from "../support/bounded.js";
import { answer, deferred, newLocks, newWorld, offline, post, problem, URL_OF_ORDERS } from "../support/world.js";

const go = (send, more) => send(URL_OF_ORDERS, post("1", more), { intent: "i" });
const REPLAYED = { "Idempotency-Replayed": "true" };

for (const status of [400, 404, 410, 413, 422]) {
  test(`${status} behind a lost try is asked for once more, then given back, and the key is kept`, async () => {
    const world = newWorld({ answers: [offline(), answer(status)] });
    assert.equal((await go(world.send)).status, status);
    assert.equal(world.requests.length, 3);
    assert.equal(world.send.pending().length, 1);
    assert.equal(world.kept(), `status ${status}`);
  });
}

test("a refusal behind a lost try that is replayed when asked for once more is definite", async () => {
  const world = newWorld({ answers: [offline(), answer(404), answer(404, REPLAYED)] });
  assert.equal((await go(world.send)).status, 404);
  assert.equal(new Set(world.keys()).size, 1);
  assert.equal(world.send.pending().length, 0);
});

test("a refusal behind a status of which nobody knows keeps the key", async () => {
  const world = newWorld({ answers: [answer(504), answer(404)] });
  await go(world.send);
  assert.equal(world.send.pending().length, 1);
});

test("a refusal is asked for once more only once in a call", async () => {
  const world = newWorld({ answers: [offline(), answer(404), answer(503), answer(404)] });
  assert.equal((await go(world.send)).status, 404);
  assert.equal(world.requests.length, 4);
});

test("a final failure behind a lost try is definite: the service knows the key", async () => {
  const world = newWorld({ answers: [offline(), problem(500, "urn:semel:problem:failed-before")] });
  await go(world.send);
  assert.equal(world.send.pending().length, 0);
});

test("the caller's verdict on a refusal behind a lost try counts", async () => {
  const verdict = ({ status }) => (status === 422 ? "settled" : undefined);
  const world = newWorld({ answers: [offline(), answer(422)], verdict });
  await go(world.send);
  assert.deepEqual([world.requests.length, world.send.pending().length], [2, 0]);
});

test("a refusal on the page after a lost try keeps the key", async () => {
  const world = newWorld({ answers: [offline(), answer(404)], tries: 1 });
  await assert.rejects(go(world.send), { name: "Unfinished" });
  assert.equal((await go(world.page({ tries: 8 }))).status, 404);
  assert.equal(world.send.pending().length, 1);
});

test("a refusal on the page after one that died keeps the key", async () => {
  const world = newWorld({ answers: [() => new Promise(() => {}), answer(404)] });
  go(world.send);
  while (world.requests.length < 1) await new Promise(setImmediate);
  await go(world.page());
  assert.equal(world.send.pending().length, 1);
});

for (const status of [401, 403, 407, 425, 429]) {
  test(`a refusal behind ${status}, with which nothing ran, is definite`, async () => {
    const world = newWorld({ answers: [answer(status), answer(422)], tries: 1 });
    await go(world.send);
    assert.equal((await go(world.page())).status, 422);
    assert.deepEqual([world.requests.length, world.send.pending().length], [2, 0]);
  });
}

test("that nothing ran is no longer known when the next try is lost", async () => {
  const world = newWorld({ answers: [answer(401), offline(), answer(422)], tries: 1 });
  await go(world.send);
  await assert.rejects(go(world.page()), { name: "Unfinished" });
  await go(world.page({ tries: 8 }));
  assert.equal(world.send.pending().length, 1);
});

test("a tab for which nothing ran does not speak for another tab with the same key", async () => {
  const gate = deferred();
  const late = async () => (await gate.promise, answer(401)());
  const world = newWorld({ answers: [late, offline(), answer(422)], tries: 1, locks: newLocks() });
  const first = go(world.page());
  while (world.requests.length < 1) await new Promise(setImmediate);
  await assert.rejects(go(world.page()), { name: "Unfinished" });
  gate.resolve();
  await first;
  await go(world.page({ tries: 8 }));
  assert.equal(world.send.pending().length, 1);
});

test("a request that is refused as another one leaves what is known of the first", async () => {
  const world = newWorld({ answers: [answer(401), answer(422)] });
  await go(world.send);
  await assert.rejects(world.send(URL_OF_ORDERS, post("2"), { intent: "i" }), { name: "KeyInUse" });
  await go(world.send);
  assert.deepEqual([world.requests.length, world.send.pending().length], [2, 0]);
});
