/** The package as a package: declarations in step with the code, no dependencies, short files. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";

import * as api from "../src/once.js";
import { settingsOf } from "../src/settings.js";
import { test } from "../support/bounded.js";

const read = (path) => readFileSync(new URL(`../${path}`, import.meta.url), "utf8");
const declarations = read("src/once.d.ts");
const manifest = JSON.parse(read("package.json"));

test("every export is declared, and every declared class and function is exported", () => {
  const declared = [...declarations.matchAll(/^export declare (?:function|class|const) (\w+)/gm)].map(([, name]) => name);
  assert.deepEqual(declared.sort(), Object.keys(api).sort());
});

test("every option is declared, and every declared option is known", () => {
  const [, body] = /export interface Options \{([^]*?)\n\}/.exec(declarations);
  const declared = [...body.matchAll(/^ {2}(\w+)\?:/gm)].map(([, name]) => name);
  assert.deepEqual(declared.sort(), Object.keys(settingsOf({})).sort());
});

test("every event and every error code that the code has is declared", () => {
  const source = readdirSync(new URL("../src/", import.meta.url)).filter((name) => name.endsWith(".js")).map((name) => read(`src/${name}`)).join("\n");
  const told = [...source.matchAll(/#?tell\((?:\{ type: )?"([\w-]+)"/g)].map(([, type]) => type);
  const declared = [...declarations.matchAll(/type: "([\w-]+)"/g)].map(([, type]) => type);
  assert.deepEqual([...new Set(told)].sort(), declared.sort());
  for (const [, code] of source.matchAll(/^ {2}code = "([\w-]+)"/gm)) assert.ok(declarations.includes(`code: "${code}"`), code);
});

test("what send offers is declared", () => {
  const [, body] = /export interface Send \{([^]*?)\n\}/.exec(declarations);
  const declared = [...body.matchAll(/^ {2}(\w+)\(/gm)].map(([, name]) => name);
  assert.deepEqual(declared.sort(), Object.keys(api.once(fetch)).sort());
});

test("the package has no dependencies and runs nothing when it is installed", () => {
  for (const name of ["dependencies", "devDependencies", "peerDependencies", "optionalDependencies"]) assert.ok(!(name in manifest));
  assert.deepEqual(Object.keys(manifest.scripts), ["test"]);
});

test("the exported files exist, and can be imported by the name of the package", async () => {
  for (const path of Object.values(manifest.exports["."])) assert.ok(read(path));
  assert.equal((await import("@semel/once")).once, api.once);
});

test("source files are short, open with their purpose, and import only each other", () => {
  for (const name of readdirSync(new URL("../src/", import.meta.url)).filter((name) => name.endsWith(".js"))) {
    const text = read(`src/${name}`);
    assert.ok(text.split("\n").length < 250, name);
    assert.ok(text.startsWith("/**\n * "), name);
    for (const [, from] of text.matchAll(/^(?:import|export) .* from "(.*)";$/gm)) assert.match(from, /^\.\/\w+\.js$/, name);
  }
});

test("every test has a bound: none takes `test` from Node itself", () => {
  for (const name of readdirSync(new URL("./", import.meta.url))) {
    const [, names] = /^import (.*) from "node:test";$/m.exec(read(`test/${name}`)) ?? [, ""];
    assert.doesNotMatch(names, /\b(test|it|describe|suite)\b/, name);
  }
});
