// The jobs that the server knows, as the page last heard of them.

import { connection, follow, getJson, post, remove, ServerError } from "./api.js";
import { soon } from "./dom.js";

const kShown = 40;
const kBusy = 2000; // ms between two looks while something runs
const kIdle = 10000;
const kStates = { done: "done", failed: "failed", cancelled: "cancelled" };

export const active = (job) => job.state === "queued" || job.state === "running";

/** "change" is sent whenever a job is new, gone or not what it was. */
class Jobs extends EventTarget {
  #jobs = new Map();
  #timer;
  #looking = null;
  #more = false; // whether the server may have older ones

  get all() {
    return [...this.#jobs.values()].sort((a, b) => b.created - a.created);
  }
  get more() {
    return this.#more;
  }
  get(id) {
    return this.#jobs.get(id);
  }

  /** Asks the server for the newest jobs, now and then again. */
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
    let answer;
    try {
      answer = await getJson(`/jobs?limit=${kShown}`);
    } catch {
      return; // the connection or the key says what is wrong
    }
    const newest = answer.jobs;
    const oldest = Math.min(...newest.map((job) => job.created));
    const whole = newest.length < kShown;
    const heard = new Set(newest.map((job) => job.id));
    for (const [id, job] of this.#jobs)
      if (!heard.has(id) && (whole || job.created >= oldest)) this.#jobs.delete(id);
    if (whole || this.#jobs.size === 0) this.#more = !whole;
    for (const job of newest) this.#merge(job);
    this.#changed();
  }

  async older() {
    const last = this.all.at(-1);
    const { jobs } = await getJson(`/jobs?limit=${kShown}${last ? `&before=${encodeURIComponent(last.id)}` : ""}`);
    for (const job of jobs) this.#merge(job);
    this.#more = jobs.length === kShown;
    this.#changed();
  }

  /** Sends a request, {model, request, previews}; the job, or ServerError. */
  async submit(order) {
    const { id, state, position } = await post("/jobs", order);
    const now = Date.now() / 1000;
    this.#merge({ id, state, position, model: order.model, request: order.request, created: now, results: [] });
    this.#changed();
    this.look();
    return this.get(id);
  }

  /** Cancels a job, or takes one that has ended away with its files. */
  async drop(id) {
    try {
      const answer = await remove(`/jobs/${encodeURIComponent(id)}`);
      if (answer.removed) this.#jobs.delete(id);
      else this.#merge(answer);
    } catch (error) {
      if (!(error instanceof ServerError) || error.status !== 404) throw error;
      this.#jobs.delete(id);
    }
    this.#changed();
  }

  /** Follows a job to its end; `onEvent(name, data)` sees its events. */
  async watch(id, onEvent, signal) {
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
    await this.#looking; // begun before the end, it may not know of it
    await this.look();
  }

  #learn(id, name, data) {
    const job = this.#jobs.get(id);
    if (!job) return;
    if (name === "state") this.#merge({ id, ...data });
    else if (name === "progress") this.#merge({ id, state: "running", progress: data });
    else if (name in kStates) this.#merge({ id, state: name, ...data });
    else return;
    this.#changed();
  }

  #merge(job) {
    this.#jobs.set(job.id, { ...this.#jobs.get(job.id), ...job });
  }
  #changed = soon(() => this.dispatchEvent(new Event("change")));
}

export const jobs = new Jobs();

addEventListener("visibilitychange", () => document.hidden || jobs.look());
connection.addEventListener("change", () => connection.lost || jobs.look());
