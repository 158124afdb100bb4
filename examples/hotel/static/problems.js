// Refusals in words: what happened, whether anything ran, and what to do next.

import { KeyInUse, StartOver } from "/static/once/once.js";

const HOME = { href: "/", label: "Choose another room or other dates" };
const RELOAD = { href: location.pathname + location.search, label: "Show this reservation as it is now" };
const NEXT = {
  "sold-out": { title: "Sold out", ...HOME },
  "not-found": { title: "No such reservation", ...HOME },
  "illegal-transition": { title: "This is not possible any more", ...RELOAD },
  "payment-running": { title: "A payment is running already", ...RELOAD },
  expired: { title: "The reservation has expired", href: "/", label: "Start again" },
  declined: { title: "The card was declined", text: "You have not been charged. Choose another card and pay again." },
  "not-signed-in": { title: "You are not signed in", href: "/", label: "Sign in" },
  "not-authenticated": { title: "You are not signed in", href: "/", label: "Sign in" },
  "key-reused": { title: "This was sent before with other details", ...RELOAD },
  "key-expired": { title: "Please start over", ...RELOAD },
};

/** The end of a problem's type, such as `sold-out`. */
export const codeOf = (problem) => String(problem?.type ?? "").split(":").at(-1);

/** What to show for a response that refuses, or for what was thrown instead of one. */
export async function explain(what) {
  if (what instanceof Response) return explainAnswer(what.status, await problemIn(what));
  if (what instanceof StartOver) {
    const text = "It was begun so long ago that the server may have forgotten it. Look at what became of it first.";
    return { title: "Please start over", text, href: "/", label: "See your reservations" };
  }
  if (what instanceof KeyInUse) {
    const text = "The first request is still unfinished, with other details. It has to end first.";
    return { title: "Something else is on its way", text, ...RELOAD };
  }
  const text = "It may have gone through. Press the button again: the same key is sent, so it will not happen twice.";
  return { title: "No answer from the server", text };
}

/** The problem+json in a response, or undefined. */
export async function problemIn(response) {
  return response.clone().json().catch(() => undefined);
}

function explainAnswer(status, problem) {
  const known = NEXT[codeOf(problem)] ?? { title: problem?.title ?? `The server answered ${status}` };
  const nights = problem?.nights?.length ? `No room is left on ${problem.nights.join(", ")}. ` : "";
  return { text: nights + (problem?.detail ?? "Nothing more is known. Try again in a moment."), ...known };
}
