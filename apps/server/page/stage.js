// The current image, refined from step to step, and then the results.

import { reason, sourceOf } from "./api.js";
import { announce, at, h, soon } from "./dom.js";
import { counted, line, seconds, subject } from "./format.js";
import { active, jobs } from "./jobs.js";
import { clearRanks, showRanks } from "./ranks.js";

let shownId = null;
let stop = new AbortController();
let previews = []; // {step, image}
let drawn = null; // address of the shown result
let parts = null;
let spoken = "";

const isVideo = (result) => String(result.type).startsWith("video/");

function build() {
  parts = {
    frame: h("div", { class: "frame" }),
    title: h("p", { class: "subject" }),
    bar: h("progress", { max: 1, value: 0, "aria-label": "Steps done" }),
    text: h("p", { class: "hint state" }),
    steps: h("input", { type: "range", min: 0, step: 1, "aria-label": "Look at an earlier step" }),
    history: h("div", { class: "history", hidden: true }),
    results: h("div", { class: "thumbs", role: "group", "aria-label": "Results of this request", hidden: true }),
    cancel: h("button", { type: "button", hidden: true, on: { click: cancel } }, "Cancel"),
    error: h("p", { class: "error", role: "alert" }),
  };
  parts.history.append(h("span", { class: "hint" }, "Steps"), parts.steps);
  parts.steps.addEventListener("input", () => drawPreview(Number(parts.steps.value)));
  at("stage").replaceChildren(
    parts.frame, parts.title, parts.bar, h("div", { class: "line" }, parts.text, parts.cancel),
    parts.history, parts.results, parts.error,
  );
}

function empty() {
  const tiles = Array.from({ length: 16 }, () => h("span"));
  parts.frame.replaceChildren(h("div", { class: "mosaic", "aria-hidden": "true" }, tiles));
}

function draw(source, alt, video) {
  const old = parts.frame.querySelector(video ? "video" : "img");
  if (old) {
    old.src = source;
    if (!video) old.alt = alt;
    return;
  }
  const made = video
    ? h("video", { src: source, controls: true, loop: true, muted: true, "aria-label": alt })
    : h("img", { src: source, alt });
  made.addEventListener("load", () => made.classList.toggle("small", made.naturalWidth < 256));
  parts.frame.replaceChildren(made);
}

function drawPreview(index) {
  const preview = previews[index];
  if (!preview) return drawResult(jobs.get(shownId)?.results?.[0]);
  drawn = null;
  parts.steps.setAttribute("aria-valuetext", `step ${preview.step}`);
  draw(preview.image, `Step ${preview.step} of ${subject(jobs.get(shownId) ?? {})}`, false);
}

async function drawResult(result) {
  if (!result || drawn === result.url) return;
  drawn = result.url;
  const id = shownId;
  const source = await sourceOf(result.url).catch(() => null);
  if (!source || id !== shownId || drawn !== result.url) return;
  const job = jobs.get(id) ?? {}; // may be removed by now
  draw(source, `${subject(job)}${result.seed === undefined ? "" : `, seed ${result.seed}`}`, isVideo(result));
  for (const button of parts.results.children)
    button.setAttribute("aria-pressed", button.dataset.url === result.url ? "true" : "false");
  parts.steps.max = previews.length;
  parts.steps.value = previews.length;
  parts.steps.setAttribute("aria-valuetext", "the result");
}

async function thumb(result, index) {
  const picture = isVideo(result) ? h("video", { muted: true, preload: "metadata" }) : h("img", { alt: "" });
  picture.src = await sourceOf(result.url).catch(() => "");
  const name = `Result ${index + 1}${result.seed === undefined ? "" : `, seed ${result.seed}`}`;
  const pressed = String(result.url === drawn);
  return h("button", {
    type: "button", "aria-label": name, "aria-pressed": pressed, "data-url": result.url,
    on: { click: () => drawResult(result) },
  }, picture);
}

async function showResults(job) {
  const results = job?.results ?? [];
  const id = shownId;
  parts.results.hidden = results.length < 2;
  const buttons = results.length < 2 ? [] : await Promise.all(results.map(thumb));
  if (id !== shownId) return;
  parts.results.replaceChildren(...buttons);
  await drawResult(results[0]);
}

function stateText(job) {
  const p = job.progress;
  const ended = job.ended && job.started ? ` in ${seconds(job.ended - job.started)}` : "";
  switch (job.state) {
    case "queued": return `In the queue: ${line(job)}`;
    case "running": {
      if (!p?.steps) return "Preparing";
      const left = p.step > 0 ? (p.seconds / p.step) * (p.steps - p.step) : null;
      const rest = left === null || p.step === p.steps ? "" : `, about ${seconds(left)} left`;
      return `Step ${p.step} of ${p.steps}${rest}`;
    }
    case "done": return `Done: ${counted(job.results?.length ?? 0, "result")}${ended}`;
    case "cancelled": return "Cancelled";
    default: return "Failed";
  }
}

// Announces milestones only: each step would be noise.
function speak(job) {
  const now = job.state === "running" ? "The image is being made." : stateText(job);
  if (now !== spoken && job.state !== "queued") announce(now);
  spoken = now;
}

function refresh() {
  const job = jobs.get(shownId);
  if (!job) return;
  const p = job.progress;
  parts.title.textContent = subject(job);
  parts.text.textContent = stateText(job);
  parts.text.title = (job.state === "queued" && job.waits_for?.message) || "";
  if (job.state === "running" && !p?.steps) parts.bar.removeAttribute("value");
  else parts.bar.value = job.state === "done" ? 1 : p?.steps ? p.step / p.steps : 0;
  parts.bar.hidden = !active(job);
  parts.cancel.hidden = !active(job);
  parts.error.textContent = (job.state !== "cancelled" && job.error?.message) || "";
  parts.history.hidden = previews.length < 2;
  parts.steps.max = previews.length - (job.state === "done" ? 0 : 1);
  speak(job);
}

const refreshSoon = soon(refresh);

function onEvent(name, data) {
  if (name === "preview" && String(data.image).startsWith("data:image/")) {
    if (data.step <= previews.at(-1)?.step) previews = []; // the job began again
    const following = Number(parts.steps.value) >= previews.length - 1;
    previews.push({ step: data.step, image: data.image });
    refresh();
    if (following) {
      parts.steps.value = previews.length - 1;
      drawPreview(previews.length - 1);
    }
  }
  if (name === "ranks") showRanks(data);
  refreshSoon();
  if (name === "done") showResults(jobs.get(shownId));
}

async function cancel() {
  parts.cancel.disabled = true;
  try {
    await jobs.cancel(shownId);
  } catch (error) {
    parts.error.textContent = reason(error);
  } finally {
    parts.cancel.disabled = false;
  }
}

/** Shows a job: live progress, or the results after the end. */
function show(id) {
  stop.abort();
  stop = new AbortController();
  const { signal } = stop;
  shownId = id;
  previews = [];
  drawn = null;
  spoken = "";
  parts.results.replaceChildren();
  parts.results.hidden = true;
  empty();
  clearRanks();
  refresh();
  const seen = (name, data) => signal.aborted || onEvent(name, data);
  jobs.watch(id, seen, signal).catch((error) => {
    if (!signal.aborted) parts.error.textContent = error.message;
  });
}

export function startStage() {
  build();
  empty();
  parts.bar.hidden = true;
  parts.text.textContent = "What is made here appears step by step.";
  jobs.addEventListener("change", refresh);
  return { show, shown: () => shownId };
}
