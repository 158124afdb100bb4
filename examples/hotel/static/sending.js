// How these pages send: through the client, so that a wish is carried out once however often it is sent.
// The keys are shared by all tabs, outlive them, and belong to the guest who is signed in.

import { once } from "/static/once/once.js";
import { log, say, user } from "./page.js";
import { unreliable } from "./network.js";

let replayed = false;

/** Tells the user what the client does, and the panel that there is something to see. */
function observe({ type, attempt, why }) {
  document.dispatchEvent(new Event("hotel:sent"));
  if (type === "sending") {
    replayed = false;
    say(attempt === 1 ? "Sending…" : `Sending again with the same key, try ${attempt}…`);
  } else if (type === "waiting") {
    say(`No answer yet (${why}). Trying again with the same key…`);
    if (why !== "network") log(`${why} – trying again with the same key`);
  } else if (type === "replayed") {
    replayed = true;
    say("The server had done this already and gave the same answer again.");
    log("replayed – the server had done it already");
  } else if (type === "settled" && !replayed) say("Answered.");
  else if (type === "kept") say("No answer for now. The key is kept.");
}

export const network = unreliable((...given) => fetch(...given));

// More tries than by default: the bad network loses two replies of three.
export const send = once(network, {
  storage: "shared",
  prefix: `semel.once:${user}:`,
  observe,
  tries: 16,
  budget: { retries: 60, perSeconds: 60 },
});

/** The intents that begin so and have no answer yet. */
export function pendingFor(beginning) {
  return send.pending().map((entry) => entry.intent).filter((intent) => intent.startsWith(beginning));
}

/** A POST of JSON. */
export function json(body, headers = {}) {
  return { method: "POST", headers: { "Content-Type": "application/json", ...headers }, body: JSON.stringify(body) };
}
