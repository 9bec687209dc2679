// The form for images: fields, the fields of the chosen model, and errors from the server.

import { ServerError } from "./api.js";
import { announce, at, h, narrow } from "./dom.js";
import { counted } from "./format.js";
import { jobs } from "./jobs.js";
import { sourceFields, startSource } from "./source.js";

const kSchedulers = [
  "rectified-flow", "flow-euler", "dpm++", "dpm++-single", "unipc", "deis", "euler", "euler-ancestral", "heun",
  "lcm", "ddim", "ddpm", "cogvideox-ddim", "cogvideox-dpm",
];
const kNumbers = ["steps", "guidance", "width", "height", "frames", "count", "seed"];
const kPreviewsOfARun = 12;

let models = [];
const chosen = () => models.find((model) => model.name === at("model").value);

const row = (name) => at(name).closest(".field");

function number(name) {
  const text = at(name).value.trim();
  return text === "" || row(name).hidden ? undefined : Number(text);
}

/** Readable text of a plan: "cfg=2, on 2 ranks". */
export function planOf(model) {
  const ranks = model?.ranks ?? 1;
  return model?.plan ? `Plan: ${model.plan}, on ${counted(ranks, "rank")}` : "Plan: one rank";
}

function showModel() {
  const model = chosen();
  if (!model) return;
  const classes = model.class_names ?? [];
  const shown = {
    prompt: model.prompts === true,
    classes: !model.prompts && classes.length > 0,
    "class-number": !model.prompts && classes.length === 0,
    frames: model.kind === "video",
    source: model.prompts === true && model.kind === "image",
  };
  for (const field of document.querySelectorAll("#form [data-for]")) field.hidden = !shown[field.dataset.for];
  const before = at("classes").value;
  at("classes").replaceChildren(...classes.map((name) => h("option", {}, name)));
  if (classes.includes(before)) at("classes").value = before;
  if (model.classes) at("class-number").max = model.classes - 1;
  for (const name of ["steps", "guidance", "width", "height", "frames"])
    at(name).placeholder = model.defaults?.[name] ?? "auto";
  at("plan").textContent = planOf(model);
}

function subjectOf(model) {
  if (model.prompts) return { prompt: at("prompt").value };
  return { classes: [row("classes").hidden ? at("class-number").value : at("classes").value] };
}

function previewsOf(model) {
  const choice = at("previews").value;
  if (choice === "none") return 0;
  const steps = number("steps") ?? model.defaults?.steps ?? kPreviewsOfARun;
  return choice === "all" ? 1 : Math.max(1, Math.round(steps / kPreviewsOfARun));
}

function order() {
  const model = chosen();
  const request = subjectOf(model);
  if (model.prompts && at("negative_prompt").value !== "") request.negative_prompt = at("negative_prompt").value;
  for (const name of kNumbers) {
    const value = number(name);
    if (value !== undefined) request[name] = value;
  }
  for (const name of ["scheduler", "noise"]) if (at(name).value) request[name] = at(name).value;
  Object.assign(request, sourceFields());
  return { model: model.name, request, previews: previewsOf(model) };
}

function forget() {
  at("form-error").textContent = "";
  for (const input of document.querySelectorAll("#form [aria-invalid]")) {
    input.removeAttribute("aria-invalid");
    input.removeAttribute("aria-describedby");
  }
}

/** Shows an error message at the field concerned. */
function complain(message, param) {
  at("form-error").textContent = message;
  const name = String(param ?? "").replace(/^request\./, "").replace(/\[.*/, "");
  const input = { prompts: "prompt", seeds: "seed" }[name] ?? name;
  const field = document.querySelector(`#form [name="${CSS.escape(input)}"]`);
  if (!field || field.closest("[hidden]")) return;
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-describedby", "form-error");
  const fold = field.closest("details");
  if (fold) fold.open = true;
  field.focus();
}

const bad = (input) => !input.closest("[hidden]") && !input.validity.valid;

async function submit(stage) {
  forget();
  const wrong = [...at("form").elements].find((input) => input.validity && bad(input));
  if (wrong) return complain(`${wrong.labels[0].textContent}: ${wrong.validationMessage}`, wrong.name);
  if (at("reseed").checked) at("seed").value = crypto.getRandomValues(new Uint32Array(1))[0];
  at("generate").disabled = true;
  try {
    const job = await jobs.submit(order());
    announce("The request was sent.");
    stage.show(job.id, true);
    if (narrow()) at("stage-title").scrollIntoView({ block: "start" });
  } catch (error) {
    if (error instanceof ServerError) complain(error.message, error.param);
    else complain("The request could not be sent: the server does not answer.");
  } finally {
    at("generate").disabled = false;
  }
}

function setSubject(model, subject) {
  const text = Array.isArray(subject) ? String(subject[0]) : String(subject);
  if (model.prompts) at("prompt").value = text;
  else if (row("classes").hidden) at("class-number").value = text;
  else if (model.class_names.includes(text)) at("classes").value = text;
  else if (/^\d+$/.test(text) && model.class_names[Number(text)]) at("classes").selectedIndex = Number(text);
  else return false;
  return true;
}

/**
 * Fills the form from fields of a request (`subject`: the prompt or the class); returns the names
 * without a place in the form.
 */
function fill(given) {
  forget();
  const left = [];
  if (given.model !== undefined && given.model !== chosen().name) {
    const name = String(given.model).replace(/\/+$/, "").split("/").at(-1);
    if (models.some((model) => model.name === name)) at("model").value = name;
    else left.push(`the model ${given.model}`);
    showModel();
  }
  const subject = given.subject ?? given.prompt ?? given.prompts ?? given.classes;
  if (subject !== undefined && !setSubject(chosen(), subject)) left.push(`the class ${subject}`);
  at("negative_prompt").value = given.negative_prompt ?? "";
  for (const name of kNumbers) at(name).value = given[name] ?? (name === "count" ? 1 : "");
  const scheduler = given.scheduler ?? "";
  if (scheduler && ![...at("scheduler").options].some((option) => option.value === scheduler))
    at("scheduler").append(h("option", { value: scheduler }, scheduler));
  at("scheduler").value = scheduler;
  at("noise").value = given.noise === "philox" ? "philox" : "";
  at("reseed").checked = false;
  return left;
}

/** Starts the form with the models of images and videos; returns {fill}. */
export function startForm(served, stage) {
  models = served;
  at("model").replaceChildren(...models.map((model) => h("option", {}, model.name)));
  at("scheduler").replaceChildren(
    h("option", { value: "" }, "auto"),
    ...kSchedulers.map((name) => h("option", {}, name)),
  );
  at("model").addEventListener("change", showModel);
  startSource();
  at("form").addEventListener("submit", (event) => {
    event.preventDefault();
    submit(stage);
  });
  at("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("form").requestSubmit();
  });
  showModel();
  return { fill };
}
