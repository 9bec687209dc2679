// The block that a language model is filling in: a tile a token, and the experts of each pass.

import { h, svg } from "./dom.js";
import { counted } from "./format.js";

const kHigh = 18;
const kBar = 4;
const kPassesShown = 64;

const readable = (text) => (text === "" ? "\u00b7" : text.replaceAll("\n", "\u21b5").replaceAll(" ", "\u2423"));

function bars(experts) {
  const shown = experts.slice(-kPassesShown);
  const most = Math.max(1, ...shown);
  const rects = shown.map((n, i) => {
    const high = Math.max(1, (n / most) * kHigh);
    return svg("rect", { x: i * kBar, y: kHigh - high, width: kBar - 1, height: high });
  });
  const label = `Experts by pass: ${shown.join(", ")}`;
  return svg("svg", { class: "bars", role: "img", "aria-label": label, width: shown.length * kBar, height: kHigh }, rects);
}

export class BlockView {
  #begin = null;
  #tiles = [];
  #blocks = 0;
  #experts = [];
  #grid = h("div", { class: "tiles", "aria-hidden": "true" });
  #facts = h("span", {});
  #chart = h("span", {});
  passes = 0;
  element = h("div", { class: "block" }, this.#grid, h("p", { class: "hint facts" }, this.#facts, this.#chart));

  /** An event `block`: the tokens of the current block after a pass, null for a mask. */
  show(data) {
    const texts = data.texts ?? data.ids.map(String);
    if (data.begin !== this.#begin || texts.length !== this.#tiles.length) this.#next(data.begin, texts.length);
    ++this.passes;
    texts.forEach((text, i) => this.#fill(this.#tiles[i], text));
    const filled = texts.filter((text) => text !== null).length;
    const parts = [`Block ${this.#blocks}, pass ${this.passes}`, `${filled} of ${texts.length} filled`];
    if (typeof data.experts === "number") {
      this.#experts.push(data.experts);
      parts.push(counted(Math.round(data.experts * 10) / 10, "expert"));
      this.#chart.replaceChildren(bars(this.#experts));
    }
    this.#facts.textContent = parts.join(", ");
  }

  /** The block is gone, what stays are the numbers. */
  finish(text) {
    this.#grid.remove();
    const mean = this.#experts.reduce((sum, n) => sum + n, 0) / this.#experts.length;
    const experts = this.#experts.length ? `, ${counted(Math.round(mean * 10) / 10, "expert")} a pass` : "";
    this.#facts.textContent = `${counted(this.#blocks, "block")}, ${text}${experts}`;
  }

  #next(begin, length) {
    this.#begin = begin;
    ++this.#blocks;
    this.#tiles = Array.from({ length }, () => h("span", { class: "mask" }));
    this.#grid.replaceChildren(...this.#tiles);
  }
  #fill(tile, text) {
    const shown = text === null ? "" : readable(text);
    if (tile.textContent === shown && tile.className === (text === null ? "mask" : tile.className)) return;
    tile.textContent = shown;
    tile.className = text === null ? "mask" : "filled";
  }
}
