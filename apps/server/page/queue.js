// Waiting, running and failed jobs of all clients.

import { reason } from "./api.js";
import { announce, at, h } from "./dom.js";
import { line, subject } from "./format.js";
import { active, jobs } from "./jobs.js";

const kFailedShown = 5;

let stage = null;
const rows = new Map(); // id -> {element, ...}
const dropping = new Set(); // ids

function place(job) {
  if (job.state === "running") return job.progress?.steps ? `step ${job.progress.step} of ${job.progress.steps}` : "preparing";
  if (job.state === "queued") return line(job);
  return job.state;
}

async function drop(id, name, cancels) {
  if (dropping.has(id)) return;
  dropping.add(id);
  try {
    await (cancels ? jobs.cancel(id) : jobs.drop(id));
    const late = cancels && ["done", "failed"].includes(jobs.get(id)?.state);
    announce(`${late ? "It had ended" : cancels ? "Cancelled" : "Removed"}: ${name}`);
  } catch (error) {
    announce(reason(error));
  } finally {
    dropping.delete(id);
  }
}

function build(job) {
  const name = subject(job);
  const row = {
    name: h("p", { class: "name", title: name }, name),
    state: h("p", { class: "hint" }),
    bar: h("progress", { max: 1, value: 0, "aria-label": `Steps done: ${name}` }),
    error: h("p", { class: "error" }),
    watch: h("button", { type: "button", class: "quiet", "aria-label": `Watch: ${name}`, on: { click: () => stage.show(job.id) } }, "Watch"),
    drop: h("button", { type: "button", class: "quiet" }),
  };
  row.drop.addEventListener("click", () => drop(job.id, name, row.drop.textContent === "Cancel"));
  row.element = h("li", {}, row.name, h("div", { class: "line" }, row.state, h("span", { class: "actions" }, row.watch, row.drop)), row.bar, row.error);
  return row;
}

function update(row, job) {
  row.state.textContent = `${job.model}, ${place(job)}`;
  row.state.title = (job.state === "queued" && job.waits_for?.message) || "";
  row.element.dataset.state = job.state;
  row.element.classList.toggle("shown", job.id === stage.shown());
  row.bar.hidden = job.state !== "running";
  row.bar.value = job.progress?.steps ? job.progress.step / job.progress.steps : 0;
  row.error.textContent = job.state === "failed" ? (job.error?.message ?? "it failed") : job.state === "queued" ? (job.error?.message ?? "") : "";
  row.watch.hidden = !active(job) || job.kind === "text" || job.id === stage.shown();
  const verb = active(job) ? "Cancel" : "Remove";
  if (row.drop.textContent !== verb) {
    row.drop.textContent = verb;
    row.drop.setAttribute("aria-label", `${verb}: ${subject(job)}`);
  }
}

function refresh() {
  const all = jobs.all;
  const running = all.filter((job) => job.state === "running");
  const queued = all.filter((job) => job.state === "queued").sort((a, b) => (a.position ?? Infinity) - (b.position ?? Infinity) || a.created - b.created);
  const failed = all.filter((job) => job.state === "failed").slice(0, kFailedShown);
  const shown = [...running, ...queued, ...failed];
  const list = at("queue").firstElementChild;
  for (const [id, row] of rows) {
    if (shown.some((job) => job.id === id)) continue;
    if (row.element.contains(document.activeElement)) at("queue-title").focus();
    row.element.remove();
    rows.delete(id);
  }
  shown.forEach((job, i) => {
    if (!rows.has(job.id)) rows.set(job.id, build(job));
    const row = rows.get(job.id);
    update(row, job);
    if (list.children[i] !== row.element) list.insertBefore(row.element, list.children[i] ?? null);
  });
  list.hidden = shown.length === 0;
  at("queue").lastElementChild.hidden = shown.length > 0;
}

export function startQueue(shownStage) {
  stage = shownStage;
  at("queue-title").tabIndex = -1;
  at("queue").append(h("ol", { class: "rows", hidden: true }), h("p", { class: "hint" }, "Nothing waits."));
  jobs.addEventListener("change", refresh);
}
