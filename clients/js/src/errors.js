/**
 * The errors. Each says what happened, whether anything ran, and what to do next, and carries the intent it is about.
 */

class OnceError extends Error {
  /**
   * @param {string} message
   * @param {{ intent: string, key: string, cause?: unknown }} about
   */
  constructor(message, { intent, key, cause }) {
    super(message, cause === undefined ? undefined : { cause });
    this.intent = intent;
    this.key = key;
  }
}

/** The kept key is too old to be sent: the service may have forgotten it, and would run the request again. */
export class StartOver extends OnceError {
  name = "StartOver";
  code = "start-over";

  /** @param {{ intent: string, key: string, since: number }} about */
  constructor(about) {
    super(
      `The first try of "${about.intent}" is older than what the service remembers; nothing ran now, but the ` +
        "first try may have run. Look what became of it. To do it anew, call forget(intent) and send it again.",
      about,
    );
    this.since = about.since;
  }
}

/** The intent is unfinished, and this is another request. */
export class KeyInUse extends OnceError {
  name = "KeyInUse";
  code = "key-in-use";

  /** @param {{ intent: string, key: string }} about */
  constructor(about) {
    super(
      `"${about.intent}" is unfinished, with another method, URL, body or key; nothing was sent now, but the first ` +
        "request may have run. Finish it by sending it again as it was, or call forget(intent) to give it up.",
      about,
    );
  }
}

/** No answer was had within the bounds; the key is kept. */
export class Unfinished extends OnceError {
  name = "Unfinished";
  code = "unfinished";

  /** @param {{ intent: string, key: string, tries: number, cause: unknown }} about */
  constructor(about) {
    super(
      `"${about.intent}" got no answer in ${about.tries} ${about.tries === 1 ? "try" : "tries"}; it may have run. ` +
        "Its key is kept: send the same request again later, and it will not happen twice.",
      about,
    );
    this.tries = about.tries;
  }
}
