// Results with their parameters.

import { reason, sourceOf } from "./api.js";
import { announce, at, h } from "./dom.js";
import { counted, seconds, subject } from "./format.js";
import { jobs } from "./jobs.js";

let form = null;
const cards = new Map(); // url -> element

const isVideo = (result) => String(result.type).startsWith("video/");

/** Returns [name, text] of a result's parameters. */
function parametersOf(job, result) {
  const r = job.request ?? {};
  const took = job.ended && job.started ? seconds(job.ended - job.started) : undefined;
  const size = result.width ? `${result.width} x ${result.height}` : undefined;
  return [
    ["Model", job.model], ["Negative prompt", r.negative_prompt],
    ["Steps", r.steps ?? job.progress?.steps], ["Guidance", r.guidance], ["Seed", result.seed ?? r.seed], ["Size", size],
    ["Frames", r.frames], ["Scheduler", r.scheduler], ["Noise", r.noise],
    ["Made", job.ended && new Date(job.ended * 1000).toLocaleString()], ["Took", took],
  ].filter(([, value]) => value !== undefined && value !== null && value !== "");
}

async function removeJob(job, button) {
  const results = job.results?.length ?? 0;
  if (!button.dataset.sure) {
    button.dataset.sure = "yes";
    button.textContent = `Really remove ${results === 1 ? "it" : `all ${results} of this request`}?`;
    return;
  }
  try {
    await jobs.drop(job.id);
    at("detail").close();
    announce(`Removed ${counted(results, "result")}.`);
    at("gallery-title").focus();
  } catch (error) {
    button.textContent = reason(error);
  }
}

async function reuse(listed, result) {
  at("detail").close();
  const job = await jobs.whole(listed.id).catch((error) => void announce(reason(error)));
  if (!job) return;
  const seed = result.seed ?? job.request?.seed ?? 0;
  form.fill({ ...job.request, model: job.model, seed, count: result.seed === undefined ? job.request?.count : 1 });
  announce("The parameters are in the form.");
  at("form-title").scrollIntoView({ block: "nearest" });
  at("model").focus();
}

function enlarged(result, source, title) {
  if (isVideo(result)) return h("video", { src: source, controls: true, loop: true, "aria-label": title });
  const shown = h("img", { src: source, alt: title });
  shown.addEventListener("load", () => shown.classList.toggle("small", shown.naturalWidth < 256));
  return shown;
}

async function open(job, result) {
  const dialog = at("detail");
  const title = subject(job);
  let source = null;
  let shown;
  try {
    source = await sourceOf(result.url);
    shown = enlarged(result, source, title);
  } catch (error) {
    shown = h("p", { class: "error", role: "alert" }, reason(error));
  }
  const name = `${job.model}-${job.id}-${job.results.findIndex((one) => one.url === result.url)}.${isVideo(result) ? "mp4" : "png"}`;
  const forget = h("button", { type: "button", on: { click: () => removeJob(job, forget) } }, "Remove");
  const list = parametersOf(job, result).map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, String(value))));
  dialog.replaceChildren(
    h("h2", { id: "detail-title" }, title),
    h("div", { class: "frame" }, shown),
    h("dl", { class: "parameters" }, list),
    h("div", { class: "buttons" },
      h("button", { type: "button", class: "primary", on: { click: () => reuse(job, result) } }, "Use again"),
      source && h("a", { class: "button", href: source, download: name }, "Download"),
      forget,
      h("button", { type: "button", on: { click: () => dialog.close() } }, "Close")),
  );
  dialog.showModal();
}

async function card(job, result) {
  const title = subject(job);
  const seed = result.seed === undefined ? "" : `, seed ${result.seed}`;
  const shown = isVideo(result)
    ? h("video", { muted: true, preload: "metadata" })
    : h("img", { alt: "", loading: "lazy", width: result.width, height: result.height });
  if ((result.width ?? 256) < 256) shown.classList.add("small");
  const made = h("li", {},
    h("button", { type: "button", class: "card", "aria-label": `${title}${seed}: show`, on: { click: () => open(jobs.get(job.id) ?? job, result) } },
      shown, h("span", { class: "caption" }, title), h("span", { class: "hint" }, `${job.model}${seed}`)));
  cards.set(result.url, made);
  shown.src = await sourceOf(result.url).catch(() => "");
  return made;
}

function refresh() {
  const list = at("gallery").querySelector("ul");
  const results = jobs.all
    .filter((job) => job.state === "done" && job.kind !== "text")
    .flatMap((job) => (job.results ?? []).map((result) => ({ job, result })));
  const shown = new Set(results.map(({ result }) => result.url));
  for (const [url, element] of cards) {
    if (shown.has(url)) continue;
    element.remove();
    cards.delete(url);
  }
  results.forEach(({ job, result }, i) => {
    if (!cards.has(result.url)) card(job, result);
    const element = cards.get(result.url);
    if (list.children[i] !== element) list.insertBefore(element, list.children[i] ?? null);
  });
  at("gallery").querySelector("#gallery-empty").hidden = results.length > 0;
  at("older").hidden = !jobs.more;
}

export function startGallery(filledForm) {
  form = filledForm;
  at("gallery-title").tabIndex = -1;
  const older = h("button", { type: "button", id: "older", hidden: true }, "Show older ones");
  older.addEventListener("click", async () => {
    older.disabled = true;
    await jobs.older().catch((error) => announce(error.message));
    older.disabled = false;
  });
  at("gallery").append(h("ul", { class: "cards" }), h("p", { class: "hint", id: "gallery-empty" }, "Results are kept here, with the parameters that made them."), older);
  at("detail").addEventListener("close", () => at("detail").replaceChildren());
  jobs.addEventListener("change", refresh);
}
