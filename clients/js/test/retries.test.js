import assert from "node:assert/strict";

import { Unfinished } from "../src/once.js";
import { test } from "../support/bounded.js";
import { answer, newWorld, offline, post, problem, START, URL_OF_ORDERS } from "../support/world.js";

const RUNNING = "urn:semel:problem:in-progress";
const go = (world, how) => world.send(URL_OF_ORDERS, post(), { intent: "i", ...how });
const isKept = (world) => world.send.pending().length === 1;

for (const status of [200, 201, 204, 301, 303, 400, 402, 404, 405, 410, 412, 413, 415, 418, 422, 428, 451]) {
  test(`${status} is definite: sent once, given back, the key let go`, async () => {
    const world = newWorld({ answers: [answer(status)] });
    assert.equal((await go(world)).status, status);
    assert.equal(world.requests.length, 1);
    assert.ok(!isKept(world));
    assert.equal(world.types().at(-1), "settled");
  });
}

for (const status of [401, 403, 407, 501, 505]) {
  test(`${status} is given back at once, and the key is kept`, async () => {
    const world = newWorld({ answers: [answer(status)] });
    assert.equal((await go(world)).status, status);
    assert.equal(world.requests.length, 1);
    assert.ok(isKept(world));
    assert.equal(world.kept(), `status ${status}`);
  });
}

for (const status of [408, 409, 425, 429, 500, 502, 503, 504, 507, 599]) {
  test(`${status} is retried with the same key`, async () => {
    const world = newWorld({ answers: [answer(status), answer(201)] });
    assert.equal((await go(world)).status, 201);
    assert.equal(world.requests.length, 2);
    assert.equal(new Set(world.keys()).size, 1);
    assert.ok(!isKept(world));
  });
}

test("a network error is retried with the same key", async () => {
  const world = newWorld({ answers: [offline(), offline(), answer(201)] });
  assert.equal((await go(world)).status, 201);
  assert.equal(new Set(world.keys()).size, 1);
});

test("an error of fetch that is not the network's is thrown as it is, and the key is kept", async () => {
  const world = newWorld({ answers: [new RangeError("a bug")] });
  await assert.rejects(go(world), { name: "RangeError", message: "a bug" });
  assert.equal(world.requests.length, 1);
  assert.ok(isKept(world));
});

test("409 with a problem of its own and no Retry-After is given back at once, and the key is kept", async () => {
  const world = newWorld({ answers: [problem(409, "https://hotel.example/problems/wrong-state")] });
  const response = await go(world);
  assert.equal((await response.json()).type, "https://hotel.example/problems/wrong-state");
  assert.equal(world.requests.length, 1);
  assert.ok(isKept(world));
});

for (const [what, first] of [
  ["a problem of its own and Retry-After", problem(409, "urn:x:busy", { "Retry-After": "1" })],
  ["a problem without a type", problem(409, "about:blank")],
  ["semel's problem in-progress", problem(409, RUNNING)],
  ["a body that is no JSON", answer(409, { "Content-Type": "application/problem+json" }, "{")],
]) {
  test(`409 with ${what} is retried`, async () => {
    const world = newWorld({ answers: [first, answer(201)] });
    assert.equal((await go(world)).status, 201);
  });
}

for (const status of [409, 500]) {
  test(`a replayed ${status} is a stored outcome, and definite`, async () => {
    const world = newWorld({ answers: [answer(status, { "Idempotency-Replayed": "true" })] });
    assert.equal((await go(world)).status, status);
    assert.ok(!isKept(world));
    assert.deepEqual(world.types(), ["sending", "replayed", "settled"]);
  });
}

test("a failure that the service calls final is definite", async () => {
  const world = newWorld({ answers: [problem(500, "urn:semel:problem:failed-before")] });
  assert.equal((await go(world)).status, 500);
  assert.equal(world.requests.length, 1);
  assert.ok(!isKept(world));
});

for (const [said, verdict] of [["settled", false], ["kept", true]]) {
  test(`the caller's verdict "${said}" counts before the table`, async () => {
    const world = newWorld({ answers: [answer(503)], verdict: ({ status }) => (status === 503 ? said : undefined) });
    assert.equal((await go(world)).status, 503);
    assert.equal(world.requests.length, 1);
    assert.equal(isKept(world), verdict);
  });
}

test("Retry-After in seconds is honoured, with a little jitter on top", async () => {
  const world = newWorld({ answers: [answer(503, { "Retry-After": "7" }), answer(201)] });
  await go(world);
  assert.deepEqual(world.pauses, [7150]);
});

test("Retry-After as a date is honoured by our clock", async () => {
  const until = new Date(START + 9000).toUTCString();
  const world = newWorld({ answers: [answer(429, { "Retry-After": until }), answer(201)], random: () => 0 });
  await go(world);
  assert.deepEqual(world.pauses, [9000]);
});

test("Retry-After as a date is honoured by the service's clock where it is shown", async () => {
  const headers = { "Retry-After": new Date(START + 909_000).toUTCString(), Date: new Date(START + 900_000).toUTCString() };
  const world = newWorld({ answers: [answer(429, headers), answer(201)], random: () => 0 });
  await go(world);
  assert.deepEqual(world.pauses, [9000]);
});

for (const value of ["soon", "-5"]) {
  test(`Retry-After: ${value} is never less than no wait`, async () => {
    const world = newWorld({ answers: [answer(503, { "Retry-After": value }), answer(201)] });
    await go(world);
    assert.ok(world.pauses[0] >= 0 && world.pauses[0] <= 300);
  });
}

test("without a signal the waits grow, with full jitter, up to a bound", async () => {
  const world = newWorld({ answers: [offline()], giveUpAfter: 1e9, random: () => 0.999999 });
  await assert.rejects(go(world), Unfinished);
  assert.deepEqual(world.pauses, [300, 600, 1200, 2400, 4800, 9600, 10_000]);
});

test("full jitter begins at nothing", async () => {
  const world = newWorld({ answers: [offline(), answer(201)], random: () => 0 });
  await go(world);
  assert.deepEqual(world.pauses, [0]);
});

test("after the last try the last answer is given back, and the key is kept", async () => {
  const world = newWorld({ answers: [offline(), answer(503, {}, "busy")], tries: 3 });
  const response = await go(world);
  assert.equal(response.status, 503);
  assert.equal(await response.text(), "busy");
  assert.equal(world.requests.length, 3);
  assert.equal(world.kept(), "tries");
  assert.ok(isKept(world));
});

test("after the last try without an answer Unfinished is thrown with the cause, and the key is kept", async () => {
  const world = newWorld({ answers: [offline()], tries: 2, newKey: () => "k-1" });
  const failed = await go(world).catch((error) => error);
  assert.ok(failed instanceof Unfinished);
  assert.equal(failed.cause.message, "fetch failed");
  assert.deepEqual([failed.intent, failed.key, failed.tries], ["i", "k-1", 2]);
  assert.match(failed.message, /may have run/);
  assert.ok(isKept(world));
});

test("a wait beyond the bound of time is not begun", async () => {
  const world = newWorld({ answers: [answer(503, { "Retry-After": "120" })], giveUpAfter: 60_000 });
  assert.equal((await go(world)).status, 503);
  assert.deepEqual(world.pauses, []);
  assert.equal(world.kept(), "time");
});

test("a try that gets no answer in time is retried", async () => {
  const rang = AbortSignal.abort(new DOMException("late", "TimeoutError"));
  const alarms = [];
  const alarm = (milliseconds) => {
    const signal = alarms.push(milliseconds) === 1 ? rang : new AbortController().signal;
    return { signal, cancel() {} };
  };
  const never = (_, signal) => new Promise((_, reject) => (signal.aborted ? reject(signal.reason) : undefined));
  const world = newWorld({ answers: [never, answer(201)], alarm });
  assert.equal((await go(world)).status, 201);
  assert.deepEqual(alarms, [30_000, 30_000]);
  assert.equal(world.events.find(({ type }) => type === "waiting").why, "no answer in time");
});

test("no try waits beyond the bound of time of the call", async () => {
  const alarms = [];
  const alarm = (milliseconds) => (alarms.push(milliseconds), { signal: new AbortController().signal, cancel() {} });
  const world = newWorld({ answers: [answer(503, { "Retry-After": "40" }), answer(201)], alarm, random: () => 0 });
  await go(world);
  assert.deepEqual(alarms, [30_000, 20_000]);
});

test("the budget bounds the retries of all calls together", async () => {
  const world = newWorld({ answers: [answer(503)], budget: { retries: 3, perSeconds: 1e9 } });
  for (const intent of ["a", "b", "c"]) assert.equal((await go(world, { intent })).status, 503);
  assert.equal(world.requests.length, 3 + 3);
  assert.equal(world.events.at(-1).why, "budget");
});

test("the budget fills up again with time", async () => {
  const world = newWorld({ answers: [answer(503)], tries: 2, random: () => 0, budget: { retries: 1, perSeconds: 10 } });
  await go(world);
  await go(world);
  assert.equal(world.requests.length, 3);
  world.now += 10_000;
  await go(world);
  assert.equal(world.requests.length, 5);
});

test("a first try costs nothing of the budget", async () => {
  const world = newWorld({ budget: { retries: 0, perSeconds: 60 } });
  for (let call = 0; call < 5; call++) assert.equal((await go(world)).status, 201);
});

test("the events tell what a page wants to show", async () => {
  const world = newWorld({ answers: [offline(), answer(409), answer(201)], newKey: () => "k-1" });
  await world.send(`${URL_OF_ORDERS}?q`, post(), { intent: "i" });
  const about = { intent: "i", key: "k-1", method: "POST", url: URL_OF_ORDERS };
  assert.deepEqual(world.events, [
    { type: "sending", ...about, attempt: 1 },
    { type: "waiting", ...about, milliseconds: 150, why: "network", attempt: 1 },
    { type: "sending", ...about, attempt: 2 },
    { type: "waiting", ...about, milliseconds: 300, why: "status 409", attempt: 2 },
    { type: "sending", ...about, attempt: 3 },
    { type: "settled", ...about, status: 201 },
  ]);
});

test("an observer that throws changes nothing", async (t) => {
  const said = t.mock.method(console, "error", () => {});
  const observe = () => {
    throw new Error("a bug of the page");
  };
  const world = newWorld({ observe });
  assert.equal((await go(world)).status, 201);
  assert.ok(said.mock.callCount() > 0);
});
