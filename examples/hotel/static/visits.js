// Which visit of a guest led to which reservation, kept for a day in this browser and seen by all its tabs.

import { user } from "./page.js";

const ALL = "hotel:visit:";
const PREFIX = `${ALL}${user}:`;
const DAY = 24 * 60 * 60 * 1000;

/** The reservation that this visit made, or undefined. */
export function madeOf(visit) {
  return localStorage.getItem(PREFIX + visit)?.split(" ")[0];
}

/** Keeps what a visit made, and drops what is older than a day. */
export function remember(visit, id) {
  localStorage.setItem(PREFIX + visit, `${id} ${Date.now()}`);
  for (const name of Object.keys(localStorage)) {
    if (!name.startsWith(ALL)) continue;
    if (Date.now() - Number(localStorage.getItem(name).split(" ")[1]) > DAY) localStorage.removeItem(name);
  }
}
