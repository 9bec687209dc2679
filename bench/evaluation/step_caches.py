#!/usr/bin/env python3
"""Compares step caches with fewer steps: latent error and PSNR over FLOPs, on the shipped models.

    python3 bench/evaluation/step_caches.py build/release/tessera scenes rows.json
    python3 bench/evaluation/step_caches.py --draw rows.json > docs/images/step_caches.svg

Every run starts from the noise of its seed and is compared with the run of all steps without a cache. A row
is a setting: means over prompts and seeds. FLOPs count the steps of all ranks.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy

STEPS, SEEDS = 28, (0, 1, 2)
SUBJECTS = {
    "scenes": ("--prompt", ["a red circle left of a blue square", "a green star above a yellow triangle"]),
    "shapes": ("--class", ["3", "17"]),
}
FEWER = (6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26)
# A list of ratios or coefficients belongs to one model; FLUX's lists here only exercise the mechanism.
RULES = {
    "fbcache": [f"fbcache,threshold={t}" for t in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3)],
    "dbcache": [f"dbcache,Fn=1,Bn=0,warmup=4,max_continuous=3,threshold={t}" for t in (0.05, 0.1, 0.2, 0.4)],
    "dbcache, taylor=1": [f"dbcache,Fn=1,Bn=0,warmup=4,max_continuous=3,taylor=1,threshold={t}"
                          for t in (0.05, 0.1, 0.2, 0.4)],
    "taylorseer": [f"taylorseer,order=1,before=4,interval={n}" for n in (2, 3, 4, 5)],
    "taylorseer, lite=1": [f"taylorseer,order=1,before=4,lite=1,interval={n}" for n in (2, 3, 4, 5)],
    "magcache": [f"magcache,ratios=1,retention=0.2,threshold=1,max_skip={n}" for n in (1, 2, 3, 4)],
    "teacache": [f"teacache,coefficients=1+0,threshold={t}" for t in (0.05, 0.1, 0.2, 0.4)],
    "drift": [f"drift,max_skip=6,threshold={t}" for t in (0.01, 0.02, 0.05, 0.1, 0.2)],
}
COLOURS = ["#000000", "#1b9e77", "#d95f02", "#e6ab02", "#7570b3", "#66a61e", "#a6761d", "#1f78b4", "#e7298a"]


def tensors(path):
    """Reads the float32 tensors of a safetensors file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    found = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = entry["data_offsets"]
        found[name] = numpy.frombuffer(data[8 + size + begin:8 + size + end], "<f4").reshape(entry["shape"])
    return found


def run(program, model, subject, seed, steps, cache=None):
    """Returns (latent, image, FLOPs of the steps, share of computed blocks)."""
    option, text = subject
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder)
        command = [program, "generate", model, option, text, "--seed", str(seed), "--steps", str(steps), "--dtype", "f32",
                   "--progress", "none", "-o", str(out / "x.png"), "--trace", str(out / "t.safetensors"),
                   "--report", str(out / "r.json")]
        subprocess.run(command + (["--cache", cache] if cache else []), check=True, capture_output=True, text=True)
        report, trace = json.loads((out / "r.json").read_text()), tensors(out / "t.safetensors")
    ran = report.get("blocks_computed", 1) / (report.get("blocks_computed", 1) + report.get("blocks_reused", 0))
    return trace[f"latents.{steps}"], trace["image"], sum(r["flops"] for r in report["per_rank"]), ran


def measured(program, model, settings):
    """Rows of a model: setting -> means over prompts and seeds, and the spread over seeds."""
    option, texts = SUBJECTS[model]
    sums = {}
    for seed in SEEDS:
        for text in texts:
            whole = run(program, model, (option, text), seed, STEPS)
            for name, steps, cache in settings:
                latent, image, flops, ran = run(program, model, (option, text), seed, steps, cache)
                error = float(numpy.linalg.norm(latent - whole[0]) / numpy.linalg.norm(whole[0]))
                squared = float(((image - whole[1]) ** 2).mean())
                psnr = min(99.0, -10 * math.log10(squared)) if squared > 0 else 99.0
                sums.setdefault((name, steps, cache), []).append((seed, flops / whole[2], error, psnr, ran))
                print(f"{model} seed {seed} {cache or f'{steps} steps'}: {flops / whole[2]:.3f} {error:.4f} {psnr:.1f}",
                      file=sys.stderr, flush=True)
    rows = []
    for (name, steps, cache), runs in sums.items():
        table = numpy.array([r[1:] for r in runs])
        seeds = [numpy.mean([r[2] for r in runs if r[0] == seed]) for seed in SEEDS]
        rows.append({"model": model, "rule": name, "setting": cache or f"--steps {steps}", "flops": float(table[:, 0].mean()),
                     "error": float(table[:, 1].mean()), "errors": [float(min(seeds)), float(max(seeds))],
                     "psnr": float(table[:, 2].mean()), "blocks": float(table[:, 3].mean())})
    return rows


def steps_at(rows, flops):
    """Error of fewer steps at these FLOPs, interpolated in logarithms."""
    line = sorted((r["flops"], r["error"]) for r in rows if r["rule"] == "fewer steps")
    xs, ys = [x for x, _ in line], [math.log(y) for _, y in line]
    return math.exp(numpy.interp(flops, xs, ys))


def table(rows):
    lines = ["| setting | FLOPs | latent error (seeds) | PSNR, dB | error of fewer steps at equal FLOPs |", "|---|---|---|---|---|"]
    for r in rows:
        fewer = "" if r["rule"] == "fewer steps" else f"{steps_at(rows, r['flops']):.3f}"
        lines.append(f"| `{r['setting']}` | {100 * r['flops']:.0f} % | {r['error']:.3f} ({r['errors'][0]:.3f} to {r['errors'][1]:.3f}) "
                     f"| {r['psnr']:.1f} | {fewer} |")
    return "\n".join(lines)


def drawing(rows):
    """Draws error over FLOPs, a panel for each model; errors on a logarithmic axis."""
    models = list(dict.fromkeys(r["model"] for r in rows))
    rules = list(dict.fromkeys(r["rule"] for r in rows))
    width, height, left, top = 380, 300, 60, 30
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{len(models) * (width + left) + 170}" height="{height + 90}" '
             'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>']
    low, high = 0.003, 1.0
    for panel, model in enumerate(models):
        x0 = left + panel * (width + left)

        def place(flops, error, x0=x0):
            y = (math.log(high) - math.log(min(max(error, low), high))) / math.log(high / low)
            return x0 + width * flops, top + height * y

        parts.append(f'<text x="{x0 + width / 2}" y="18" text-anchor="middle" font-weight="bold">{model}, {STEPS} steps</text>')
        for error in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0):
            x, y = place(0, error)
            parts.append(f'<path d="M{x} {y:.1f}h{width}" stroke="#dddddd"/><text x="{x - 6}" y="{y + 4:.1f}" text-anchor="end">{error}</text>')
        for share in (0, 0.25, 0.5, 0.75, 1):
            x, _ = place(share, 1)
            parts.append(f'<path d="M{x} {top}v{height}" stroke="#dddddd"/><text x="{x}" y="{top + height + 16}" text-anchor="middle">{share:.0%}</text>')
        parts.append(f'<text x="{x0 + width / 2}" y="{top + height + 36}" text-anchor="middle">FLOPs of the steps</text>')
        for colour, rule in zip(COLOURS, rules):
            points = [place(r["flops"], r["error"]) for r in sorted((r for r in rows if r["rule"] == rule and r["model"] == model),
                                                                   key=lambda r: r["flops"])]
            parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="none" stroke="{colour}" '
                         f'stroke-width="{2.5 if rule == "fewer steps" else 1.5}"/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    x = len(models) * (width + left) + 20
    parts.append(f'<text x="14" y="{top + height / 2}" transform="rotate(-90 14 {top + height / 2})" text-anchor="middle">latent error</text>')
    for line, (colour, rule) in enumerate(zip(COLOURS, rules)):
        y = top + 12 + 20 * line
        parts.append(f'<path d="M{x} {y - 4}h20" stroke="{colour}" stroke-width="2.5"/><text x="{x + 26}" y="{y}">{rule}</text>')
    return "\n".join(parts + ["</svg>"])


def main():
    if sys.argv[1] == "--draw":
        print(drawing([row for path in sys.argv[2:] for row in json.loads(pathlib.Path(path).read_text())]))
        return
    program, model, path = sys.argv[1:4]
    settings = [("fewer steps", steps, None) for steps in FEWER]
    settings += [(name, STEPS, cache) for name, caches in RULES.items() for cache in caches]
    rows = measured(program, model, settings)
    pathlib.Path(path).write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
