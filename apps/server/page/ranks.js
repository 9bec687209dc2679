// Activity of a run's ranks: compute, waits, traffic, and the age of the data read.

import { at, h, soon, svg } from "./dom.js";
import { bytes, counted, percent } from "./format.js";

const kColumns = 60; // steps of the timeline
const kWide = 320;
const kHigh = 20;

let before = new Map(); // rank -> the sums of the previous step
let latest = null; // the event
let history = []; // of steps: {step, ranks: Map of rank -> {compute, wait}}

/** Returns the numbers of this step: events carry sums. */
function difference(rank) {
  const old = before.get(rank.rank) ?? { compute_seconds: 0, wait_seconds: 0 };
  const since = (name) => Math.max(0, (rank[name] ?? 0) - (old[name] ?? 0));
  return { compute: since("compute_seconds"), wait: since("wait_seconds") };
}

// A column for each step: computing at the bottom, waiting above, as shares of the slowest step.
function timeline(rank) {
  const most = Math.max(1e-9, ...history.flatMap((h) => [...h.ranks.values()].map((r) => r.compute + r.wait)));
  const width = kWide / Math.max(12, history.length);
  const bars = history.flatMap((column, i) => {
    const r = column.ranks.get(rank);
    if (!r) return [];
    const [c, w] = [(r.compute / most) * kHigh, (r.wait / most) * kHigh];
    const box = { x: i * width, width: Math.max(0.5, width - 1) };
    return [
      svg("rect", { class: "compute", ...box, y: kHigh - c, height: c }),
      svg("rect", { class: "wait", ...box, y: kHigh - c - w, height: w }),
    ];
  });
  return svg("svg", { viewBox: `0 0 ${kWide} ${kHigh}`, preserveAspectRatio: "none", "aria-hidden": "true", class: "timeline" }, bars);
}

/** "experts: 29 % stale, up to 1 step old": the age of the data read, from counts by age. */
export function ages(all) {
  const shares = Object.entries(all ?? {}).map(([what, counts]) => {
    const read = counts.reduce((sum, n) => sum + n, 0);
    const old = read - (counts[0] ?? 0);
    if (read === 0) return null;
    const oldest = counts.findLastIndex((n) => n > 0);
    return old === 0 ? `${what}: fresh` : `${what}: ${percent(old / read)} stale, up to ${counted(oldest, "step")} old`;
  });
  return shares.filter((text) => text !== null).join("; ");
}

function row(rank) {
  const compute = rank.compute_seconds ?? 0;
  const wait = rank.wait_seconds ?? 0;
  const whole = compute + wait;
  const facts = whole > 0 ? [`computes ${percent(compute / whole)}`, `waits ${percent(wait / whole)}`] : [];
  const sent = rank.sent_bytes === undefined ? "" : `sent ${bytes(rank.sent_bytes)}`;
  const more = [sent, ages(rank.ages)].filter((text) => text !== "").join("; ");
  return h("li", {},
    h("p", { class: "line" }, h("span", { class: "name" }, `Rank ${rank.rank}`), h("span", { class: "hint" }, facts.join(", "))),
    whole > 0 && timeline(rank.rank),
    more && h("p", { class: "hint" }, more));
}

const draw = soon(() => {
  if (latest === null) return;
  at("ranks").replaceChildren(
    h("ul", { class: "ranks" }, latest.ranks.map(row)),
    h("p", { class: "legend hint" }, h("span", { class: "key compute" }), "computes", h("span", { class: "key wait" }), `waits; a column a step, the last is ${latest.step}`));
});

/** Handles an event `ranks`: sums of each rank since the run began. */
export function showRanks(data) {
  history.push({ step: data.step, ranks: new Map(data.ranks.map((r) => [r.rank, difference(r)])) });
  history = history.slice(-kColumns);
  before = new Map(data.ranks.map((r) => [r.rank, r]));
  latest = data;
  draw();
}

export function clearRanks() {
  before = new Map();
  history = [];
  latest = null;
  at("ranks").replaceChildren(h("p", { class: "hint" }, "While a request runs: who computes, who waits, what each rank has sent."));
}
