// The current block of a language model: a tile for each token, and the experts of each pass.

import { h, svg } from "./dom.js";
import { counted } from "./format.js";

const kHigh = 18;
const kBar = 4;
const kPassesShown = 64;
const kPassesKept = 2000;

const readable = (text) => (text === "" ? "\u00b7" : text.replaceAll("\n", "\u21b5").replaceAll(" ", "\u2423"));
const rounded = (n) => Math.round(n * 10) / 10;

function bars(experts) {
  const shown = experts.slice(-kPassesShown);
  const most = Math.max(1, ...shown);
  const rects = shown.map((n, i) => {
    const high = Math.max(1, (n / most) * kHigh);
    return svg("rect", { x: i * kBar, y: kHigh - high, width: kBar - 1, height: high });
  });
  const label = `Experts by pass: ${shown.map(rounded).join(", ")}`;
  return svg("svg", { class: "bars", role: "img", "aria-label": label, width: shown.length * kBar, height: kHigh }, rects);
}

function factsOf(pass) {
  const filled = pass.texts.filter((text) => text !== null).length;
  const parts = [`Block ${pass.block}, pass ${pass.number}`, `${filled} of ${pass.texts.length} filled`];
  if (pass.experts !== undefined) parts.push(counted(rounded(pass.experts), "expert"));
  return parts.join(", ");
}

function fill(tile, text) {
  const shown = text === null ? "" : readable(text);
  const name = text === null ? "mask" : "filled";
  if (tile.textContent !== shown) tile.textContent = shown;
  if (tile.className !== name) tile.className = name;
}

/** `element` shows the passes of an answer live, and after the end any chosen pass. */
export class BlockView {
  #passes = []; // {block, number, begin, texts, experts}
  #count = 0;
  #grid = h("div", { class: "tiles", "aria-hidden": "true" });
  #facts = h("p", { class: "hint" });
  element = h("div", { class: "block" }, this.#grid, this.#facts);

  /** An event `block`: the tokens of the current block after a pass, null for a mask. */
  show(data) {
    const texts = data.texts ?? data.ids.map(String);
    const last = this.#passes.at(-1);
    const block = last === undefined ? 1 : last.begin === data.begin ? last.block : last.block + 1;
    const experts = typeof data.experts === "number" ? data.experts : undefined;
    this.#passes.push({ block, number: ++this.#count, begin: data.begin, texts, experts });
    if (this.#passes.length > kPassesKept) this.#passes.shift();
    this.#draw(this.#passes.at(-1));
  }

  /** Shows a complete answer: statistics, and a slider over the passes. */
  finish(text) {
    if (this.#passes.length === 0) return this.element.replaceChildren(h("p", { class: "hint" }, text));
    const last = this.#passes.length - 1;
    const slider = h("input", { type: "range", min: 0, max: last, step: 1, "aria-label": "Look at a pass" });
    const look = () => {
      this.#draw(this.#passes[slider.value]);
      slider.setAttribute("aria-valuetext", this.#facts.textContent);
    };
    slider.value = last;
    slider.addEventListener("input", look);
    look();
    const experts = this.#passes.map((pass) => pass.experts).filter((n) => n !== undefined);
    const mean = experts.reduce((sum, n) => sum + n, 0) / experts.length;
    const facts = [counted(this.#passes[last].block, "block"), counted(this.#count, "pass")];
    if (experts.length > 0) facts.push(`${counted(rounded(mean), "expert")} a pass`);
    facts.push(text);
    this.element.replaceChildren(
      h("p", { class: "hint facts" }, h("span", {}, facts.join(", ")), experts.length > 0 && bars(experts)),
      h("details", {}, h("summary", {}, "How it was filled in"), this.#grid, h("div", { class: "history" }, slider), this.#facts));
  }

  #draw(pass) {
    if (this.#grid.children.length !== pass.texts.length)
      this.#grid.replaceChildren(...pass.texts.map(() => h("span", { class: "mask" })));
    pass.texts.forEach((text, i) => fill(this.#grid.children[i], text));
    this.#facts.textContent = factsOf(pass);
  }
}
