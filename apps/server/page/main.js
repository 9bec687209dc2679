// Starts the page: models, views, and the connection to the server.

import { connection, getJson, ServerError } from "./api.js";
import { startChat } from "./chat.js";
import { at, h, say } from "./dom.js";
import { startDrop } from "./drop.js";
import { startForm } from "./form.js";
import { startGallery } from "./gallery.js";
import { active, jobs } from "./jobs.js";
import { startKeys } from "./key.js";
import { startQueue } from "./queue.js";
import { startStage } from "./stage.js";

const kLookAtStatus = 5000; // ms, while nothing runs

function startBanner() {
  let wasLost = false;
  let timer;
  const show = () => {
    clearTimeout(timer);
    const banner = at("banner");
    banner.classList.toggle("shown", connection.lost);
    if (connection.lost) {
      const now = h("button", { type: "button", on: { click: () => connection.hurry() } }, "Try now");
      if (!wasLost) banner.replaceChildren(h("span", {}, "The server does not answer. Trying again by itself."), now);
    } else if (wasLost) {
      banner.replaceChildren(h("span", {}, "The server answers again."));
      banner.classList.add("shown", "good");
      timer = setTimeout(() => banner.classList.remove("shown", "good"), 4000);
    }
    if (connection.lost) banner.classList.remove("good");
    wasLost = connection.lost;
  };
  connection.addEventListener("change", show);
}

async function lookAtStatus() {
  for (;;) {
    try {
      const status = await getJson("/status");
      const waiting = status.queue?.waiting ?? 0;
      const runs = status.running?.length ?? 0;
      const work = runs + waiting === 0 ? "idle" : `${runs} running, ${waiting} waiting`;
      say(at("server"), `${status.version ? `Tessera ${status.version}: ` : ""}${work}`);
    } catch (error) {
      say(at("server"), error instanceof ServerError ? error.message : "not connected");
    }
    const often = jobs.all.some(active) ? 0.3 : document.hidden ? 6 : 1;
    await connection.pause(often * kLookAtStatus);
  }
}

/** Returns the models; asks until there is an answer. */
async function models() {
  for (let wait = 1000; ; wait = Math.min(2 * wait, 8000)) {
    try {
      return (await getJson("/models")).models;
    } catch (error) {
      if (error instanceof ServerError) {
        at("banner").replaceChildren(h("span", {}, error.message));
        at("banner").classList.add("shown");
      }
    }
    await connection.pause(wait);
  }
}

function startViews(kinds) {
  const links = [...document.querySelectorAll("[data-view]")];
  const has = { images: kinds.some((kind) => kind !== "text"), chat: kinds.includes("text") };
  for (const link of links) link.hidden = !has[link.dataset.view] || !(has.images && has.chat);
  const show = () => {
    const asked = location.hash.slice(1);
    const view = has[asked] ? asked : has.images ? "images" : "chat";
    for (const name of Object.keys(has)) at(name).hidden = name !== view;
    for (const link of links) {
      if (link.dataset.view === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = view === "chat" ? "Chat - Tessera" : "Images - Tessera";
  };
  addEventListener("hashchange", () => location.hash === "#content" || show());
  show();
}

async function start() {
  startKeys();
  startBanner();
  const served = await models();
  at("banner").classList.remove("shown");
  const pictorial = served.filter((model) => model.kind !== "text");
  startViews(served.map((model) => model.kind));
  const stage = startStage();
  const form = startForm(pictorial, stage);
  startQueue(stage);
  startGallery(form);
  startDrop(form);
  startChat(served.filter((model) => model.kind === "text"));
  jobs.look();
  lookAtStatus();
}

start();
