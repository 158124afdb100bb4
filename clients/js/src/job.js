/**
 * Jobs: one intent under way on this page, and everybody who waits for it.
 *
 * What always holds: a caller who aborts leaves alone. The job stops when the last one has left, and once its key is
 * being let go nobody can leave any more: they all get the outcome.
 */

/** @typedef {(response: Response) => unknown} Settled */

export class Job {
  #controller = new AbortController();
  #waiting = 0;
  #decided = false;
  /** @type {Settled[]} */
  #settled = [];
  /** @type {Promise<import("./answer.js").Answer> | undefined} */
  outcome;

  /**
   * @param {string} intent
   * @param {string} header
   * @param {import("./request.js").Prepared} request
   * @param {string | null} given the key, if the caller chose it
   */
  constructor(intent, header, request, given) {
    this.intent = intent;
    this.header = header;
    this.request = request;
    this.given = given;
  }

  get signal() {
    return this.#controller.signal;
  }

  /** @returns {boolean} whether somebody has not been told yet */
  get untold() {
    return this.#settled.length > 0;
  }

  /**
   * Tell everybody who wants to hear of the outcome before the key is let go.
   *
   * @param {() => Response} response
   */
  async tellAll(response) {
    while (this.#settled.length) await this.#settled.shift()?.(response());
  }

  /** From here on the outcome is given to everybody. */
  decide() {
    this.#decided = true;
  }

  /**
   * @param {AbortSignal | undefined} signal the caller's own
   * @param {Settled | undefined} settled
   * @returns {Promise<Response>} the caller's own
   */
  join(signal, settled) {
    this.#waiting += 1;
    if (settled) this.#settled.push(settled);
    return new Promise((resolve, reject) => {
      const leave = () => {
        if (this.#decided) return;
        const at = settled ? this.#settled.indexOf(settled) : -1;
        if (at >= 0) this.#settled.splice(at, 1);
        reject(signal?.reason);
        this.#waiting -= 1;
        if (this.#waiting === 0) this.#controller.abort(signal?.reason);
      };
      signal?.addEventListener("abort", leave, { once: true });
      this.outcome
        ?.finally(() => signal?.removeEventListener("abort", leave))
        .then((answer) => resolve(answer.response()), reject);
    });
  }
}
