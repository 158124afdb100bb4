/**
 * `test` of Node with a bound: a promise that never settles is a failure with a name, not a run that never ends.
 */

import { test as unbounded } from "node:test";

/** No test here waits for anything real for long; the bound is for slow machines. */
export const LONGEST = 30_000;

/** @type {(name: string, run: (context: import("node:test").TestContext) => unknown) => Promise<void>} */
export const test = (name, run) => unbounded(name, { timeout: LONGEST }, run);
