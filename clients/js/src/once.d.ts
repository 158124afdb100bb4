/** A fetch whose requests happen once, however often they are asked for. */
export declare function once(fetch: typeof globalThis.fetch, options?: Options): Send;

/** Where unfinished intents are kept: `sessionStorage` and `localStorage` are such objects. */
export interface StorageLike {
  getItem(name: string): string | null;
  setItem(name: string, value: string): void;
  removeItem(name: string): void;
  /** With `length`, for `pending()` to find what an earlier page left. */
  key?(index: number): string | null;
  readonly length?: number;
}

/** What is used of `navigator.locks`. */
export interface LocksLike {
  request<T>(name: string, held: () => T): Promise<Awaited<T>>;
}

/** What an answer says: this is the outcome; ask again with the same key; give it back and keep the key. */
export type Verdict = "settled" | "retry" | "kept";

export interface Options {
  /** "tab": sessionStorage, the default. "shared": localStorage, one key over all tabs. Or an object like these. */
  storage?: "tab" | "shared" | StorageLike;
  /** Begins the name of every stored entry; put the user's id in it where several people share a browser. */
  prefix?: string;
  /** The header with the key. Default: "Idempotency-Key". */
  header?: string;
  /** Whether the key is sent as a structured-field string, in quotes. Default: true. */
  quoted?: boolean;
  /** Methods that take a key without an intent being named. Default: POST and PATCH. */
  methods?: Iterable<"POST" | "PUT" | "PATCH" | "DELETE">;
  /** How often a call sends at most. Default: 8. */
  tries?: number;
  /** How many milliseconds a call takes at most. Default: 60 000. */
  giveUpAfter?: number;
  /** How many milliseconds one try waits for its whole answer. Default: 30 000. */
  answerWithin?: number;
  /** Retries of all calls together. Default: 20 in 60 seconds. */
  budget?: { retries: number; perSeconds: number };
  /** How many seconds the service remembers a key. Default: what its policy document says, else a day. */
  retention?: number;
  /** Decides on an answer before the table does; undefined leaves it to the table. */
  verdict?: (response: Response) => Verdict | undefined;
  /** Is told what happens, for a user interface. */
  observe?: (event: OnceEvent) => void;
  /** Decides between tabs that begin in the same moment. Default for "shared": the browser's. */
  indexedDB?: IDBFactory;
  /** Where there is no IndexedDB. Default for "shared": `navigator.locks`. */
  locks?: LocksLike;
  /** Default: `crypto.subtle`. */
  subtle?: Pick<SubtleCrypto, "digest">;
  /** For tests: the time, in milliseconds. */
  now?: () => number;
  /** For tests: waits, and rejects when the signal aborts. */
  sleep?: (milliseconds: number, signal: AbortSignal) => Promise<void>;
  /** For tests: a signal that aborts after so long. */
  alarm?: (milliseconds: number) => { signal: AbortSignal; cancel: () => void };
  /** For tests: a number from 0 up to 1. */
  random?: () => number;
  /** Makes a key. Default: a random UUID. */
  newKey?: () => string;
}

export interface SendOptions {
  /** What the user wants to do once, such as "reserve:visit-17". Default: a digest of method, URL and body. */
  intent?: string;
  /** The header with the key, for this call. */
  header?: string;
  /** Is called, and awaited, with the outcome before the key is let go. If it throws, the key is kept. */
  settled?: (response: Response) => unknown;
}

export interface Pending {
  intent: string;
  key: string;
  /** When the key was made, in milliseconds since 1970. */
  since: number;
  method: string;
  /** Without query and fragment. */
  url: string;
}

export interface Send {
  (input: RequestInfo | URL, init?: RequestInit, how?: SendOptions): Promise<Response>;
  /** Unfinished intents, the oldest first. */
  pending(): Pending[];
  /** Start over by will: the next call with this intent takes a new key. Answers whether there was one. */
  forget(intent: string): boolean;
}

interface About {
  intent: string;
  key: string;
  method: string;
  url: string;
}

export type OnceEvent =
  | (About & { type: "sending"; attempt: number })
  | (About & { type: "waiting"; milliseconds: number; why: string; attempt: number })
  | (About & { type: "replayed"; status: number })
  | (About & { type: "settled"; status: number })
  | (About & { type: "kept"; why: string; status?: number })
  | { type: "not-persisted"; error: unknown };

/** The kept key is too old to be sent; the first try may have run. Look, then `forget(intent)`. */
export declare class StartOver extends Error {
  readonly name: "StartOver";
  readonly code: "start-over";
  readonly intent: string;
  readonly key: string;
  /** When the key was made, in milliseconds since 1970. */
  readonly since: number;
  private constructor();
}

/** The intent is unfinished, and this is another request. Finish it, or `forget(intent)`. */
export declare class KeyInUse extends Error {
  readonly name: "KeyInUse";
  readonly code: "key-in-use";
  readonly intent: string;
  readonly key: string;
  private constructor();
}

/** No answer was had within the bounds; it may have run, and the key is kept. `cause` is the last network error. */
export declare class Unfinished extends Error {
  readonly name: "Unfinished";
  readonly code: "unfinished";
  readonly intent: string;
  readonly key: string;
  readonly tries: number;
  readonly cause: unknown;
  private constructor();
}
