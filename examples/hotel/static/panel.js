// The side panel: polls what the server saw of this user and shows the newest first. Where somebody else has signed in
// meanwhile, in another tab or before this page came back, it is not shown to them: it is drawn again.

import { say, showLog, user } from "./page.js";
import { wire } from "./network.js";

const EVERY = 1000;
const COLOURS = 8;
const LONGEST = 40;
const GIVEN = "hotel:colours";
const list = document.getElementById("seen-list");
const reports = new Map();
const shown = new Map();
let hasShown = false;
let timer;

/** The same key gets the same colour on every page, and the next key the next colour. */
function colour(key) {
  const given = JSON.parse(sessionStorage.getItem(GIVEN) ?? "[]").slice(-LONGEST * COLOURS);
  if (!given.includes(key)) given.push(key);
  sessionStorage.setItem(GIVEN, JSON.stringify(given));
  return `k${given.indexOf(key) % COLOURS}`;
}

function piece(kind, text) {
  const made = document.createElement("span");
  made.className = kind;
  made.textContent = text;
  return made;
}

function fill(item, request) {
  item.className = request.key ? colour(request.key) : "nokey";
  const key = piece("key", request.key ? request.key.slice(0, 8) + "…" : "no key");
  if (request.key) key.title = request.key;
  item.replaceChildren(
    piece("what", `${request.method} ${request.path}`),
    key,
    piece("code", request.status ?? "…"),
    piece(`badge ${request.became.replace(" ", "-")}`, request.became),
  );
}

/** What all processes told so far: each knows only what came to it. */
function merged(report) {
  reports.set(report.process, report);
  const all = [...reports.values()];
  const sum = (name) => all.reduce((total, one) => total + one[name], 0);
  const latest = all.flatMap((one) => one.latest).sort((one, other) => other.number - one.number);
  return { requests: sum("requests"), ran: sum("ran"), latest: latest.slice(0, LONGEST) };
}

function show({ requests, ran, latest }) {
  const count = document.getElementById("seen-count");
  const text = `${requests} request${requests === 1 ? "" : "s"}, ${ran} ran`;
  if (count.textContent !== text) count.textContent = text;
  document.getElementById("seen-empty").hidden = latest.length > 0;
  const present = new Set(latest.map((request) => request.number));
  for (const [number, { item }] of shown) if (!present.has(number)) (item.remove(), shown.delete(number));
  for (const request of latest.toReversed()) if (request.key) colour(request.key); // in the order they came
  for (const [place, request] of latest.entries()) {
    const known = shown.get(request.number);
    const item = known?.item ?? document.createElement("li");
    if (!known) item.toggleAttribute("data-new", hasShown); // what was there when the page came does not move in
    if (list.children[place] !== item) list.insertBefore(item, list.children[place] ?? null);
    if (known?.became !== request.became) fill(item, request);
    shown.set(request.number, { item, became: request.became });
  }
  hasShown = true;
}

/** Asks now, and again in a second while the page can be seen. */
async function look() {
  clearTimeout(timer);
  try {
    const response = await fetch("/seen", { cache: "no-store" });
    const report = await response.json();
    if (report.user !== user) return location.reload();
    if (response.ok) show(merged(report));
  } catch {
    // Without a network there is nothing new to show; the next look may succeed.
  }
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(look, EVERY);
}

showLog();
wire(document.getElementById("bad-network"));
document.addEventListener("visibilitychange", look);
document.addEventListener("hotel:sent", look);
addEventListener("pageshow", look);
addEventListener("offline", () => say("You are offline. What was started goes on with the same key when you are back."));
addEventListener("online", () => say("You are online again."));
