// What every page can say: a status line, a log of what the browser did, and a refusal with the way on.

/** Whose page this is. What is kept in the browser carries it, because the next guest may sit at the same one. */
export const user = document.body.dataset.user;

const LOG = "hotel:log";
const LOG_LINES = 12;

/** Says in the status line, which screen readers read out, what is going on; nothing clears it. */
export function say(text) {
  const line = document.getElementById("status");
  if (line.textContent !== text) line.textContent = text;
}

/** Adds a line to "What your browser did", the newest first; the lines go along from page to page. */
export function log(text) {
  const line = `${new Date().toLocaleTimeString("en-GB")} ${text}`;
  sessionStorage.setItem(LOG, JSON.stringify([line, ...logged()].slice(0, LOG_LINES)));
  showLog();
}

/** Shows the lines that are there. */
export function showLog() {
  const lines = logged().map((text) => Object.assign(document.createElement("li"), { textContent: text }));
  document.getElementById("log-list").replaceChildren(...lines);
  document.getElementById("log").hidden = lines.length === 0;
}

const logged = () => JSON.parse(sessionStorage.getItem(LOG) ?? "[]");

/** Shows a refusal: what happened, and what to do next. */
export function refuse({ title, text, href, label }) {
  const box = document.getElementById("problem");
  const heading = document.createElement("h2");
  heading.textContent = title;
  const body = document.createElement("p");
  body.textContent = text;
  box.replaceChildren(heading, body);
  if (href) {
    const way = document.createElement("a");
    way.href = href;
    way.textContent = label;
    way.className = "button";
    box.append(way);
  }
  box.hidden = false;
  box.scrollIntoView({ block: "nearest" });
  say("");
}

/** Takes the last refusal away, because something new was asked for. */
export function clear() {
  const box = document.getElementById("problem");
  box.replaceChildren();
  box.hidden = true;
}

/** Lets a button be clicked: before its script is there, a click would send the form past the client, without a key. */
export function ready(button) {
  if (button) button.disabled = false;
}

/** Marks a button as at work. It stays clickable: a second click asks for the same thing again. */
export function busy(button, is) {
  if (is) button.setAttribute("aria-busy", "true");
  else button.removeAttribute("aria-busy");
}

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

const LATER = "hotel:refused";

/** Draws the page again and then shows a refusal, if there is one. */
export function redraw(refusal) {
  if (refusal) sessionStorage.setItem(LATER, JSON.stringify(refusal));
  location.reload();
}

/** Shows the refusal that a page before this one left. */
export function showLeft() {
  const left = sessionStorage.getItem(LATER);
  sessionStorage.removeItem(LATER);
  if (left) refuse(JSON.parse(left));
}
