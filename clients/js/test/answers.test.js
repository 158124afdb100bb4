/** The table of answers that all clients share: how a call ends, alone and behind another try with the same key. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { test } from "../support/bounded.js";
import { answer, newWorld, offline, post, URL_OF_ORDERS } from "../support/world.js";

const { answers } = JSON.parse(readFileSync(new URL("../../answers.json", import.meta.url), "utf8"));
const names = Object.keys(answers);
const UNSETTLED = names.filter((name) => ["nothing ran", "open"].includes(answers[name].ends));
const REFUSAL = answer(422);

/** What the service does for a name of the table. */
function turn(name) {
  const { status, headers = {}, problem } = answers[name];
  if (status === undefined) return offline();
  if (problem === undefined) return answer(status, headers);
  return answer(status, { "Content-Type": "application/problem+json", ...headers }, JSON.stringify({ type: problem }));
}

/** How a call ends whose last try is answered so. `certain`: whether no try before it may have run. */
function expected(name, certain) {
  const { ends } = answers[name];
  if (ends === "settled" || ends === "recorded") return "settled";
  if (ends === "refused") return certain ? "settled" : "open";
  return certain ? ends : "open";
}

const go = (send) => send(URL_OF_ORDERS, post(), { intent: "i" }).catch((error) => assert.equal(error.name, "Unfinished"));

/** What this client knows of the key: a refusal that comes next is definite only where nothing ran so far. */
async function known(world) {
  if (world.send.pending().length === 0) return "settled";
  world.answers.push(REFUSAL);
  await go(world.page({ tries: 1 }));
  return world.send.pending().length === 0 ? "nothing ran" : "open";
}

const worldOf = (turns, options) => {
  const world = newWorld({ answers: turns, ...options });
  world.answers = turns;
  return world;
};

test("the table was read", () => {
  assert.ok(names.length > 30 && UNSETTLED.length > 15);
});

for (const name of names) {
  test(`${name} alone: ${answers[name].ends}`, async () => {
    const world = worldOf([turn(name)], { tries: 1 });
    await go(world.send);
    assert.equal(await known(world), expected(name, true));
  });

  test(`${name} is ${answers[name].again ? "" : "not "}asked for again in the same call`, async () => {
    const world = newWorld({ answers: [turn(name), answer(201)] });
    await go(world.send);
    assert.equal(world.requests.length, answers[name].again ? 2 : 1);
    assert.equal(new Set(world.keys()).size, 1);
  });
}

for (const first of UNSETTLED) {
  const certain = answers[first].ends === "nothing ran";
  test(`behind ${first} in a call before, every answer ends as the table says`, async () => {
    for (const last of names) {
      const world = worldOf([turn(first), turn(last)], { tries: 1 });
      await go(world.send);
      await go(world.page());
      assert.equal(await known(world), expected(last, certain), `${first}, then ${last}`);
    }
  });

  if (!answers[first].again) continue;
  test(`behind ${first} in the same call, every answer ends as the table says`, async () => {
    for (const last of names) {
      const world = worldOf([turn(first), turn(last)], { tries: 2 });
      await go(world.send);
      assert.equal(await known(world), expected(last, certain), `${first}, then ${last}`);
    }
  });
}

test("one try that may have run keeps the key, whatever comes behind it", async () => {
  const behind = UNSETTLED.filter((name) => answers[name].ends === "nothing ran");
  for (const first of UNSETTLED.filter((name) => answers[name].ends === "open"))
    for (const second of behind) {
      const world = worldOf([turn(first), turn(second)], { tries: 1 });
      for (let call = 0; call < 2; call++) await go(world.page());
      assert.equal(await known(world), "open", `${first}, then ${second}, then a refusal`);
    }
});
