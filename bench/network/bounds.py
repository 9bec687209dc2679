"""Sets what `run` measured beside the bound of each schedule, derived in docs/results/dice.md.

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


def hides(plan, layers):
    """Which layers read results of an earlier step, so that their messages travel meanwhile."""
    options = options_of(plan)
    schedule = options.get("schedule", "sync")
    if schedule == "staggered-batch":  # each half travels while the other computes
        return [True] * layers
    if schedule not in ("displaced", "interweaved"):
        return [False] * layers
    sync = options.get("sync", "none")
    if sync not in ("none", "deep", "shallow"):
        raise SystemExit(f"bounds: no bound is known for sync={sync}")
    return [sync == "none" or (l < layers // 2) == (sync == "deep") for l in range(layers)]


def bound(plan, line, alone, full, megabit):
    """(seconds of a layer's computing, of its messages, and the fewest that a run can take)."""
    steps, layers = line["steps"], len(line["layer_bytes"])
    warmup = min(steps, int(options_of(plan).get("warmup", 1)))
    rest = steps - warmup
    rate = megabit * 1e6 / 8
    a = alone / (steps * layers)
    seconds = carried = 0.0
    for sent, whole, async_ in zip(line["layer_bytes"], full, hides(plan, layers)):
        later = max(0.0, sent - warmup * whole / steps) / max(rest, 1) / rate
        seconds += warmup * (a + whole / steps / rate)
        seconds += rest * (max(a, later) if async_ else a + later)
        carried += sent / rate
    return a, carried / (steps * layers), seconds


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.startswith("{")]


def rows_of(lines):
    runs, rates = {}, {}
    for line in lines:
        if line["bench"] == "schedule":
            runs.setdefault((line["plan"], line["mbit"]), []).append(line)
        elif line["bench"] == "exchange" and line["mbit"] and line["bytes"] >= 1 << 20:
            rates[line["mbit"]] = max(rates.get(line["mbit"], 0), line["mbit_each_way"])
    seconds = {key: median(l["denoise_s"] for l in found) for key, found in runs.items()}
    plans = list(dict.fromkeys(plan for plan, _ in runs))
    sync = next(p for p in plans if options_of(p).get("schedule", "sync") == "sync")
    for mbit in sorted({m for _, m in runs if m}):
        for plan in plans:
            if (plan, mbit) not in runs:
                continue
            line, full = runs[plan, mbit][0], runs[sync, mbit][0]["layer_bytes"]
            a, x, least = bound(plan, line, seconds[plan, None], full, rates.get(mbit, mbit))
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
