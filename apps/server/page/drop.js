// A dropped or chosen image fills the form with its parameters; an image dropped on the form's image
// field becomes the source image of runs.

import { announce, at } from "./dom.js";
import { requestOf } from "./parameters.js";
import { pngTexts } from "./png_text.js";
import { setSource } from "./source.js";

const kLargest = 256 * 1000 * 1000;

async function load(file, form) {
  const hint = at("load-hint");
  try {
    if (file.size > kLargest) throw new Error("it is larger than 256 MB");
    const text = pngTexts(await file.arrayBuffer()).get("parameters");
    if (text === undefined) throw new Error("no parameters stand in it");
    const left = form.fill(requestOf(text));
    hint.textContent = `The parameters of ${file.name} are in the form${left.length ? `, but not ${left.join(" and ")}: this server does not have it` : ""}.`;
  } catch (error) {
    hint.textContent = `${file.name} cannot be loaded: ${error.message}.`;
  }
  announce(hint.textContent);
}

export function startDrop(form) {
  at("load").addEventListener("change", () => {
    const [file] = at("load").files;
    if (file) load(file, form);
    at("load").value = "";
  });
  const files = (event) => event.dataTransfer?.types.includes("Files") && !at("images").hidden;
  addEventListener("dragover", (event) => {
    if (!files(event)) return;
    event.preventDefault();
    at("drop").classList.add("shown");
  });
  addEventListener("dragleave", (event) => event.relatedTarget ?? at("drop").classList.remove("shown"));
  addEventListener("drop", (event) => {
    at("drop").classList.remove("shown");
    if (!files(event)) return;
    event.preventDefault();
    if (event.dataTransfer.files.length === 0) return;
    if (event.target.closest?.("#source")) setSource(event.dataTransfer.files[0]);
    else load(event.dataTransfer.files[0], form);
  });
}
