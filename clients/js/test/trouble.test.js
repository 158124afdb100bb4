/** What goes wrong around a call: frozen pages, foreign data, storage that fills up, options that cannot be. */

import assert from "node:assert/strict";

import { alarm } from "../src/waiting.js";
import { test } from "../support/bounded.js";
import { answer, MemoryStorage, newLocks, newWorld, offline, post, URL_OF_ORDERS } from "../support/world.js";

const POLICY = "/.well-known/idempotency-policy";
const HOUR = 3_600_000;

/** Puts a global in place for as long as a test runs. */
async function withGlobal(name, value, use) {
  const before = Object.getOwnPropertyDescriptor(globalThis, name);
  Object.defineProperty(globalThis, name, { value, configurable: true });
  try {
    return await use();
  } finally {
    if (before) Object.defineProperty(globalThis, name, before);
    else delete globalThis[name];
  }
}

test("a page that was frozen beyond the bound of time sends no try that has no time left", async () => {
  const world = newWorld({ answers: [answer(503)], sleep: async () => void (world.now += HOUR) });
  assert.equal((await world.send(URL_OF_ORDERS, post())).status, 503);
  assert.equal(world.requests.length, 1);
  assert.equal(world.kept(), "time");
});

test("a bound of time beyond what a timer can hold does not ring at once", (t) => {
  const set = t.mock.method(globalThis, "setTimeout", () => 0);
  alarm(Infinity);
  assert.equal(set.mock.calls[0].arguments[1], 2 ** 31 - 1);
});

test("a retry goes where the first try went, though the caller's URL was changed", async () => {
  const url = new URL(URL_OF_ORDERS);
  const world = newWorld({ answers: [() => ((url.pathname = "/other"), Promise.reject(offline())), answer(201)] });
  await world.send(url, post());
  assert.deepEqual(world.requests.map((request) => request.url), [URL_OF_ORDERS, URL_OF_ORDERS]);
});

test("a clone of a Response has its address too", async () => {
  const received = Object.defineProperties(new Response("1"), { url: { value: "https://a/b" }, redirected: { value: true } });
  const world = newWorld({ answers: [() => received] });
  const clone = (await world.send(URL_OF_ORDERS, post())).clone().clone();
  assert.deepEqual([clone.url, clone.redirected, await clone.text()], ["https://a/b", true, "1"]);
});

for (const entry of [
  { key: "a\nb", fingerprint: "f", since: 1 },
  { key: "\u043a", fingerprint: "f", since: 1 },
  { key: "", fingerprint: "f", since: 1 },
  { key: "k", fingerprint: "f", since: 1, method: {}, url: [] },
  ["key"],
]) {
  test(`${JSON.stringify(entry)} in storage is not an entry of ours`, async () => {
    const world = newWorld();
    world.storage.setItem("semel.once:i", JSON.stringify(entry));
    assert.deepEqual(world.send.pending(), []);
    assert.equal((await world.send(URL_OF_ORDERS, post(), { intent: "i" })).status, 201);
  });
}

test("an entry with the name of a prototype changes no object", async () => {
  const world = newWorld({ answers: [answer(401)] });
  world.storage.setItem("semel.once:x", '{"__proto__":{"polluted":1},"key":"k","fingerprint":"f","since":1}');
  await world.send(URL_OF_ORDERS, post(), { intent: "__proto__" });
  assert.equal({}.polluted, undefined);
  assert.equal(world.send.pending()[0].intent, "__proto__");
});

test("unfinished requests without a name do not fill the storage", async () => {
  const world = newWorld({ answers: [answer(401)] });
  for (let one = 0; one < 300; one++) {
    world.now += HOUR;
    await world.send(URL_OF_ORDERS, post(String(one)));
  }
  assert.ok(world.storage.length <= 101, String(world.storage.length));
  await world.send(URL_OF_ORDERS, post("299"));
  assert.equal(world.keys()[299], world.keys()[300]);
});

test("unfinished requests of the last hour, and those with a name, are all kept", async () => {
  const world = newWorld({ answers: [answer(401)] });
  await world.send(URL_OF_ORDERS, post("named"), { intent: "i" });
  world.now += 1000 * HOUR;
  for (let one = 0; one < 120; one++) await world.send(URL_OF_ORDERS, post(String(one)));
  assert.equal(world.send.pending().length, 121);
});

for (const verdict of [() => "settle", async () => "settled"]) {
  test(`the verdict of ${verdict} is refused, and the key is kept`, async () => {
    const world = newWorld({ verdict });
    await assert.rejects(world.send(URL_OF_ORDERS, post()), { name: "TypeError", message: /verdict.*may have run/ });
    assert.equal(world.requests.length, 1);
    assert.equal(world.send.pending().length, 1);
  });
}

test("an option named like a member of every object is refused", () => {
  assert.throws(() => newWorld({ constructor: 1 }), { name: "TypeError", message: /no option "constructor"/ });
});

test("localStorage given as an object has locks like \"shared\"", async () => {
  const [storage, locks] = [new MemoryStorage(), newLocks()];
  await withGlobal("localStorage", storage, () =>
    withGlobal("navigator", { locks }, async () => {
      const world = newWorld({ storage });
      await world.send(URL_OF_ORDERS, post(), { intent: "i" });
    }),
  );
  assert.equal(locks.names.length, 2);
});

test("without locks tabs that wrote at the same moment agree before anything is sent", async () => {
  const storage = new MemoryStorage();
  await withGlobal("localStorage", storage, () =>
    withGlobal("navigator", {}, async () => {
      const rival = (name) => storage.setItem(name, JSON.stringify({ ...JSON.parse(storage.getItem(name)), key: "rival" }));
      const sleep = async () => rival("semel.once:i"); // another process wrote last, and we hear of it later
      const world = newWorld({ storage, sleep });
      await world.page({ storage: "shared" })(URL_OF_ORDERS, post(), { intent: "i" });
      assert.deepEqual(world.keys(), ['"rival"']);
    }),
  );
});

test("a policy document that could not be had is asked for again, and the last one counts meanwhile", async () => {
  const document = JSON.stringify({ version: 1, routes: [{ path: "/orders", methods: ["POST"], retentionSeconds: 7200 }] });
  const policies = [answer(200, {}, document), offline(), answer(503)];
  const one = ({ url }) => {
    const next = url.endsWith(POLICY) ? policies.shift() : answer(401);
    if (next instanceof Error) throw next;
    return next();
  };
  const world = newWorld({ answers: [one] });
  const go = () => world.send(URL_OF_ORDERS, post(), { intent: "i" });
  await go();
  world.now += HOUR;
  await go();
  world.now += HOUR;
  for (let call = 0; call < 2; call++) await assert.rejects(go(), { name: "StartOver" });
  assert.equal(policies.length, 0);
});
