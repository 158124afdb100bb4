// Follows a bulk while it runs: asks how far it is, and shows it. Nothing is kept here that is not asked for again.

import { busy, clear, refuse, say } from "/static/page.js";

const EVERY = 700;
const SLOWLY = 5000;
const SHOWN = 25;
const ENDED = new Set(["completed", "cancelled", "failed"]);
const bulk = document.getElementById("bulk");
const address = `/bulk/${bulk.dataset.bulk}`;
const find = (id) => document.getElementById(id);
const buttons = ["pause", "resume", "cancel", "retry"].map(find);
let filter = "";
let timer;
let shownFailed = -1;
let shownResults = "";

const grouped = (number) => number.toLocaleString("en-GB");

function make(kind, text = "", className = "") {
  return Object.assign(document.createElement(kind), { textContent: text, className });
}

function duration(seconds) {
  if (seconds < 1) return "less than a second";
  const whole = Math.round(seconds); // first of all: 59.7 seconds are a minute, and not none and no second
  const parts = [[Math.floor(whole / 3600), "h"], [Math.floor(whole / 60) % 60, "min"], [whole % 60, "s"]];
  return parts.filter(([count]) => count).slice(0, 2).map(([count, unit]) => `${count} ${unit}`).join(" ");
}

function showPace(status) {
  const isRunning = status.state === "running" && status.remaining > 0;
  find("rate").textContent = isRunning && status.rate ? `${grouped(Math.round(status.rate))} a second` : "";
  find("eta").textContent = isRunning && status.eta_seconds !== null ? `${duration(status.eta_seconds)} left` : "";
  if (ENDED.has(status.state) && status.started_at) {
    const took = (new Date(status.updated_at) - new Date(status.started_at)) / 1000;
    find("rate").textContent = `took ${duration(took)}`;
  } else if (status.state === "paused") find("rate").textContent = "Nothing is paid until it is resumed.";
  else if (status.state === "pending") find("rate").textContent = "waiting for a worker";
}

function showStatus(status) {
  const ended = status.total - status.remaining;
  const share = (count) => (status.total ? (100 * count) / status.total : 0);
  const percent = Math.floor(share(ended));
  find("percent").textContent = `${percent}%`;
  find("done").textContent = `${grouped(ended)} of ${grouped(status.total)} payments`;
  find("bar").setAttribute("aria-valuenow", percent);
  for (const name of ["completed", "failed", "skipped"]) find(`bar-${name}`).style.width = `${share(status[name])}%`;
  for (const name of ["completed", "failed", "skipped", "remaining"]) find(name).textContent = grouped(status[name]);
  const badge = find("state").firstElementChild;
  badge.dataset.state = badge.textContent = status.state;
  bulk.dataset.state = status.state;
  for (const button of buttons) button.hidden = !status.actions.includes(button.id);
  find("retry").textContent = `Retry ${grouped(status.failed)} failed`;
  // Of two ways on, one is the usual one: with nothing left to be begun that is to try again what failed.
  find("retry").classList.toggle("primary", status.state === "completed");
  showPace(status);
}

async function showFailures(failed) {
  if (failed === shownFailed) return;
  find("failures").hidden = failed === 0;
  if (failed) {
    const { failures } = await ask("/failures");
    const rows = failures.map(({ title, count }) => {
      const row = make("tr");
      const bar = make("span", "", "share");
      bar.style.width = `${(100 * count) / failed}%`;
      const share = make("td");
      share.append(bar);
      row.append(Object.assign(make("th", title), { scope: "row" }), share, make("td", grouped(count), "number"));
      return row;
    });
    find("failure-list").replaceChildren(...rows);
  }
  shownFailed = failed;
}

function resultRow({ id, position, status, payment, error }) {
  const row = make("tr");
  const badge = make("span", { completed: "paid", in_doubt: "in doubt" }[status] ?? status, "badge item");
  badge.dataset.status = status;
  const state = make("td");
  state.append(badge);
  const last = make("td");
  last.append(payment ? make("code", payment.transaction_id) : make("span", error?.message ?? "", "soft"));
  row.append(
    make("td", grouped(position + 1), "number line-number"),
    make("td", id),
    state,
    make("td", payment ? payment.amount : "–", "number"),
    last,
  );
  return row;
}

async function showResults(status) {
  const mark = `${filter} ${status.completed} ${status.failed} ${status.skipped} ${status.state}`;
  const isSettled = shownResults.startsWith(`${filter} `) && find("result-list").dataset.settled === filter + "!";
  if (mark === shownResults || (isSettled && status.state === "running")) return;
  const answer = await fetch(`${address}/results?limit=${SHOWN}${filter && `&status=${filter}`}`);
  if (!answer.ok) return;
  const lines = (await answer.text()).split("\n").filter(Boolean).map((line) => JSON.parse(line));
  find("result-list").replaceChildren(...lines.map(resultRow));
  // The first payments do not change any more once each of them has ended: there is nothing to ask for again.
  const isFull = lines.length === SHOWN && lines.every((line) => line.status !== "pending");
  find("result-list").dataset.settled = filter + (isFull ? "!" : "");
  const count = filter ? status[filter] : status.total;
  find("result-more").textContent = lines.length
    ? count > lines.length ? `The first ${lines.length} of ${grouped(count)}. Download all of them to see the rest.` : ""
    : "There are none.";
  shownResults = mark;
}

async function ask(path = "", method = "GET") {
  const answer = await fetch(address + path, { method, headers: { Accept: "application/json" }, cache: "no-store" });
  const told = await answer.json();
  if (answer.status === 401) location.assign("/");
  if (!answer.ok) throw Object.assign(new Error(told.detail), { title: told.title });
  return told;
}

/** Asks now, and again soon while the page can be seen; less often once it has ended. */
async function look() {
  clearTimeout(timer);
  let pause = EVERY;
  try {
    const status = await ask();
    showStatus(status);
    await Promise.all([showFailures(status.failed), showResults(status)]);
    pause = ENDED.has(status.state) ? SLOWLY : EVERY;
  } catch {
    // Without an answer there is nothing new to show; the next look may get one.
  }
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(look, pause);
}

async function act(button) {
  if (button.getAttribute("aria-busy")) return;
  clear();
  busy(button, true);
  try {
    showStatus(await ask(`/${button.id}`, "POST"));
    shownFailed = -1;
    shownResults = "";
  } catch (error) {
    refuse({ title: error.title ?? "No answer from the server", text: error.title ? error.message : "Press it again: it does no harm." });
  } finally {
    busy(button, false);
    say("");
  }
  look();
}

for (const button of buttons) button.addEventListener("click", () => act(button));
for (const button of document.querySelectorAll(".filter")) {
  button.addEventListener("click", () => {
    filter = button.dataset.status;
    for (const other of document.querySelectorAll(".filter")) other.setAttribute("aria-pressed", String(other === button));
    look();
  });
}
document.addEventListener("visibilitychange", look);
addEventListener("pageshow", look);
look();
