// Shows the live part of a page as the server has it now, again and again. Buttons are plain forms, and stay as they are.
const EVERY = 500;

async function refresh() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const next = page.querySelector("[data-live]");
  const now = document.querySelector("[data-live]");
  // A part that did not change is left alone: what is selected in it stays so.
  if (next && now && next.outerHTML !== now.outerHTML) replace(now, document.adoptNode(next));
}

function replace(now, next) {
  const scrolled = [...now.querySelectorAll(".scroll")].map((part) => part.scrollLeft);
  now.replaceWith(next);
  next.querySelectorAll(".scroll").forEach((part, number) => { part.scrollLeft = scrolled[number] ?? 0; });
}

async function follow() {
  try {
    if (!document.hidden) await refresh();
  } catch {
    // The server is away; the next look may find it.
  }
  setTimeout(follow, EVERY);
}

follow();
