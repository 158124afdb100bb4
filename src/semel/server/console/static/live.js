// Keeps a page current: asks for it again before it is two seconds old, and puts what changed in its place.
// Pauses while nobody looks. Without it every page says the same, as of the moment it was asked for.
const EVERY = Number(document.body.dataset.every) || 1500;
const pulse = document.getElementById("pulse");
let timer = 0;
let asking = null;

function say(state, words) {
  if (!pulse || pulse.dataset.state === state) return;
  pulse.dataset.state = state;
  pulse.textContent = words;
}

function looks() {
  return !document.hidden && document.hasFocus();
}

// What a reader has chosen or opened stays so, and the keyboard stays where it was.
function keep(region) {
  const chosen = [...region.querySelectorAll("input:checked")].map((input) => input.value);
  const open = [...region.querySelectorAll("details[open][id]")].map((part) => part.id);
  const active = region.contains(document.activeElement) ? document.activeElement : null;
  const place = active && { id: active.id, href: active.getAttribute("href"), value: active.value, tag: active.tagName };
  return () => {
    for (const input of region.querySelectorAll("input[type=checkbox]")) {
      if (chosen.includes(input.value)) input.checked = true;
    }
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (!place) return;
    const again = [...region.querySelectorAll(place.tag)].find(
      (part) => (place.id ? part.id === place.id : part.getAttribute("href") === place.href && part.value === place.value),
    );
    again?.focus({ preventScroll: true });
  };
}

function isEdited(region) {
  const active = document.activeElement;
  return region.contains(active) && /^(TEXTAREA|SELECT)$|^INPUT$/.test(active.tagName) && active.type !== "checkbox";
}

// Whether the page is current now; false where nobody is signed in any more.
async function refresh() {
  asking = new AbortController();
  // A page that is looked at leads elsewhere only where nobody is signed in any more.
  const answer = await fetch(location.href, {
    headers: { Accept: "text/html" }, signal: asking.signal, credentials: "same-origin", redirect: "manual",
  });
  if (answer.type === "opaqueredirect" || answer.status === 401) return false;
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (namesIn(fresh) !== namesIn(document)) {
    // What was empty is not, or the other way round: then the page has other parts than before.
    put(document.getElementById("main"), fresh.getElementById("main"));
    return true;
  }
  for (const region of document.querySelectorAll("[data-live]")) {
    put(region, fresh.querySelector(`[data-live="${region.dataset.live}"]`));
  }
  return true;
}

function namesIn(page) {
  return [...page.querySelectorAll("[data-live]")].map((region) => region.dataset.live).join();
}

function put(region, next) {
  if (!region || !next || isEdited(region) || next.innerHTML === region.innerHTML) return;
  const restore = keep(region);
  region.replaceChildren(...document.adoptNode(next).childNodes);
  restore();
}

async function turn() {
  window.clearTimeout(timer);
  if (!looks()) {
    say("paused", "Paused");
    return;
  }
  const asked = Date.now();
  try {
    if (await refresh()) say("live", "Live");
    else say("out", "Signed out: reload to sign in");
  } catch (error) {
    if (error.name !== "AbortError") say("lost", "Not reached, trying again");
  }
  // A reader who went away meanwhile is asked for again when they come back.
  if (looks()) timer = window.setTimeout(turn, Math.max(EVERY / 5, EVERY - (Date.now() - asked)));
}

function pause() {
  window.clearTimeout(timer);
  asking?.abort();
  say("paused", "Paused");
}

if (document.querySelector("[data-live]")) {
  window.addEventListener("focus", turn);
  window.addEventListener("blur", pause);
  document.addEventListener("visibilitychange", () => (document.hidden ? pause() : turn()));
  say(looks() ? "live" : "paused", looks() ? "Live" : "Paused");
  if (looks()) timer = window.setTimeout(turn, EVERY);
}

// "/" goes to the search, as in many tools; a box in the head of a table chooses all of it.
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const search = document.getElementById("find");
  if (!search) return;
  event.preventDefault();
  search.focus();
});
document.addEventListener("change", (event) => {
  if (event.target.id !== "pick-all") return;
  for (const box of document.querySelectorAll('input[type="checkbox"][form="bulk"]')) box.checked = event.target.checked;
});
