/**
 * Tries: one request, sent until it has an outcome or the bounds are reached, always with the same key.
 *
 * What always holds: an outcome is told to the caller's `settled` first, then the key is let go. In every other end
 * the key stays, and the next call with this intent sends it again. A refusal is an outcome only where no try before it
 * may have run, or where the service shows that it has recorded it.
 */

import { whole } from "./answer.js";
import { StartOver, Unfinished } from "./errors.js";
import { quoted } from "./keys.js";
import { isRefusal, NOTHING_RAN, VERDICTS, verdictOn } from "./verdict.js";
import { pause, retryAfter } from "./waiting.js";

/** @typedef {import("./answer.js").Answer} Answer */
/** @typedef {import("./verdict.js").Verdict} Verdict */
/** @typedef {{ answer?: Answer, error?: unknown, why: string }} Try what one try came to */

/**
 * @typedef {object} Tools what all calls of one `once` share
 * @property {typeof globalThis.fetch} fetch
 * @property {import("./entries.js").Entries} entries
 * @property {import("./retention.js").Retention} retention
 * @property {import("./waiting.js").Budget} budget
 * @property {(event: any) => void} tell
 * @property {() => Promise<unknown>} arrived settles when the calls made so far have found or started their job
 */

export class Tries {
  #settings;
  #tools;
  #job;
  #entry;
  #tell;
  #certain;
  #asked = false;

  /**
   * @param {object} given
   * @param {import("./settings.js").Settings} given.settings
   * @param {Tools} given.tools
   * @param {import("./job.js").Job} given.job
   * @param {import("./entries.js").Entry} given.entry
   * @param {boolean} given.certain whether nothing ran under this key so far
   */
  constructor({ settings, tools, job, entry, certain }) {
    this.#settings = settings;
    this.#tools = tools;
    this.#job = job;
    this.#entry = entry;
    this.#certain = certain;
    const { key, method, url } = entry;
    this.#tell = (/** @type {string} */ type, /** @type {object} */ more) =>
      tools.tell({ type, intent: job.intent, key, method, url, ...more });
  }

  /** @returns {Promise<Answer>} */
  async run() {
    const until = this.#settings.now() + this.#settings.giveUpAfter;
    for (let attempt = 1; ; attempt++) {
      await this.#checkAge();
      const last = this.#judged(await this.#once(attempt, until));
      if (last.verdict === "settled") return this.#settle(/** @type {Answer} */ (last.answer));
      if (last.verdict === "start-over") throw this.#tooOld();
      const stop = last.verdict === "kept" ? last.why : await this.#wait(last, attempt, until);
      if (stop) return this.#keep(last, attempt, stop);
    }
  }

  async #checkAge() {
    const { method, url } = this.#job.request;
    const covered = await this.#tools.retention.covers(this.#entry, method, url);
    this.#stopIfAborted();
    if (!covered) throw this.#tooOld();
  }

  #tooOld() {
    this.#tell("kept", { why: "too-old" });
    return new StartOver({ intent: this.#job.intent, key: this.#entry.key, since: this.#entry.since });
  }

  /**
   * @param {number} attempt
   * @param {number} until
   * @returns {Promise<Try>} without an answer if the network failed
   */
  async #once(attempt, until) {
    const { request, header, signal } = this.#job;
    const { key, given } = this.#entry;
    const headers = new Headers(request.headers);
    headers.set(header, given || !this.#settings.quoted ? key : quoted(key));
    const { now, answerWithin, alarm } = this.#settings;
    const late = alarm(Math.max(1, Math.min(answerWithin, until - now())));
    const either = firstOf(signal, late.signal);
    this.#tell("sending", { attempt });
    try {
      const received = await request.send(this.#tools.fetch, headers, either.signal);
      return { answer: await wholeOrCut(received), why: `status ${received.status}` };
    } catch (error) {
      this.#stopIfAborted();
      if (late.signal.aborted) return { error: late.signal.reason, why: "no answer in time" };
      if (error instanceof Cut) return { error: error.cause, why: "answer cut off" };
      if (error instanceof TypeError) return { error, why: "network" };
      this.#tell("kept", { why: "error" });
      throw error;
    } finally {
      late.cancel();
      either.release();
    }
  }

  /**
   * @param {Try} last
   * @returns {Try & { verdict: Verdict }}
   */
  #judged(last) {
    const { answer } = last;
    if (answer?.replayed) this.#tell("replayed", { status: answer.status });
    const verdict = answer ? (this.#callers(answer) ?? this.#table(answer)) : "retry";
    this.#certain &&= answer !== undefined && NOTHING_RAN.has(answer.status);
    return { ...last, verdict };
  }

  /** @param {Answer} answer */
  #callers(answer) {
    const verdict = this.#settings.verdict?.(answer.response());
    if (verdict === undefined || VERDICTS.has(verdict)) return verdict;
    this.#tell("kept", { why: "error", status: answer.status });
    throw new TypeError(
      `The option verdict answers ${[...VERDICTS].join(", ")} or undefined, not ${String(verdict)}; the request may ` +
        "have run, and its key is kept. Correct the option, and send the request again.",
    );
  }

  /**
   * @param {Answer} answer
   * @returns {Verdict}
   */
  #table(answer) {
    const verdict = verdictOn(answer);
    if (verdict !== "settled" || this.#certain || !isRefusal(answer)) return verdict;
    // It can come from somebody who never saw the try that may have run, such as a gateway. A service that has recorded
    // it under this key says so when it is asked once more.
    const first = !this.#asked;
    this.#asked = true;
    return first ? "retry" : "kept";
  }

  /**
   * @param {Try} last
   * @param {number} attempt
   * @param {number} until
   * @returns {Promise<string | undefined>} why there is no next try
   */
  async #wait({ answer, why }, attempt, until) {
    const { tries, now, random, sleep } = this.#settings;
    if (attempt >= tries) return "tries";
    const milliseconds = pause(attempt, answer && retryAfter(answer.headers, now()), random);
    if (now() + milliseconds >= until) return "time";
    if (!this.#tools.budget.take()) return "budget";
    this.#tell("waiting", { milliseconds, why, attempt });
    try {
      await sleep(milliseconds, this.#job.signal);
    } finally {
      this.#stopIfAborted();
    }
    // A page that was frozen wakes up late: a try with no time left would be sent, and its answer not waited for.
    return now() >= until ? "time" : undefined;
  }

  /**
   * @param {Try} last
   * @param {number} tries
   * @param {string} why
   * @returns {Promise<Answer>}
   */
  async #keep({ answer, error }, tries, why) {
    await this.#tools.arrived();
    if (this.#certain) await this.#tools.entries.nothingRan(this.#job.intent, this.#entry.key);
    this.#tell("kept", { why, status: answer?.status });
    if (answer) return answer;
    throw new Unfinished({ intent: this.#job.intent, key: this.#entry.key, tries, cause: error });
  }

  /**
   * @param {Answer} answer
   * @returns {Promise<Answer>}
   */
  async #settle(answer) {
    try {
      await this.#tellAll(answer);
    } catch (error) {
      this.#tell("kept", { why: "settled() failed", status: answer.status });
      throw error;
    }
    // Whoever left before this point did not see the outcome, and is to find it again under the same key.
    this.#stopIfAborted();
    this.#job.decide();
    await this.#tools.entries.finish(this.#job.intent, this.#entry.key);
    this.#tell("settled", { status: answer.status });
    await this.#tellAll(answer); // those who joined while the key was let go
    return answer;
  }

  /** @param {Answer} answer */
  async #tellAll(answer) {
    do {
      await this.#job.tellAll(answer.response);
      await this.#tools.arrived();
    } while (this.#job.untold);
  }

  #stopIfAborted() {
    const { signal } = this.#job;
    if (!signal.aborted) return;
    this.#tell("kept", { why: "aborted" });
    throw signal.reason;
  }
}

/** The answer began and did not end. */
class Cut extends Error {}

/** @param {Response} received */
async function wholeOrCut(received) {
  try {
    return await whole(received);
  } catch (error) {
    throw new Cut("The answer was cut off", { cause: error });
  }
}

/**
 * A signal that aborts with the first of two. (`AbortSignal.any` is younger than the browsers we serve.)
 *
 * @param {AbortSignal} one
 * @param {AbortSignal} other
 */
function firstOf(one, other) {
  const controller = new AbortController();
  const follow = () => controller.abort((one.aborted ? one : other).reason);
  for (const signal of [one, other]) signal.addEventListener("abort", follow);
  if (one.aborted || other.aborted) follow();
  const release = () => {
    for (const signal of [one, other]) signal.removeEventListener("abort", follow);
  };
  return { signal: controller.signal, release };
}
