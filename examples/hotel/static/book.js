// One visit to this page is one wish: clicking again, refreshing, a second tab and going back all mean the same
// reservation. The visit is the key itself. A key made here would leave a gap: one tab finds no reservation yet, another
// gets its answer and lets the key go, and the first would make a new one.

import { busy, clear, ready, refuse, say } from "./page.js";
import { explain } from "./problems.js";
import { json, pendingFor, send } from "./sending.js";
import { madeOf, remember } from "./visits.js";

const form = document.getElementById("reserve-form");
const button = document.getElementById("reserve");
const link = document.getElementById("reserved");
const { visit, hotel, type, from, to } = form.dataset;
const intent = `reserve:${visit}`;
let leaving = false;

/** Turns the button into a link where this visit has its reservation already. */
function showMade() {
  const id = madeOf(visit);
  if (!id) return false;
  button.hidden = true;
  link.hidden = false;
  link.href = `/reservations/${id}`;
  link.textContent = `Go to your reservation ${id}`;
  clear();
  say(`This stay is reserved already, as ${id}.`);
  return true;
}

async function reserve() {
  if (showMade()) return;
  clear();
  busy(button, true);
  const body = { hotel_id: hotel, room_type: type, check_in: from, check_out: to };
  try {
    // Before the key is let go the visit knows its reservation: a page that comes back finds the one or the other.
    const settled = async (response) => {
      if (response.ok) remember(visit, (await response.json()).id);
    };
    const response = await send("/reservations", json(body, { "Idempotency-Key": visit }), { intent, settled });
    if (!response.ok) throw response;
    const { id } = await response.json();
    if (!leaving) location.replace(`/reservations/${id}`);
    leaving = true;
  } catch (problem) {
    refuse(await explain(problem));
  } finally {
    busy(button, false);
  }
}

/** Goes on by itself where a request of this visit has no answer yet. */
function start() {
  leaving = false; // the page may come back just as it was left
  busy(button, false);
  if (!showMade() && pendingFor(intent).length > 0) reserve();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  reserve();
});
ready(button);
addEventListener("storage", showMade);
addEventListener("pageshow", start);
addEventListener("online", start);
