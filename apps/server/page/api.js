// Requests to the server: with the key, with time limits, and with the server's error messages.

import { EventParser } from "./sse.js";

const kAnswerWithin = 30000; // ms
const kSilence = 45000; // ms; streams send something every 15 s
const kKey = "tessera.key";

/** A refusal with the server's message. */
export class ServerError extends Error {
  constructor(status, body) {
    super(body?.error?.message ?? `the server answered with status ${status}`);
    this.status = status;
    this.type = body?.error?.type ?? "";
    this.param = body?.error?.param ?? null;
  }
}

/** Readable text of an error; fetch throws both kinds without an answer, or after a timeout. */
export const reason = (error) =>
  error instanceof TypeError || error instanceof DOMException ? "The server does not answer." : error.message;

/** State of the connection: sends "change" on a change, and when a new try is due. */
class Connection extends EventTarget {
  lost = false;
  nextTry = 0; // ms since 1970
  #wake = new Set();

  mark(lost) {
    if (this.lost === lost) return;
    this.lost = lost;
    if (!lost) this.hurry();
    this.dispatchEvent(new Event("change"));
  }
  /** Waits, at most until a retry is requested. */
  pause(ms) {
    this.nextTry = Date.now() + ms;
    if (this.lost) this.dispatchEvent(new Event("change"));
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.#wake.delete(done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      this.#wake.add(done);
    });
  }
  hurry() {
    for (const done of [...this.#wake]) done();
  }
}
export const connection = new Connection();

let askForKey = async () => false; // set by key.js
let asking = null;
export function onKeyNeeded(ask) {
  askForKey = ask;
}
export const key = {
  get: () => sessionStorage.getItem(kKey),
  set: (value) => sessionStorage.setItem(kKey, value),
};

async function send(path, options) {
  const headers = new Headers(options.headers);
  if (key.get()) headers.set("Authorization", `Bearer ${key.get()}`);
  try {
    const response = await fetch(path, { ...options, headers, cache: "no-store" });
    connection.mark(false);
    return response;
  } catch (error) {
    if (!options.signal?.aborted || options.signal.reason?.name === "TimeoutError") connection.mark(true);
    throw error;
  }
}

/**
 * Sends a request; throws ServerError for a refusal, TypeError without an answer. Each try has a separate
 * signal, because asking for the key may take longer than an answer.
 */
async function request(path, options = {}, limit = () => AbortSignal.timeout(kAnswerWithin)) {
  for (;;) {
    const used = key.get();
    const response = await send(path, { ...options, signal: limit() });
    if (response.ok) return response;
    const refusal = new ServerError(response.status, await response.json().catch(() => null));
    if (response.status !== 401) throw refusal;
    if (key.get() === used) {
      asking ??= askForKey(used ? refusal.message : "This server asks for a key.").finally(() => (asking = null));
      if (!(await asking)) throw refusal;
    }
  }
}

export const getJson = async (path) => (await request(path)).json();
export const remove = async (path) => (await request(path, { method: "DELETE" })).json();
export async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  return (await request(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

const copies = new Map(); // path -> promise of its copy's address

async function copy(path) {
  try {
    return URL.createObjectURL(await (await request(path)).blob());
  } catch (error) {
    copies.delete(path);
    throw error;
  }
}

/** Address for showing an image or video: the server's, or with a key of a shared copy, kept until `release`. */
export async function sourceOf(path) {
  const address = new URL(path, location.href);
  if (address.origin !== location.origin) throw new Error(`'${path}' is not on this server`);
  if (!key.get()) return address.href;
  if (!copies.has(path)) copies.set(path, copy(path));
  return copies.get(path);
}

/** Frees a copy. */
export function release(path) {
  copies.get(path)?.then(URL.revokeObjectURL, () => {}); // the caller sees the error
  copies.delete(path);
}

async function* pieces(response, signal) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      let timer;
      const silence = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new TypeError("the stream fell silent")), kSilence);
      });
      const { value, done } = await Promise.race([reader.read(), silence]).finally(() => clearTimeout(timer));
      if (done || signal.aborted) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Returns the first answer of a stream within the time limit; the stream has no limit. */
async function open(path, lastId, signal) {
  let timer;
  const limit = () => {
    const attempt = new AbortController();
    clearTimeout(timer);
    timer = setTimeout(() => attempt.abort(), kAnswerWithin);
    return AbortSignal.any([attempt.signal, signal]);
  };
  try {
    return await request(path, { headers: lastId ? { "Last-Event-ID": lastId } : {} }, limit);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Follows a stream of events until `onEvent(name, data)` returns true. A broken stream is resumed
 * after the last event; throws ServerError if the server refuses.
 */
export async function follow(path, onEvent, signal) {
  let lastId = "";
  for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 8000)) {
    const parser = new EventParser();
    let events = [];
    try {
      const stream = pieces(await open(path, lastId, signal), signal);
      for (;;) {
        const { value, done } = await stream.next();
        if (done) break;
        events = parser.push(value);
        if (events.length === 0) continue;
        lastId = parser.lastId || lastId;
        wait = 500;
        let ended = false;
        for (const event of events) ended = onEvent(event.name, JSON.parse(event.data)) || ended;
        if (ended) return void stream.return();
        events = [];
      }
    } catch (error) {
      if (signal.aborted) return;
      const refused = error instanceof ServerError;
      if (events.length > 0 || (refused && error.status !== 429 && error.status !== 503)) throw error;
      if (!refused) connection.mark(true);
    }
    await connection.pause(wait);
  }
}
