"""Compares the measurements of `run` with the bound of each schedule, derived in docs/results/dice.md.

python3 bench/network/bounds.py LINES.jsonl          prints JSON lines
python3 bench/network/bounds.py LINES.jsonl --table  prints a table

LINES.jsonl holds lines of `run exchange` at each rate, and of `run schedules` at each rate and at
the rate `none`.
"""

import argparse
import json
from statistics import median


def options_of(plan):
    return dict(part.partition("=")[::2] for part in plan.split(","))


def computing(lines, plans):
    """Compute seconds of a step and layer, for each plan. A single measurement serves all plans: the
    minimum over runs of the synchronous plan, without waits for messages. A plan that skips rows
    of experts is scaled by its FLOPs relative to the synchronous plan."""
    sync = [l for l in lines if options_of(l["plan"]).get("schedule", "sync") == "sync"]
    if not sync:
        raise SystemExit("bounds: no run of a synchronous plan")
    a = min((l["denoise_s"] - l["wait_s"]) / (l["steps"] * len(l["layer_bytes"])) for l in sync)
    flops = {l["plan"]: l["flops"] for l in lines}
    return {plan: a * min(1.0, flops[plan] / sync[0]["flops"]) for plan in plans}


def bound(line, a, megabit):
    """Returns (seconds of a layer's messages, lower bound of a run's seconds). In any order, no layer
    ends before its computation and before its messages have passed the link."""
    steps, rate = line["steps"], megabit * 1e6 / 8
    carried = [sent / steps / rate for sent in line["layer_bytes"]]
    return sum(carried) / len(carried), steps * max(a * len(carried), sum(carried))


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.startswith("{")]


def rows_of(lines):
    runs, rates = {}, {}
    for line in lines:
        if line["bench"] == "schedule":
            if line["wait_s"] > line["denoise_s"]:
                raise SystemExit(f"bounds: {line['plan']} waited longer than it ran")
            runs.setdefault((line["plan"], line["mbit"]), []).append(line)
        elif line["bench"] == "exchange" and line["mbit"] and line["bytes"] >= 1 << 20:
            rates[line["mbit"]] = max(rates.get(line["mbit"], 0), line["mbit_each_way"])
    seconds = {key: median(l["denoise_s"] for l in found) for key, found in runs.items()}
    plans = list(dict.fromkeys(plan for plan, _ in runs))
    a_of = computing([l for found in runs.values() for l in found], plans)
    sync = next(p for p in plans if options_of(p).get("schedule", "sync") == "sync")
    for mbit in sorted({m for _, m in runs if m}):
        for plan in plans:
            if (plan, mbit) not in runs:
                continue
            line, a = runs[plan, mbit][0], a_of[plan]
            x, least = bound(line, a, rates.get(mbit, mbit))
            took = seconds[plan, mbit]
            yield {"bench": "bound", "mbit": mbit, "reached_mbit": round(rates.get(mbit, mbit), 1),
                   "plan": plan, "runs": len(runs[plan, mbit]), "mb": round(line["sent_bytes"] / 1e6, 2),
                   "link_mb": round(line["link_bytes"] / 1e6, 2),
                   "a_ms": round(1e3 * a, 2), "x_ms": round(1e3 * x, 2), "bound_s": round(least, 3),
                   "denoise_s": round(took, 3), "of_bound": round(least / took, 3),
                   "of_sync": round(seconds[sync, mbit] / took, 3)}


def table(rows):
    rates = list(dict.fromkeys(r["mbit"] for r in rows))
    print("| plan | MB sent | " + " | ".join(f"{m:g} Mbit/s" for m in rates) + " |")
    print("|---|---|" + "---|" * len(rates))
    for plan in dict.fromkeys(r["plan"] for r in rows):
        mine = {r["mbit"]: r for r in rows if r["plan"] == plan}
        cells = [f"{mine[m]['denoise_s']:.2f} s, {100 * mine[m]['of_bound']:.0f} %, {mine[m]['of_sync']:.2f}x"
                 if m in mine else "" for m in rates]
        print(f"| `{plan}` | {next(iter(mine.values()))['mb']:.1f} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    rows = list(rows_of(read(args.lines)))
    if args.table:
        table(rows)
    else:
        for row in rows:
            print(json.dumps(row))


if __name__ == "__main__":
    main()
