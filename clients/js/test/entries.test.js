import assert from "node:assert/strict";

import { test } from "../support/bounded.js";
import { answer, deferred, MemoryStorage, newLocks, newWorld, offline, post, START, URL_OF_ORDERS } from "../support/world.js";

const stored = (storage) => [...storage.items.values()].map((text) => JSON.parse(text));

/** Storage that fails in the given calls. */
function failing(...calls) {
  const storage = new MemoryStorage();
  for (const call of calls) {
    storage[call] = () => {
      throw new DOMException("full", "QuotaExceededError");
    };
  }
  return storage;
}

test("the key is in storage before fetch is called", async () => {
  const world = newWorld({ newKey: () => "k-1" });
  await world.send(URL_OF_ORDERS, post(), { intent: "reserve:17" });
  const entry = JSON.parse(world.requests[0].stored.get("semel.once:reserve:17"));
  assert.equal(entry.key, "k-1");
  assert.equal(entry.since, START);
});

test("the body, the headers and the query are not in storage", async () => {
  const world = newWorld({ answers: [answer(401)] });
  const headers = { Authorization: "Bearer t0ken" };
  await world.send(`${URL_OF_ORDERS}?token=s3cret#part`, post("card=4111111111111111", { headers }));
  const text = JSON.stringify([...world.storage.items]);
  for (const secret of ["4111", "t0ken", "s3cret"]) assert.ok(!text.includes(secret), secret);
  assert.deepEqual(Object.keys(stored(world.storage)[0]).sort(), ["fingerprint", "given", "key", "method", "ran", "since", "url"]);
  assert.match(stored(world.storage)[0].fingerprint, /^sha256-[0-9a-f]{64}$/);
});

test("without crypto.subtle the fingerprint still tells requests apart", async () => {
  const { fingerprint } = await import("../src/fingerprint.js");
  const of = (text) => {
    const body = new TextEncoder().encode(text);
    return fingerprint({ method: "POST", url: URL_OF_ORDERS, mediaType: "", body, form: null }, null);
  };
  assert.match(await of("1"), /^weak-[0-9a-f]{32}$/);
  assert.equal(await of("1"), await of("1"));
  assert.notEqual(await of("1"), await of("2"));
});

test("after a refresh the same request is sent with the same key", async () => {
  const world = newWorld({ answers: [offline(), answer(201)], tries: 1 });
  await assert.rejects(world.send(URL_OF_ORDERS, post()), { name: "Unfinished" });
  await world.page()(URL_OF_ORDERS, post());
  assert.equal(world.keys()[0], world.keys()[1]);
});

test("another body without an intent is another key", async () => {
  const world = newWorld({ answers: [answer(401)] });
  await world.send(URL_OF_ORDERS, post("1"));
  await world.send(URL_OF_ORDERS, post("2"));
  assert.notEqual(world.keys()[0], world.keys()[1]);
});

test("after a definite outcome the next call takes a new key", async () => {
  const world = newWorld();
  await world.send(URL_OF_ORDERS, post());
  await world.send(URL_OF_ORDERS, post());
  assert.notEqual(world.keys()[0], world.keys()[1]);
  assert.equal(world.storage.length, 0);
});

test("two tabs with locks agree on one key", async () => {
  const gate = deferred();
  const world = newWorld({ answers: [async () => (await gate.promise, new Response())], locks: newLocks() });
  const tabs = ["a", "b"].map((tab) => world.page({ newKey: () => tab }));
  const sent = tabs.map((send) => send(URL_OF_ORDERS, post(), { intent: "i" }));
  while (world.requests.length < 2) await new Promise(setImmediate);
  gate.resolve();
  await Promise.all(sent);
  assert.equal(new Set(world.keys()).size, 1);
});

test("in shared storage the key is obtained and let go under a lock of its intent", async () => {
  const locks = newLocks();
  const world = newWorld({ locks });
  await world.send(URL_OF_ORDERS, post(), { intent: "i" });
  assert.deepEqual(locks.names, ["semel.once:i", "semel.once:i"]);
});

test("two tabs without locks take what stands in storage", async () => {
  const storage = new MemoryStorage();
  const set = storage.setItem.bind(storage);
  const rival = { key: "rival", given: false, since: START, method: "POST", url: URL_OF_ORDERS };
  storage.setItem = (name, value) => set(name, JSON.stringify({ ...JSON.parse(value), ...rival })); // wrote last
  const world = newWorld({ storage });
  await world.send(URL_OF_ORDERS, post(), { intent: "i" });
  assert.deepEqual(world.keys(), ['"rival"']);
});

test("locks that are forbidden are done without", async () => {
  const locks = { request: async () => Promise.reject(new DOMException("no", "SecurityError")) };
  const world = newWorld({ locks });
  assert.equal((await world.send(URL_OF_ORDERS, post())).status, 201);
  assert.equal(world.storage.length, 0);
});

test("a tab that finishes late leaves the new key of another tab alone", async () => {
  const gate = deferred();
  const world = newWorld({ answers: [async () => (await gate.promise, new Response())] });
  const late = world.send(URL_OF_ORDERS, post(), { intent: "i" });
  while (world.requests.length < 1) await new Promise(setImmediate);
  const name = "semel.once:i";
  const begun = { ...JSON.parse(world.storage.getItem(name)), key: "begun-anew" };
  world.storage.setItem(name, JSON.stringify(begun));
  gate.resolve();
  await late;
  assert.equal(JSON.parse(world.storage.getItem(name)).key, "begun-anew");
});

test('"tab" is sessionStorage and "shared" is localStorage', async () => {
  for (const [storage, name] of [["tab", "sessionStorage"], ["shared", "localStorage"]]) {
    const before = Object.getOwnPropertyDescriptor(globalThis, name);
    const fake = new MemoryStorage();
    Object.defineProperty(globalThis, name, { value: fake, configurable: true });
    try {
      const world = newWorld({ answers: [answer(401)] });
      await world.page({ storage })(URL_OF_ORDERS, post());
      assert.equal(fake.length, 1, name);
    } finally {
      if (before) Object.defineProperty(globalThis, name, before);
      else delete globalThis[name];
    }
  }
});

for (const calls of [["setItem"], ["getItem", "setItem", "removeItem", "key"]]) {
  test(`storage that fails in ${calls.join(", ")} is replaced by memory, and that is told once`, async () => {
    const world = newWorld({ storage: failing(...calls), answers: [answer(401), answer(401), answer(201)] });
    for (let call = 0; call < 3; call++) await world.send(URL_OF_ORDERS, post(), { intent: "i" });
    assert.equal(new Set(world.keys()).size, 1);
    assert.equal(world.types().filter((type) => type === "not-persisted").length, 1);
  });
}

test("storage whose mere look is forbidden is replaced by memory", async () => {
  const before = Object.getOwnPropertyDescriptor(globalThis, "sessionStorage");
  const get = () => {
    throw new DOMException("disabled", "SecurityError");
  };
  Object.defineProperty(globalThis, "sessionStorage", { get, configurable: true });
  try {
    const world = newWorld();
    assert.equal((await world.page({ storage: "tab" })(URL_OF_ORDERS, post())).status, 201);
    assert.ok(world.types().includes("not-persisted"));
  } finally {
    if (before) Object.defineProperty(globalThis, "sessionStorage", before);
    else delete globalThis.sessionStorage;
  }
});

test("storage that drops what is written is noticed", async () => {
  const storage = new MemoryStorage();
  storage.setItem = () => {};
  const world = newWorld({ storage, answers: [answer(401)] });
  await world.send(URL_OF_ORDERS, post(), { intent: "i" });
  await world.send(URL_OF_ORDERS, post(), { intent: "i" });
  assert.equal(new Set(world.keys()).size, 1);
  assert.ok(world.types().includes("not-persisted"));
});

test("an entry that cannot be removed is not used again on this page", async () => {
  const world = newWorld({ storage: failing("removeItem") });
  await world.send(URL_OF_ORDERS, post(), { intent: "i" });
  await world.send(URL_OF_ORDERS, post(), { intent: "i" });
  assert.notEqual(world.keys()[0], world.keys()[1]);
});

test("what is not an entry of ours counts as nothing", async () => {
  const world = newWorld();
  for (const text of ["{", "null", '{"key":1}']) {
    world.storage.setItem("semel.once:i", text);
    assert.equal((await world.send(URL_OF_ORDERS, post(), { intent: "i" })).status, 201);
  }
  assert.equal(world.requests.length, 3);
});

test("the same intent with another body is refused before anything is sent", async () => {
  const world = newWorld({ answers: [answer(401)] });
  await world.send(URL_OF_ORDERS, post("1"), { intent: "i" });
  const other = world.send(URL_OF_ORDERS, post("2"), { intent: "i" });
  await assert.rejects(other, { name: "KeyInUse", code: "key-in-use", intent: "i", message: /forget\(intent\)/ });
  assert.equal(world.requests.length, 1);
});

for (const [what, url, init] of [
  ["URL", `${URL_OF_ORDERS}?b`, post("1")],
  ["method", URL_OF_ORDERS, post("1", { method: "PATCH" })],
  ["media type", URL_OF_ORDERS, post("1", { headers: { "Content-Type": "text/plain" } })],
]) {
  test(`the same intent with another ${what} is refused`, async () => {
    const world = newWorld({ answers: [answer(401)] });
    await world.send(URL_OF_ORDERS, post("1"), { intent: "i" });
    await assert.rejects(world.send(url, init, { intent: "i" }), { name: "KeyInUse" });
  });
}

test("pending lists unfinished intents of earlier pages too, the oldest first", async () => {
  const world = newWorld({ answers: [answer(401)], newKey: () => "k" });
  world.storage.setItem("theme", "dark");
  await world.send(`${URL_OF_ORDERS}?q=1`, post("1"), { intent: "first" });
  world.now += 5;
  await world.send(URL_OF_ORDERS, post("2"), { intent: "second" });
  assert.deepEqual(world.page().pending(), [
    { intent: "first", key: "k", since: START, method: "POST", url: URL_OF_ORDERS },
    { intent: "second", key: "k", since: START + 5, method: "POST", url: URL_OF_ORDERS },
  ]);
});

test("forget starts over: the next call takes a new key", async () => {
  const world = newWorld({ answers: [answer(401)] });
  await world.send(URL_OF_ORDERS, post("1"), { intent: "i" });
  assert.equal(world.send.forget("i"), true);
  assert.equal(world.send.forget("i"), false);
  await world.send(URL_OF_ORDERS, post("2"), { intent: "i" });
  assert.notEqual(world.keys()[0], world.keys()[1]);
});

test("two prefixes do not see each other", async () => {
  const world = newWorld({ answers: [answer(401)] });
  await world.page({ prefix: "ann:" })(URL_OF_ORDERS, post(), { intent: "i" });
  await world.page({ prefix: "bob:" })(URL_OF_ORDERS, post(), { intent: "i" });
  assert.notEqual(world.keys()[0], world.keys()[1]);
  assert.equal(world.page({ prefix: "bob:" }).pending().length, 1);
});
