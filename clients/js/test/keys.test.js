import assert from "node:assert/strict";

import { newKey, quoted } from "../src/keys.js";
import { test } from "../support/bounded.js";
import { answer, newWorld, post, URL_OF_ORDERS } from "../support/world.js";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

test("a key is a random UUID", () => {
  assert.match(newKey(), UUID);
  assert.notEqual(newKey(), newKey());
});

test("in an insecure context the key is a random UUID too", () => {
  const insecure = { getRandomValues: (bytes) => globalThis.crypto.getRandomValues(bytes) };
  assert.match(newKey(insecure), UUID);
  assert.notEqual(newKey(insecure), newKey(insecure));
});

test("without a source of random numbers nothing is sent, and the error says what to do", async () => {
  assert.throws(() => newKey(null), { name: "TypeError", message: /nothing was sent. Pass newKey/ });
  const world = newWorld({ newKey: () => newKey({}) });
  await assert.rejects(world.send(URL_OF_ORDERS, post()), { name: "TypeError", message: /Pass newKey/ });
  assert.equal(world.requests.length, 0);
});

test("a quoted key escapes quotes and backslashes", () => {
  assert.equal(quoted('a"b\\c'), '"a\\"b\\\\c"');
});

test("the header is sent as a structured-field string", async () => {
  const world = newWorld({ newKey: () => "k-1" });
  await world.send(URL_OF_ORDERS, post());
  assert.deepEqual(world.keys(), ['"k-1"']);
});

test("the header is sent bare when asked for", async () => {
  const world = newWorld({ newKey: () => "k-1", quoted: false });
  await world.send(URL_OF_ORDERS, post());
  assert.deepEqual(world.keys(), ["k-1"]);
});

test("a call can name another header", async () => {
  const world = newWorld({ newKey: () => "k-1" });
  await world.send(URL_OF_ORDERS, post(), { header: "Payment-Idempotency-Key" });
  assert.equal(world.requests[0].headers.get("Payment-Idempotency-Key"), '"k-1"');
  assert.equal(world.requests[0].key, null);
});

for (const method of ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]) {
  test(`${method} without an intent passes untouched`, async () => {
    const world = newWorld();
    const init = { method };
    await world.send(URL_OF_ORDERS, init);
    assert.deepEqual(world.keys(), [null]);
    assert.equal(world.requests[0].init, init);
    assert.deepEqual(world.send.pending(), []);
  });
}

for (const method of ["PUT", "DELETE"]) {
  test(`${method} takes a key if an intent is named`, async () => {
    const world = newWorld();
    await world.send(URL_OF_ORDERS, { method }, { intent: "i" });
    assert.match(world.keys()[0], /^"/);
  });
}

test("GET passes untouched though an intent is named", async () => {
  const world = newWorld();
  await world.send(URL_OF_ORDERS, {}, { intent: "i" });
  assert.deepEqual(world.keys(), [null]);
});

test("the methods can be chosen", async () => {
  const world = newWorld({ methods: ["put"] });
  await world.send(URL_OF_ORDERS, { method: "PUT" });
  await world.send(URL_OF_ORDERS, post());
  assert.match(world.keys()[0], /^"/);
  assert.equal(world.keys()[1], null);
});

test("a key of the caller is sent as it is, and again on a retry", async () => {
  const world = newWorld({ answers: [answer(503), answer(201)] });
  await world.send(URL_OF_ORDERS, post("1", { headers: { "Idempotency-Key": "mine" } }));
  assert.deepEqual(world.keys(), ["mine", "mine"]);
});

test("a key of the caller for an intent that is unfinished under another key is refused", async () => {
  const world = newWorld({ answers: [answer(401)] });
  await world.send(URL_OF_ORDERS, post("1"), { intent: "i" });
  const again = world.send(URL_OF_ORDERS, post("1", { headers: { "Idempotency-Key": "mine" } }), { intent: "i" });
  await assert.rejects(again, { name: "KeyInUse" });
  assert.equal(world.requests.length, 1);
});

test("an empty key of the caller is refused before anything is sent", async () => {
  const world = newWorld();
  const sent = world.send(URL_OF_ORDERS, post("1", { headers: { "Idempotency-Key": " " } }));
  await assert.rejects(sent, { name: "TypeError", message: /empty; nothing was sent/ });
  assert.equal(world.requests.length, 0);
});

test("a kept key of the caller is found again by its intent, and is not put in quotes", async () => {
  const world = newWorld({ answers: [answer(401), answer(201)] });
  const mine = { "Content-Type": "text/plain", "Idempotency-Key": "mine" };
  await world.send(URL_OF_ORDERS, post("1", { headers: mine }), { intent: "i" });
  await world.page()(URL_OF_ORDERS, post("1", { headers: { "Content-Type": "text/plain" } }), { intent: "i" });
  assert.deepEqual(world.keys(), ["mine", "mine"]);
});

for (const [options, why] of [
  [{ storage: "cloud" }, /storage is/],
  [{ methods: ["GET"] }, /GET takes no key/],
  [{ retires: 3 }, /no option "retires"/],
  [{ tries: 0 }, /tries/],
  [{ giveUpAfter: 0 }, /giveUpAfter/],
  [{ retention: -1 }, /retention/],
  [{ budget: { retries: 5 } }, /budget/],
]) {
  test(`the options ${JSON.stringify(options)} are refused`, () => {
    assert.throws(() => newWorld(options), { name: "TypeError", message: why });
  });
}

test("an empty intent is refused before anything is sent", async () => {
  const world = newWorld();
  await assert.rejects(world.send(URL_OF_ORDERS, post(), { intent: "" }), { name: "TypeError", message: /nothing was sent/ });
  assert.equal(world.requests.length, 0);
});
