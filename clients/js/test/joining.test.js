import assert from "node:assert/strict";

import { test } from "../support/bounded.js";
import { answer, deferred, newWorld, offline, post, URL_OF_ORDERS } from "../support/world.js";

const go = (world, how, init) => world.send(URL_OF_ORDERS, post('{"room":1}', init), { intent: "i", ...how });

/** A world whose service answers when the gate opens; `asked` resolves when the request is there. */
function gated(status = 201, options = {}) {
  const gate = deferred();
  const asked = deferred();
  const hold = (_, signal) =>
    new Promise((resolve, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
      gate.promise.then(() => resolve(answer(status)()));
      asked.resolve();
    });
  return { world: newWorld({ answers: [hold, answer(201, {}, "another")], ...options }), open: gate.resolve, asked: asked.promise };
}

test("a double click is one request, and each caller has a Response of his own", async () => {
  const world = newWorld();
  const [one, other] = await Promise.all([world.send(URL_OF_ORDERS, post()), world.send(URL_OF_ORDERS, post())]);
  assert.equal(world.requests.length, 1);
  assert.notEqual(one, other);
  assert.deepEqual([await one.text(), await other.text()], ["body of 201", "body of 201"]);
});

test("fifty clicks are one request", async () => {
  const world = newWorld();
  await Promise.all(Array.from({ length: 50 }, () => go(world)));
  assert.equal(world.requests.length, 1);
});

test("a call while the first is under way joins it", async () => {
  const { world, open, asked } = gated();
  const first = go(world);
  await asked;
  const second = go(world);
  open();
  assert.deepEqual([(await first).status, (await second).status], [201, 201]);
  assert.equal(world.requests.length, 1);
});

test("two clicks share an end without an answer too", async () => {
  const world = newWorld({ answers: [offline()], tries: 1 });
  const ends = await Promise.allSettled([go(world), go(world)]);
  assert.deepEqual(ends.map(({ reason }) => reason.name), ["Unfinished", "Unfinished"]);
  assert.equal(world.requests.length, 1);
});

test("two clicks share an answer with which the key is kept", async () => {
  const world = newWorld({ answers: [answer(401)] });
  const both = await Promise.all([go(world), go(world)]);
  assert.deepEqual(both.map(({ status }) => status), [401, 401]);
  assert.equal(world.requests.length, 1);
});

test("another request for an intent that is under way is refused", async () => {
  const { world, open, asked } = gated();
  const first = go(world);
  await asked;
  await assert.rejects(go(world, {}, { method: "PATCH" }), { name: "KeyInUse" });
  open();
  await first;
  assert.equal(world.requests.length, 1);
});

test("settled is awaited with a Response before the key is let go", async () => {
  const world = newWorld();
  const seen = [];
  const settled = async (response) => {
    await new Promise(setImmediate);
    seen.push([await response.text(), world.send.pending().length]);
  };
  const response = await go(world, { settled });
  assert.deepEqual(seen, [["body of 201", 1]]);
  assert.equal(await response.text(), "body of 201");
  assert.equal(world.send.pending().length, 0);
});

test("every caller's settled is called", async () => {
  const world = newWorld();
  const seen = [];
  await Promise.all([1, 2, 3].map((who) => go(world, { settled: () => seen.push(who) })));
  assert.deepEqual(seen.sort(), [1, 2, 3]);
});

test("settled is not called when the outcome is not definite", async () => {
  const world = newWorld({ answers: [answer(401)] });
  let called = false;
  await go(world, { settled: () => (called = true) });
  assert.equal(called, false);
});

test("if settled throws the call rejects with that, and the key is kept", async () => {
  const world = newWorld();
  const settled = () => {
    throw new Error("could not write it down");
  };
  await assert.rejects(go(world, { settled }), { message: "could not write it down" });
  assert.equal(world.send.pending().length, 1);
  await go(world);
  assert.equal(world.keys()[0], world.keys()[1]);
});

test("an abort during the request rejects with AbortError, stops, and keeps the key", async () => {
  const { world, asked } = gated();
  const controller = new AbortController();
  const sent = go(world, {}, { signal: controller.signal });
  await asked;
  controller.abort();
  await assert.rejects(sent, { name: "AbortError" });
  assert.equal(world.requests.length, 1);
  assert.equal(world.requests[0].init.signal.aborted, true);
  assert.equal(world.send.pending().length, 1);
});

test("an abort while waiting stops the retries, and the key is kept", async () => {
  const controller = new AbortController();
  const sleep = async () => controller.abort();
  const world = newWorld({ answers: [answer(503)], sleep });
  await assert.rejects(go(world, {}, { signal: controller.signal }), { name: "AbortError" });
  assert.equal(world.requests.length, 1);
  assert.equal(world.kept(), "aborted");
  assert.equal(world.send.pending().length, 1);
});

test("a signal that has aborted before sends nothing and keeps nothing", async () => {
  const world = newWorld();
  await assert.rejects(go(world, {}, { signal: AbortSignal.abort() }), { name: "AbortError" });
  assert.equal(world.requests.length, 0);
  assert.equal(world.send.pending().length, 0);
});

test("after an abort the next call sends the same key", async () => {
  const { world, asked } = gated();
  const controller = new AbortController();
  const sent = go(world, {}, { signal: controller.signal });
  await asked;
  controller.abort();
  const again = go(world); // at once, while the first is still being put away
  await assert.rejects(sent, { name: "AbortError" });
  assert.equal((await again).status, 201);
  assert.equal(world.keys()[0], world.keys()[1]);
});

test("one of two callers who aborts leaves alone", async () => {
  const { world, open, asked } = gated();
  const controller = new AbortController();
  const stays = go(world); // first, so that the request is there for its sake whenever the other one has been read
  const leaves = go(world, {}, { signal: controller.signal });
  await asked;
  controller.abort();
  await assert.rejects(leaves, { name: "AbortError" });
  open();
  assert.equal((await stays).status, 201);
  assert.equal(world.requests.length, 1);
});

test("who aborts before settled has ended did not see the outcome, so the key is kept", async () => {
  const world = newWorld();
  const controller = new AbortController();
  const sent = go(world, { settled: () => controller.abort() }, { signal: controller.signal });
  await assert.rejects(sent, { name: "AbortError" });
  assert.equal(world.send.pending().length, 1);
});

test("who aborts while the key is let go gets the outcome", async () => {
  const controller = new AbortController();
  const world = newWorld({ observe: ({ type }) => type === "settled" && controller.abort() });
  assert.equal((await go(world, {}, { signal: controller.signal })).status, 201);
  assert.equal(world.send.pending().length, 0);
});

test("forget during a request lets the next call begin anew, and the first ends by itself", async () => {
  const { world, open, asked } = gated();
  const first = go(world);
  await asked;
  world.send.forget("i");
  assert.equal(await (await go(world)).text(), "another");
  open();
  assert.equal(await (await first).text(), "body of 201");
  assert.notEqual(world.keys()[0], world.keys()[1]);
});
