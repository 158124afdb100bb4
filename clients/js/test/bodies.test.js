import assert from "node:assert/strict";

import { test } from "../support/bounded.js";
import { answer, newWorld, offline, post, URL_OF_ORDERS } from "../support/world.js";

const bytes = (...values) => Uint8Array.from(values);
const form = (...entries) => {
  const made = new FormData();
  for (const entry of entries) made.append(...entry);
  return made;
};

for (const [name, make, type] of [
  ["a string", () => "abc", /^text\/plain/],
  ["URLSearchParams", () => new URLSearchParams({ a: "b c" }), /^application\/x-www-form-urlencoded/],
  ["a Blob", () => new Blob(["abc"], { type: "image/png" }), /^image\/png$/],
  ["an ArrayBuffer", () => bytes(0, 255).buffer, null],
  ["a view", () => bytes(0, 255), null],
  ["FormData", () => form(["a", "1"], ["f", new Blob(["x"]), "x.txt"]), /^multipart\/form-data; boundary=/],
  ["nothing", () => undefined, null],
]) {
  test(`${name} is sent whole, and the same again on a retry`, async () => {
    const world = newWorld({ answers: [offline(), answer(201)] });
    await world.send(URL_OF_ORDERS, { method: "POST", body: make() });
    const sent = await Promise.all(world.requests.map(({ request }) => request.text()));
    assert.equal(sent[0], sent[1]);
    const types = world.requests.map(({ headers }) => headers.get("Content-Type"));
    assert.equal(types[0], types[1]);
    if (type) assert.match(types[0], type);
    else assert.equal(types[0], null);
    if (make() !== undefined) assert.ok(sent[0].length > 0);
  });

  test(`${name} made anew after a refresh finds its key`, async () => {
    const world = newWorld({ answers: [answer(401)] });
    await world.send(URL_OF_ORDERS, { method: "POST", body: make() });
    await world.page()(URL_OF_ORDERS, { method: "POST", body: make() });
    assert.equal(world.keys()[0], world.keys()[1]);
  });
}

for (const [what, one, other] of [
  ["a value", form(["a", "1"]), form(["a", "2"])],
  ["the order", form(["a", "1"], ["b", "2"]), form(["b", "2"], ["a", "1"])],
  ["where a name ends", form(["a", "b1"]), form(["ab", "1"])],
  ["the bytes of a file", form(["f", new Blob(["x"]), "x"]), form(["f", new Blob(["y"]), "x"])],
  ["the name of a file", form(["f", new Blob(["x"]), "x"]), form(["f", new Blob(["x"]), "y"])],
]) {
  test(`forms that differ in ${what} are two requests`, async () => {
    const world = newWorld({ answers: [answer(401)] });
    for (const body of [one, other]) await world.send(URL_OF_ORDERS, { method: "POST", body });
    assert.notEqual(world.keys()[0], world.keys()[1]);
  });
}

test("a body that is changed after the call is sent as it was", async () => {
  const body = bytes(1, 2, 3);
  const world = newWorld({ answers: [() => (body.fill(9), Promise.reject(offline())), answer(201)] });
  await world.send(URL_OF_ORDERS, { method: "POST", body });
  const sent = await world.requests[1].request.arrayBuffer();
  assert.deepEqual([...new Uint8Array(sent)], [1, 2, 3]);
});

test("a stream is refused before anything is sent", async () => {
  const world = newWorld();
  const body = new Blob(["abc"]).stream();
  const sent = world.send(URL_OF_ORDERS, { method: "POST", body, duplex: "half" });
  await assert.rejects(sent, { name: "TypeError", message: /stream cannot be sent again.*nothing was sent/ });
  assert.equal(world.requests.length, 0);
  assert.equal(world.send.pending().length, 0);
});

test("what fetch would refuse is refused at once, and not taken for the network", async () => {
  const world = newWorld();
  await assert.rejects(world.send("http://", post()), TypeError);
  await assert.rejects(world.send(URL_OF_ORDERS, post("1", { headers: { "bad header": "1" } })), TypeError);
  assert.equal(world.requests.length, 0);
  assert.equal(world.send.pending().length, 0);
});

test("a request that can carry no key is refused", async () => {
  const world = newWorld();
  await assert.rejects(world.send(URL_OF_ORDERS, { method: "POST", mode: "no-cors" }), { message: /no-cors.*nothing was sent/ });
  assert.equal(world.requests.length, 0);
});

test("a Request object works, is retried whole, and keeps its settings", async () => {
  const world = newWorld({ answers: [offline(), answer(201)] });
  const request = new Request(URL_OF_ORDERS, post("abc", { credentials: "include", redirect: "manual" }));
  assert.equal((await world.send(request)).status, 201);
  for (const { request: sent } of world.requests) {
    assert.equal(await sent.text(), "abc");
    assert.equal(sent.headers.get("Content-Type"), "application/json");
    assert.deepEqual([sent.method, sent.credentials, sent.redirect], ["POST", "include", "manual"]);
  }
  assert.equal(world.keys()[0], world.keys()[1]);
});

test("a Request object and the same in words are one request", async () => {
  const world = newWorld({ answers: [answer(401)] });
  await world.send(new Request(URL_OF_ORDERS, post("abc")));
  await world.send(new URL(URL_OF_ORDERS), post("abc"));
  assert.equal(world.keys()[0], world.keys()[1]);
});

test("a Request object with a form finds its key though the boundary is another", async () => {
  const world = newWorld({ answers: [answer(401)] });
  for (let call = 0; call < 2; call++) {
    await world.send(new Request(URL_OF_ORDERS, { method: "POST", body: form(["a", "1"]) }));
  }
  assert.equal(world.keys()[0], world.keys()[1]);
});

test("the signal of a Request object aborts", async () => {
  const world = newWorld();
  await assert.rejects(world.send(new Request(URL_OF_ORDERS, post("1", { signal: AbortSignal.abort() }))), { name: "AbortError" });
  assert.equal(world.requests.length, 0);
});

test("other members of init reach fetch", async () => {
  const world = newWorld();
  await world.send(URL_OF_ORDERS, post("1", { credentials: "include", keepalive: true }));
  assert.equal(world.requests[0].init.credentials, "include");
  assert.equal(world.requests[0].init.keepalive, true);
});
