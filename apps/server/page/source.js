// The source image of a run, the strength, and the mask painted over the image.

import { announce, at } from "./dom.js";

const kLargest = 12 * 1000 * 1000 - 1000; // bytes; 16 MB in base64
const kWidest = 1024; // pixels of the canvas

let image = ""; // base64
let mask = null; // a canvas: black, white where it was painted
let painting = null; // last position of the brush

const context = () => at("source-canvas").getContext("2d");

async function base64Of(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}

function tell(text) {
  at("source-hint").textContent = text;
  announce(text);
}

function clearMask() {
  mask = null;
  const overlay = at("mask-canvas");
  overlay.getContext("2d").clearRect(0, 0, overlay.width, overlay.height);
}

function remove() {
  image = "";
  clearMask();
  at("image").value = "";
  at("source-shown").hidden = true;
}

/** Makes a file the source image of the next runs; reports success or the error. */
export async function setSource(file) {
  try {
    if (file.size > kLargest) throw new Error("it is larger than 12 MB");
    const bitmap = await createImageBitmap(file).catch(() => {
      throw new Error("it is no image that this browser knows");
    });
    const scale = Math.min(1, kWidest / Math.max(bitmap.width, bitmap.height));
    for (const canvas of [at("source-canvas"), at("mask-canvas")]) {
      canvas.width = Math.max(1, Math.round(bitmap.width * scale));
      canvas.height = Math.max(1, Math.round(bitmap.height * scale));
    }
    context().drawImage(bitmap, 0, 0, at("source-canvas").width, at("source-canvas").height);
    image = await base64Of(file);
    clearMask();
    at("source-shown").hidden = false;
    at("source").open = true;
    tell(`Runs start from ${file.name}. Paint over what is to change, or leave it for the whole image.`);
  } catch (error) {
    tell(`${file.name} cannot be used: ${error.message}.`);
  }
}

// Draws a brush line in the mask and over the image.
function paint(from, to) {
  const overlay = at("mask-canvas");
  if (!mask) {
    mask = document.createElement("canvas");
    mask.width = overlay.width;
    mask.height = overlay.height;
    const black = mask.getContext("2d");
    black.fillRect(0, 0, mask.width, mask.height);
  }
  const width = (Number(at("brush").value) / 100) * Math.max(overlay.width, overlay.height);
  for (const [canvas, colour] of [[mask, "#fff"], [overlay, "#f33"]]) {
    const brush = canvas.getContext("2d");
    brush.strokeStyle = colour;
    brush.lineCap = "round";
    brush.lineWidth = width;
    brush.beginPath();
    brush.moveTo(...from);
    brush.lineTo(...to);
    brush.stroke();
  }
}

function place(event) {
  const overlay = at("mask-canvas");
  const box = overlay.getBoundingClientRect();
  return [((event.clientX - box.left) / box.width) * overlay.width,
    ((event.clientY - box.top) / box.height) * overlay.height];
}

/** Returns the fields of a request; empty without an image, or for a model without source images. */
export function sourceFields() {
  if (!image || at("source").hidden) return {};
  const fields = { image };
  if (at("strength").value !== "") fields.strength = Number(at("strength").value);
  if (mask) fields.mask = mask.toDataURL("image/png").split(",")[1];
  return fields;
}

export function startSource() {
  at("image").addEventListener("change", () => at("image").files[0] && setSource(at("image").files[0]));
  at("source-remove").addEventListener("click", () => {
    remove();
    tell("Runs start from noise.");
  });
  at("mask-clear").addEventListener("click", () => {
    clearMask();
    tell("The whole image changes.");
  });
  const overlay = at("mask-canvas");
  overlay.addEventListener("pointerdown", (event) => {
    overlay.setPointerCapture(event.pointerId);
    painting = place(event);
    paint(painting, painting);
  });
  overlay.addEventListener("pointermove", (event) => {
    if (!painting) return;
    const now = place(event);
    paint(painting, now);
    painting = now;
  });
  for (const end of ["pointerup", "pointercancel"]) overlay.addEventListener(end, () => (painting = null));
}
