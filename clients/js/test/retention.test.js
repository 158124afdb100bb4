import assert from "node:assert/strict";

import { fits } from "../src/retention.js";
import { test } from "../support/bounded.js";
import { answer, deferred, newWorld, offline, post, problem, START, URL_OF_ORDERS } from "../support/world.js";

const HOUR = 3_600_000;
const POLICY = "https://shop.example/.well-known/idempotency-policy";
const intent = "i";

/** A service whose orders answer 401, so that keys are kept, and that describes its routes. */
function described(routes, options = {}) {
  const document = routes instanceof Error ? routes : JSON.stringify({ version: 1, routes });
  const one = ({ url }) => {
    if (url !== POLICY) return answer(401)();
    if (document instanceof Error) throw document;
    return answer(200, { "Content-Type": "application/json" }, document)();
  };
  const world = newWorld({ answers: [one], ...options });
  world.asked = () => world.requests.filter(({ url }) => url === POLICY).length;
  world.sent = () => world.requests.length - world.asked();
  world.go = () => world.send(URL_OF_ORDERS, post(), { intent });
  return world;
}

const orders = (retentionSeconds) => [{ path: "/orders", methods: ["POST"], header: "Idempotency-Key", retentionSeconds }];

test("a key older than the retention is not sent: start over", async () => {
  const world = described([], { retention: 3600, newKey: () => "k-1" });
  await world.go();
  world.now += HOUR;
  await assert.rejects(world.go(), {
    name: "StartOver",
    code: "start-over",
    intent,
    key: "k-1",
    since: START,
    message: /first try may have run.*forget\(intent\)/,
  });
  assert.equal(world.sent(), 1);
  assert.equal(world.kept(), "status 401");
  assert.equal(world.send.pending().length, 1);
});

test("a key within the margin before the end of the retention is not sent", async () => {
  const world = described([], { retention: 3600 });
  await world.go();
  world.now += HOUR - 300_000 - 1;
  await world.go();
  world.now += 1;
  await assert.rejects(world.go(), { name: "StartOver" });
  assert.equal(world.sent(), 2);
});

test("after forget a key that was too old is replaced by a new one", async () => {
  const world = described([], { retention: 3600 });
  await world.go();
  world.now += 2 * HOUR;
  await assert.rejects(world.go(), { name: "StartOver" });
  world.send.forget(intent);
  assert.equal((await world.go()).status, 401);
  assert.notEqual(world.keys()[0], world.keys()[1]);
});

test("a retry that would come after the retention is not sent", async () => {
  const world = newWorld({ answers: [answer(503, { "Retry-After": "10" })], retention: 10 });
  await assert.rejects(world.send(URL_OF_ORDERS, post()), { name: "StartOver" });
  assert.equal(world.requests.length, 1);
});

test("a key younger than a minute is sent again without asking for the policy", async () => {
  const world = described(orders(90));
  await world.go();
  world.now += 59_999;
  await world.go();
  assert.equal(world.asked(), 0);
  assert.equal(world.sent(), 2);
});

test("the retention of the service's policy document counts", async () => {
  const world = described(orders(7200));
  await world.go();
  world.now += HOUR;
  await world.go();
  world.now += HOUR;
  await assert.rejects(world.go(), { name: "StartOver" });
  assert.equal(world.sent(), 2);
});

test("the policy document is asked for without a key", async () => {
  const world = described(orders(7200));
  await world.go();
  world.now += HOUR;
  await world.go();
  const asked = world.requests.find(({ url }) => url === POLICY);
  assert.deepEqual([asked.method, asked.key], ["GET", null]);
});

test("the policy document is cached", async () => {
  const world = described(orders(7200));
  await world.go();
  world.now += HOUR;
  for (let call = 0; call < 3; call++) await world.go();
  assert.equal(world.asked(), 1);
  world.now += 300_000;
  await world.go();
  assert.equal(world.asked(), 2);
});

for (const [what, routes] of [
  ["cannot be had", offline()],
  ["does not name the route", [{ path: "/rooms", methods: ["POST"], retentionSeconds: 60 }]],
  ["names another method", [{ path: "/orders", methods: ["PATCH"], retentionSeconds: 60 }]],
  ["is nonsense", [null, { path: "/orders" }]],
]) {
  test(`when the policy document ${what}, a day is assumed`, async () => {
    const world = described(routes);
    await world.go();
    world.now += 23 * HOUR;
    await world.go();
    world.now += HOUR;
    await assert.rejects(world.go(), { name: "StartOver" });
    assert.equal(world.sent(), 2);
  });
}

test("a key from the future has no known age: start over", async () => {
  const world = described([]);
  await world.go();
  world.now -= HOUR;
  await assert.rejects(world.go(), { name: "StartOver" });
});

test("when the service says that the key is too old: start over, and the key is kept", async () => {
  const world = newWorld({ answers: [problem(412, "urn:semel:problem:key-expired")] });
  await assert.rejects(world.send(URL_OF_ORDERS, post()), { name: "StartOver" });
  assert.equal(world.send.pending().length, 1);
});

for (const [pattern, path, expected] of [
  ["/reservations/*/pay", "/reservations/R001/pay", true],
  ["/reservations/*/pay", "/reservations/R001/x/pay", false],
  ["/reservations/*/pay", "/reservations//pay", false],
  ["/orders", "/orders/", true],
  ["/orders/", "/orders", true],
  ["/orders", "//orders", true],
  ["/orders", "/ordersX", false],
  ["/a.b", "/axb", false],
  ["/**", "/", true],
  ["/**", "/any/thing", true],
  ["/api/**", "/api/a/b", true],
  ["/api/**", "/app", false],
  ["/", "/", true],
  ["/caf\u00e9", "/caf%C3%A9", true],
  ["/x", "/%", false],
]) {
  test(`the route ${pattern} ${expected ? "fits" : "does not fit"} ${path}`, () => {
    assert.equal(fits(pattern, path), expected);
  });
}

test("a call after an abort does not join what is still being put away", async () => {
  const [asked, policy] = [deferred(), deferred()];
  const one = ({ url }) => (url === POLICY ? (asked.resolve(), policy.promise) : answer(401)());
  // The next call has been read when its digest is there: what follows is done before the policy arrives.
  const read = deferred();
  let calls = 0;
  const digest = async (...given) => {
    const done = await crypto.subtle.digest(...given);
    if (++calls === 3) setImmediate(read.resolve);
    return done;
  };
  const world = newWorld({ answers: [one], subtle: { digest } });
  const go = (more) => world.send(URL_OF_ORDERS, post("1", more), { intent });
  await go();
  world.now += HOUR;
  const controller = new AbortController();
  const left = go({ signal: controller.signal });
  await asked.promise;
  controller.abort();
  await assert.rejects(left, { name: "AbortError" });
  const again = go();
  await read.promise;
  policy.resolve(answer(404)());
  assert.equal((await again).status, 401);
});
