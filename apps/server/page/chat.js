// A conversation with a language model: the answer, and beside the answer the current block with masks.

import { reason, ServerError } from "./api.js";
import { announce, at, h } from "./dom.js";
import { planOf } from "./form.js";
import { seconds } from "./format.js";
import { BlockView } from "./block_view.js";
import { jobs } from "./jobs.js";

const kNumbers = { max_tokens: "max_tokens", block: "block", threshold: "threshold", temperature: "temperature", "chat-seed": "seed" };

let models = [];
let said = []; // [{role, content}]
let running = null; // {id, stopped}

const chosen = () => models.find((model) => model.name === at("chat-model").value);

function settings() {
  const request = {};
  for (const [id, name] of Object.entries(kNumbers)) if (at(id).value !== "") request[name] = Number(at(id).value);
  if (at("select").value.trim()) request.select = at("select").value.trim();
  return request;
}

const nearEnd = (box) => box.scrollHeight - box.scrollTop - box.clientHeight < 80;

/** Adds to the conversation, and keeps the end in view if visible before. */
function changed(change) {
  const box = at("turns");
  const follow = nearEnd(box);
  change();
  if (follow) box.scrollTop = box.scrollHeight;
}

function turn(role, content) {
  const text = h("p", { class: "said" }, content);
  const box = h("article", { class: `turn ${role}` }, h("h3", {}, role === "user" ? "You" : chosen().name), text);
  changed(() => {
    at("turns").querySelector(".welcome")?.remove();
    at("turns").append(box);
  });
  return { box, text };
}

function busy(is) {
  at("send").hidden = is;
  at("stop").hidden = !is;
  at("forget").disabled = is;
  at("turns").setAttribute("aria-busy", String(is));
}

function complain(message) {
  at("chat-error").textContent = message;
}

/** Follows an answer to the end and returns the text. */
async function answer(id) {
  const { box, text } = turn("assistant", "");
  const view = new BlockView();
  box.append(view.element);
  let end = "done";
  const onEvent = (name, data) =>
    changed(() => {
      if (name === "block" && (data.sequence ?? 0) === 0) view.show(data);
      if (name === "text" && (data.sequence ?? 0) === 0) text.append(data.delta);
      if (name === "failed" || name === "cancelled") end = name;
      if (name === "failed") complain(data.error?.message ?? "the answer failed");
    });
  await jobs.watch(id, onEvent);
  const job = jobs.get(id);
  const whole = typeof job?.text === "string" && end === "done" ? job.text : text.textContent;
  const took = job?.ended && job?.started ? seconds(job.ended - job.started) : "";
  changed(() => {
    text.textContent = whole;
    view.finish([end === "done" ? "" : end, took].filter((part) => part !== "").join(", "));
  });
  announce(end === "done" ? `Answer: ${whole}` : `The answer was ${end}.`);
  return end === "failed" && whole === "" ? null : whole;
}

/** Cancels the current or pending job. */
async function stop() {
  if (!running) return;
  running.stopped = true;
  if (running.id === undefined) return; // send() cancels later, when the job has an id
  try {
    await jobs.cancel(running.id);
  } catch (error) {
    complain(reason(error));
  }
}

async function send() {
  const content = at("message").value;
  if (running || content.trim() === "") return;
  complain("");
  const history = at("remember").checked ? said : [];
  const request = { ...settings(), messages: [...history, { role: "user", content }] };
  running = {};
  busy(true);
  try {
    const job = await jobs.submit({ model: chosen().name, request });
    running.id = job.id;
    if (running.stopped) stop();
    at("message").value = "";
    turn("user", content);
    at("stop").focus();
    const text = await answer(job.id);
    said.push({ role: "user", content });
    if (text === null) said.pop();
    else said.push({ role: "assistant", content: text });
  } catch (error) {
    complain(error instanceof ServerError ? error.message : "The message could not be sent: the server does not answer.");
  } finally {
    running = null;
    busy(false);
    at("message").focus();
  }
}

function welcome() {
  said = [];
  at("turns").replaceChildren(
    h("div", { class: "welcome" },
      h("div", { class: "mosaic", "aria-hidden": "true" }, Array.from({ length: 16 }, () => h("span"))),
      h("p", { class: "hint" }, "An answer is written block by block; each block begins as masks, which are filled in any order.")));
  complain("");
}

/** Starts the chat with the language models. */
export function startChat(served) {
  models = served;
  if (models.length === 0) return;
  at("chat-model").replaceChildren(...models.map((model) => h("option", {}, model.name)));
  const showPlan = () => (at("chat-plan").textContent = planOf(chosen()));
  at("chat-model").addEventListener("change", () => {
    showPlan();
    if (!running) welcome();
  });
  at("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  at("chat-settings").addEventListener("submit", (event) => event.preventDefault());
  at("message").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  at("stop").addEventListener("click", stop);
  at("forget").addEventListener("click", () => {
    welcome();
    at("message").focus();
  });
  welcome();
  showPlan();
}
