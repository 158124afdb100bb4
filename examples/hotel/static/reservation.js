// One reservation. The page is drawn by the server for one status; when the status changes, it is drawn again.

import { busy, clear, pause, ready, redraw, refuse, say, showLeft } from "./page.js";
import { codeOf, explain, problemIn } from "./problems.js";
import { json, network, pendingFor, send } from "./sending.js";

const { id, status } = document.getElementById("reservation").dataset;
const address = `/reservations/${id}`;
const PAY = `pay:${id}:`; // and the card: whoever finds the key after a refresh finds what it pays with
const ENDS = new Set(["CONFIRMED", "EXPIRED"]);
const NOTHING_KEPT = new Set(["sold-out", "illegal-transition"]);
const TRIES = 8;
const payForm = document.getElementById("pay-form");
let following = false;
let paying = false;

/** The status as it is now; the one of this page where the network does not say. */
async function ask() {
  try {
    const response = await fetch(`${address}/state`, { cache: "no-store" });
    return response.ok ? (await response.json()).status : status;
  } catch {
    return status;
  }
}

/** Draws the page again where the status has moved on from the one it was drawn for. */
async function check() {
  const now = await ask();
  // While this page pays, only the end is news: of everything else the answer to the payment says why.
  if (now !== status && (!paying || ENDS.has(now))) redraw();
}

/** Asks every second, for as long as it takes, until the status is another one. */
async function follow() {
  if (following) return;
  following = true;
  while (following) {
    await check();
    await pause(1000);
  }
}

function countDown(clock) {
  const end = performance.now() + Number(clock.dataset.left) * 1000;
  const tick = setInterval(() => {
    const left = Math.max(0, Math.round((end - performance.now()) / 1000));
    clock.textContent = `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
    if (left > 0) return;
    clearInterval(tick);
    check();
  }, 1000);
}

/** Sends the details until an answer comes. They need no key: the server moves on from STARTED once, or not at all. */
async function confirmDetails(form) {
  clear();
  const button = document.getElementById("confirm-details");
  busy(button, true);
  const body = Object.fromEntries(new FormData(form));
  for (let attempt = 1; attempt <= TRIES; attempt++) {
    say(attempt === 1 ? "Sending…" : "No answer yet. Trying again…");
    try {
      const response = await network(`${address}/confirm-details`, json(body));
      if (response.ok) return redraw();
      refuse(await explain(response));
      break;
    } catch (error) {
      if (attempt === TRIES) refuse(await explain(error));
      else await pause(250 * attempt);
    }
  }
  busy(button, false);
}

/** Shows the form, or that the answer to an earlier payment is being looked for. */
function showWaiting(is) {
  if (!payForm) return;
  payForm.hidden = is;
  document.getElementById("finding-out").hidden = !is;
}

/** The card of a payment that has no answer yet. */
function cardUnderWay() {
  return pendingFor(PAY)[0]?.slice(PAY.length);
}

/** Pays. While a payment has no answer, every further click is the same payment, with the card it began with. */
async function pay(chosen) {
  clear();
  paying = true;
  const button = document.getElementById("pay");
  if (button) busy(button, true);
  const card = cardUnderWay() ?? chosen;
  const intent = PAY + card;
  let refusal;
  try {
    const response = await send(`${address}/pay`, json({ card }), { intent, header: "Payment-Idempotency-Key" });
    if (response.ok) return redraw();
    // Nothing happened, and nothing is kept of it: the next try may be another card, under a key of its own.
    if (NOTHING_KEPT.has(codeOf(await problemIn(response)))) send.forget(intent);
    refusal = await explain(response);
  } catch (error) {
    refusal = await explain(error);
  }
  following = paying = false;
  const now = await ask();
  if (now !== status) return redraw(now === "CONFIRMED" ? undefined : refusal);
  if (button) busy(button, false);
  showWaiting(false);
  refuse(refusal);
}

/** Goes on with whatever the page was doing when it was left. */
async function start() {
  showLeft();
  if (ENDS.has(status)) {
    pendingFor(PAY).forEach(send.forget);
    return;
  }
  await check();
  const card = cardUnderWay();
  const waits = status !== "STARTED" && card;
  if (waits) {
    showWaiting(true);
    pay(card);
  }
  if (waits || status === "PAYING") follow();
}

document.getElementById("details-form")?.addEventListener("submit", (event) => {
  event.preventDefault();
  confirmDetails(event.target);
});
payForm?.addEventListener("submit", (event) => {
  event.preventDefault();
  pay(new FormData(payForm).get("card"));
});
ready(document.querySelector("#confirm-details, #pay"));
const clock = document.getElementById("countdown");
if (clock) countDown(clock);
addEventListener("pageshow", start);
addEventListener("online", start);
addEventListener("storage", ({ key }) => key?.includes(PAY) && follow()); // another tab pays
document.addEventListener("visibilitychange", () => document.hidden || check());
