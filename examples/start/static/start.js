// Shows the live parts of the page as the server has them now, again and again, and presses buttons without leaving it.
const EVERY = 700;
const announced = document.getElementById("announced");

function replace(now, next) {
  const focused = document.activeElement?.id;
  now.replaceWith(next);
  if (focused && !document.contains(document.activeElement?.closest("[data-live]"))) document.getElementById(focused)?.focus({ preventScroll: true });
}

function announce(now, next) {
  const line = next.querySelector(".line:not(.old):not(.now):not(.none)")?.textContent.trim().replace(/\s+/g, " ");
  if (line && now.querySelector(".line.now")) announced.textContent = line;
}

function show(text) {
  const page = new DOMParser().parseFromString(text, "text/html");
  for (const part of page.querySelectorAll("[data-live]")) {
    const now = document.getElementById(part.id);
    // A part that did not change is left alone: what is selected in it stays so.
    if (!now || now.outerHTML === part.outerHTML) continue;
    announce(now, part);
    replace(now, document.adoptNode(part));
  }
}

async function refresh() {
  const answer = await fetch("/", { headers: { accept: "text/html" } });
  if (answer.ok) show(await answer.text());
}

async function follow() {
  try {
    if (!document.hidden) await refresh();
  } catch {
    // The server is away; the next look may find it.
  }
  setTimeout(follow, EVERY);
}

document.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (event.submitter?.getAttribute("aria-disabled") === "true") return;
  try {
    const answer = await fetch(event.target.action, { method: "POST" });
    if (answer.ok) show(await answer.text());
  } catch {
    announced.textContent = "The start page does not answer. Look into the terminal.";
  }
});

follow();
