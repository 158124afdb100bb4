/** Against a real server and the real fetch: connections that are cut, answers that are cut, replays, redirects. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, beforeEach } from "node:test";

import { once, Unfinished } from "../src/once.js";
import { test } from "../support/bounded.js";
import { MemoryStorage, post } from "../support/world.js";

/** What the service does with each request in turn; the last for ever. */
let script = [];
let seen = [];
/** Outcomes by key: the service runs a key once. */
let outcomes = new Map();
let base = "";

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const step = script[Math.min(seen.length, script.length - 1)];
  const got = { method: request.method, url: request.url, key: request.headers["idempotency-key"], body: Buffer.concat(chunks).toString() };
  seen.push({ ...got, type: request.headers["content-type"] });
  step(response, got);
});

before(async () => {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  base = `http://127.0.0.1:${server.address().port}`;
});

after(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

beforeEach(() => {
  [script, seen, outcomes] = [[], [], new Map()];
});

const page = (options = {}) => once(fetch, { storage: new MemoryStorage(), sleep: async () => {}, ...options });

/** Run a key once, and replay its outcome afterwards. */
function run(response, { key, body }) {
  const replayed = outcomes.has(key);
  if (!replayed) outcomes.set(key, JSON.stringify({ number: outcomes.size + 1, body }));
  const headers = { "Content-Type": "application/json", ...(replayed && { "Idempotency-Replayed": "true" }) };
  response.writeHead(201, headers).end(outcomes.get(key));
}

const runAndCut = (response, got) => {
  run({ writeHead: () => ({ end() {} }) }, got);
  response.destroy();
};

const runAndCutInTheMiddle = (response, got) => {
  run({ writeHead: () => ({ end() {} }) }, got);
  response.writeHead(201, { "Content-Length": "100" });
  response.write("half", () => response.destroy());
};

test("a request reaches the service whole, with its key in quotes", async () => {
  script = [run];
  const response = await page()(`${base}/orders`, post('{"room":1}'));
  assert.deepEqual(await response.json(), { number: 1, body: '{"room":1}' });
  assert.match(seen[0].key, /^"[0-9a-f-]{36}"$/);
});

test("a connection cut after the service committed ends in a replay, and one outcome", async () => {
  script = [runAndCut, run];
  const types = [];
  const response = await page({ observe: ({ type }) => types.push(type) })(`${base}/orders`, post());
  assert.equal((await response.json()).number, 1);
  assert.equal(seen[0].key, seen[1].key);
  assert.equal(outcomes.size, 1);
  assert.ok(types.includes("replayed"));
});

test("an answer cut in the middle is a network error, and is asked for again", async () => {
  script = [runAndCutInTheMiddle, run];
  const reasons = [];
  const observe = ({ type, why }) => type === "waiting" && reasons.push(why);
  const response = await page({ observe })(`${base}/orders`, post());
  assert.equal((await response.json()).number, 1);
  assert.deepEqual(reasons, ["answer cut off"]);
  assert.equal(outcomes.size, 1);
});

test("a chunked answer cut in the middle is asked for again", async () => {
  const cut = (response) => {
    response.writeHead(200);
    response.write("half", () => response.destroy());
  };
  script = [cut, run];
  assert.equal((await page()(`${base}/orders`, post())).status, 201);
});

test("a page that gives up and is loaded again gets the first outcome", async () => {
  script = [runAndCut, runAndCut, run];
  const storage = new MemoryStorage();
  await assert.rejects(page({ storage, tries: 2 })(`${base}/orders`, post()), Unfinished);
  const response = await page({ storage })(`${base}/orders`, post());
  assert.equal(response.headers.get("Idempotency-Replayed"), "true");
  assert.equal(outcomes.size, 1);
});

test("nobody there is Unfinished, and the key is kept", async () => {
  const gone = createServer();
  await new Promise((resolve) => gone.listen(0, "127.0.0.1", resolve));
  const { port } = gone.address();
  await new Promise((resolve) => gone.close(resolve));
  const send = page({ tries: 2 });
  await assert.rejects(send(`http://127.0.0.1:${port}/`, post()), Unfinished);
  assert.equal(send.pending().length, 1);
});

test("the rebuilt Response has status, text, headers, url and body of the received one", async () => {
  script = [(response) => response.writeHead(422, "Not So", { "X-Why": "dates" }).end("no")];
  const response = await page()(`${base}/orders?a=1`, post());
  const { status, statusText, ok, url, redirected } = response;
  assert.deepEqual({ status, statusText, ok, url, redirected }, { status: 422, statusText: "Not So", ok: false, url: `${base}/orders?a=1`, redirected: false });
  assert.equal(response.headers.get("X-Why"), "dates");
  assert.equal(await response.text(), "no");
});

test("a redirect is followed, and the Response says so", async () => {
  const see = (response) => response.writeHead(303, { Location: "/orders/1" }).end();
  script = [see, (response) => response.end("order 1")];
  const response = await page()(`${base}/orders`, post());
  assert.deepEqual([response.redirected, response.url, await response.text()], [true, `${base}/orders/1`, "order 1"]);
});

test("204 has no body", async () => {
  script = [(response) => response.writeHead(204).end()];
  const response = await page()(`${base}/orders`, post());
  assert.deepEqual([response.status, response.body], [204, null]);
});

test("an abort of the caller ends the connection and keeps the key", async () => {
  const controller = new AbortController();
  let closed;
  const ended = new Promise((resolve) => (closed = resolve));
  const hold = (response) => {
    response.on("close", closed);
    controller.abort();
  };
  script = [hold];
  const send = page();
  await assert.rejects(send(`${base}/orders`, post("1", { signal: controller.signal })), { name: "AbortError" });
  await ended;
  assert.equal(seen.length, 1);
  assert.equal(send.pending().length, 1);
});

test("an answer that does not come in time is asked for again", async () => {
  const late = new AbortController();
  const signals = [late.signal];
  const alarm = () => ({ signal: signals.shift() ?? new AbortController().signal, cancel() {} });
  script = [() => late.abort(), run];
  assert.equal((await page({ alarm })(`${base}/orders`, post())).status, 201);
  assert.equal(seen[0].key, seen[1].key);
});

test("a form with a file arrives, and arrives again", async () => {
  script = [(response) => response.destroy(), run];
  const body = new FormData();
  body.append("name", "Ann");
  body.append("photo", new Blob(["pixels"]), "a.png");
  await page()(`${base}/orders`, { method: "POST", body });
  assert.equal(seen[0].body, seen[1].body);
  assert.match(seen[0].body, /pixels/);
  assert.ok(seen[0].body.includes(seen[0].type.split("boundary=")[1]));
});

test("a Request object arrives, and arrives again", async () => {
  script = [(response) => response.destroy(), run];
  await page()(new Request(`${base}/orders`, post("abc")));
  assert.deepEqual(seen.map(({ body }) => body), ["abc", "abc"]);
  assert.equal(seen[0].key, seen[1].key);
});

test("GET goes to the service without a key", async () => {
  script = [(response) => response.end("rooms")];
  assert.equal(await (await page()(`${base}/rooms`)).text(), "rooms");
  assert.equal(seen[0].key, undefined);
});

test("the real waiting ends when the caller aborts", async () => {
  const controller = new AbortController();
  script = [(response) => response.writeHead(503, { "Retry-After": "30" }).end()];
  const observe = ({ type }) => type === "waiting" && queueMicrotask(() => controller.abort());
  const send = once(fetch, { storage: new MemoryStorage(), observe });
  await assert.rejects(send(`${base}/orders`, post("1", { signal: controller.signal })), { name: "AbortError" });
  assert.equal(send.pending().length, 1);
});
