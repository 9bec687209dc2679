"""Compares the measurements of `run plans` with a lower bound: the compute time of the busiest core,
or the transfer time of the busiest direction of the link.

python3 bench/network/plans.py LINES.jsonl          prints JSON lines
python3 bench/network/plans.py LINES.jsonl --table  prints a table

Compute time is a single measurement for all plans: seconds per FLOP of the runs on one rank with one core.
"""

import argparse
import json
from statistics import median


def rows_of(lines):
    lines = [line for line in lines if line.get("bench") == "plan"]
    alone = [line for line in lines if not line["plan"]]
    if not alone:
        raise SystemExit("plans: no run on one rank")
    per_flop = median(line["denoise_s"] / line["core_flops"] for line in alone)
    runs = {}
    for line in lines:
        if line["plan"]:
            runs.setdefault((line["each"], line["mbit"], line["plan"]), []).append(line)
    for (each, mbit, plan), found in runs.items():
        core = per_flop * found[0]["core_flops"]
        carried = median(max(line["link_bytes"]) for line in found)
        link = carried * 8 / (mbit * 1e6) if mbit else 0
        took = median(line["denoise_s"] for line in found)
        yield {"bench": "plan_bound", "each": each, "mbit": mbit, "plan": plan, "runs": len(found),
               "steps": found[0]["steps"], "link_mb": round(carried / 1e6, 2), "core_s": round(core, 2),
               "link_s": round(link, 2), "denoise_s": round(took, 2), "over_bound": round(took / max(core, link), 2)}


def table(rows):
    for each in sorted({r["each"] for r in rows}):
        mine = [r for r in rows if r["each"] == each]
        rates = sorted({r["mbit"] or float("inf") for r in mine})
        print(f"| 2 hosts of {each} | MB on the link | core | " +
              " | ".join("no limit" if m == float("inf") else f"{m:g} Mbit/s" for m in rates) + " |")
        print("|---|---|---|" + "---|" * len(rates))
        for plan in dict.fromkeys(r["plan"] for r in mine):
            at = {r["mbit"] or float("inf"): r for r in mine if r["plan"] == plan}
            cells = [f"{at[m]['denoise_s']:.1f} s, {at[m]['over_bound']:.2f}" if m in at else "" for m in rates]
            any_of = next(iter(at.values()))
            print(f"| `{plan}` | {any_of['link_mb']:.1f} | {any_of['core_s']:.1f} s | " + " | ".join(cells) + " |")
        print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    with open(args.lines) as file:
        rows = list(rows_of([json.loads(line) for line in file if line.startswith("{")]))
    if args.table:
        table(rows)
    else:
        for row in rows:
            print(json.dumps(row))


if __name__ == "__main__":
    main()
