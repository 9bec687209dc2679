// The jobs of the server, in the last state seen by the page.

import { connection, follow, getJson, post, release, remove, ServerError } from "./api.js";
import { soon } from "./dom.js";

const kShown = 40;
const kBusy = 2000; // ms between two updates while a job runs
const kIdle = 10000;
const kStates = { done: "done", failed: "failed", cancelled: "cancelled" };

export const active = (job) => job.state === "queued" || job.state === "running";

/** Sends "change" for each new, removed or changed job. */
class Jobs extends EventTarget {
  #jobs = new Map();
  #timer;
  #looking = null;
  #more = false; // true if the server may have older jobs
  #version = 0; // incremented by changes that a pending list does not contain

  get all() {
    return [...this.#jobs.values()].sort((a, b) => b.created - a.created);
  }
  get more() {
    return this.#more;
  }
  get(id) {
    return this.#jobs.get(id);
  }

  /** Asks the server for the newest jobs, repeatedly. */
  look() {
    clearTimeout(this.#timer);
    this.#looking ??= this.#read().finally(() => {
      this.#looking = null;
      const wait = this.all.some(active) || connection.lost ? kBusy : kIdle;
      this.#timer = setTimeout(() => this.look(), document.hidden ? kIdle : wait);
    });
    return this.#looking;
  }

  async #read() {
    let newest;
    try {
      newest = await this.#list(() => "");
    } catch {
      return; // the connection or the key reports the error
    }
    const oldest = Math.min(...newest.map((job) => job.created));
    const whole = newest.length < kShown;
    const heard = new Set(newest.map((job) => job.id));
    for (const [id, job] of this.#jobs)
      if (!heard.has(id) && (whole || job.created >= oldest)) this.#forget(id);
    if (whole || this.#jobs.size === 0) this.#more = !whole;
    for (const job of newest) this.#merge(job);
    this.#changed();
  }

  async older() {
    const last = () => this.all.at(-1);
    const jobs = await this.#list(() => (last() ? `&before=${encodeURIComponent(last().id)}` : ""));
    for (const job of jobs) this.#merge(job);
    this.#more = jobs.length === kShown;
    this.#changed();
  }

  /** Returns the server's list; asks again if the page changed during the request. */
  async #list(query) {
    for (;;) {
      const version = this.#version;
      const { jobs } = await getJson(`/jobs?limit=${kShown}${query()}`);
      if (version === this.#version) return jobs;
    }
  }

  /** Sends a request, {model, request, previews}; returns the job, or throws ServerError. */
  async submit(order) {
    const { id, state, position } = await post("/jobs", order);
    const created = Date.now() / 1000;
    const known = this.#jobs.get(id); // an update may already have newer data
    this.#merge(known ?? { id, state, position, model: order.model, request: order.request, created, results: [] });
    ++this.#version;
    this.#changed();
    this.look();
    return this.get(id);
  }

  /** Cancels a job; an ended job does not change. */
  cancel(id) {
    return this.#delete(id, "?cancel=1");
  }

  /** Removes an ended job, with its files. */
  drop(id) {
    return this.#delete(id, "");
  }

  async #delete(id, query) {
    const version = this.#version;
    try {
      const answer = await remove(`/jobs/${encodeURIComponent(id)}${query}`);
      if (answer.removed) this.#forget(id);
      else if (version === this.#version) this.#merge(answer); // otherwise the answer may be outdated
    } catch (error) {
      if (!(error instanceof ServerError) || error.status !== 404) throw error;
      this.#forget(id);
    }
    ++this.#version;
    this.#changed();
    this.look();
  }

  /** Follows a job to the end; calls `onEvent(name, data)` for each event. */
  async watch(id, onEvent, signal = new AbortController().signal) {
    const seen = (name, data) => {
      this.#learn(id, name, data);
      onEvent(name, data);
      return name in kStates;
    };
    try {
      await follow(`/jobs/${encodeURIComponent(id)}/events`, seen, signal);
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      seen("failed", { error: { message: error.message } });
    }
    if (signal.aborted) return;
    await this.look();
  }

  #learn(id, name, data) {
    if (name in kStates) ++this.#version;
    const job = this.#jobs.get(id);
    if (!job || !(active(job) || name in kStates)) return; // an update reported the end before the stream
    if (name === "state") this.#merge({ id, ...data });
    else if (name === "progress") this.#merge({ id, state: "running", progress: data });
    else if (name in kStates) this.#merge({ id, state: name, ...data });
    else return;
    this.#changed();
  }

  /** Merges data of a job. Lists only have the beginning of long texts, so known texts stay. */
  #merge(job) {
    const known = this.#jobs.get(job.id) ?? {};
    const merged = { ...known, ...job };
    const cut = new Set(known.shortened);
    for (const name of Object.keys(job)) {
      if (!job.shortened?.includes(name)) cut.delete(name);
      else if (name in known && !cut.has(name)) merged[name] = known[name];
      else cut.add(name);
    }
    this.#jobs.set(job.id, { ...merged, shortened: [...cut] });
  }
  /** Returns the job with complete texts. */
  async whole(id) {
    if (this.#jobs.get(id)?.shortened.length) this.#merge(await getJson(`/jobs/${encodeURIComponent(id)}`));
    return this.#jobs.get(id);
  }
  #forget(id) {
    for (const result of this.#jobs.get(id)?.results ?? []) release(result.url);
    this.#jobs.delete(id);
  }
  #changed = soon(() => this.dispatchEvent(new Event("change")));
}

export const jobs = new Jobs();

addEventListener("visibilitychange", () => document.hidden || jobs.look());
connection.addEventListener("change", () => connection.lost || jobs.look());
