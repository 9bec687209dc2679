"""Draws the measurements of `run` and `tessera eval --json`. Needs matplotlib.

python3 bench/network/figures.py bounds LINES.jsonl OUT.svg
python3 bench/network/figures.py quality LINES.jsonl EVAL.jsonl OUT.svg
"""

import sys

import bounds
import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "tessera", "svg.fonttype": "none"})
from matplotlib import pyplot  # noqa: E402


def save(panel, axes, out):
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.14), ncol=2)
    axes.grid(alpha=0.3)
    panel.tight_layout()
    panel.savefig(out, metadata={"Date": None})


def draw_bounds(lines, out):
    """Draws seconds of each schedule over the link's bandwidth, with a dotted bound."""
    rows = list(bounds.rows_of(lines))
    rates = list(dict.fromkeys(r["mbit"] for r in rows))
    panel, axes = pyplot.subplots(figsize=(7, 5))
    for plan in dict.fromkeys(r["plan"] for r in rows):
        mine = [r for r in rows if r["plan"] == plan]
        drawn = axes.plot([r["mbit"] for r in mine], [r["denoise_s"] for r in mine], "o-", label=plan)
        axes.plot([r["mbit"] for r in mine], [r["bound_s"] for r in mine], ":",
                  color=drawn[0].get_color())
    axes.set_xscale("log")
    axes.set_xticks(rates, [f"{r:g}" for r in rates])
    axes.minorticks_off()
    axes.set_xlabel("bandwidth of the link, Mbit/s")
    axes.set_ylabel("seconds of denoising (dotted: bound)")
    save(panel, axes, out)


def schedule_of(plan):
    """Returns the plan without parts that do not change results or are common to all."""
    return ",".join(p for p in plan.split(",") if p.split("=")[0] not in ("expert", "data", "warmup"))


def draw_quality(lines, quality, out):
    """Draws latent error over seconds of denoising, a line for each bandwidth."""
    rows = list(bounds.rows_of(lines))
    error = {schedule_of(q["plan"]) or "schedule=sync": q["latent_error"] for q in quality}
    panel, axes = pyplot.subplots(figsize=(7, 5))
    colours = [c["color"] for c in matplotlib.rcParams["axes.prop_cycle"]]
    marks = "os^Dv*PX"
    rates = list(dict.fromkeys(r["mbit"] for r in rows))
    plans = [p for p in dict.fromkeys(schedule_of(r["plan"]) for r in rows) if p in error]
    for plan, mark in zip(plans, marks):
        axes.plot([], [], mark, color="grey", label=plan)
        for rate, colour in zip(rates, colours):
            mine = [r for r in rows if r["mbit"] == rate and schedule_of(r["plan"]) == plan]
            axes.plot([r["denoise_s"] for r in mine], [error[plan]] * len(mine), mark, color=colour)
    for rate, colour in zip(rates, colours):
        axes.plot([], [], "-", color=colour, label=f"{rate:g} Mbit/s")
    axes.set_xlabel("seconds of denoising, two ranks")
    axes.set_ylabel("latent error to the synchronous run")
    save(panel, axes, out)


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "bounds":
        draw_bounds(bounds.read(sys.argv[2]), sys.argv[3])
    elif len(sys.argv) == 5 and sys.argv[1] == "quality":
        draw_quality(bounds.read(sys.argv[2]), bounds.read(sys.argv[3]), sys.argv[4])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
