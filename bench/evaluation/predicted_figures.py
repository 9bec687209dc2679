"""Predicts figures of the papers of xDiT and DICE as tables in Markdown.

python3 bench/evaluation/predicted_figures.py PROGRAM latency|memory|experts|vae [--ranks 1,2,4,8,16]

latency  xDiT (arXiv 2411.01738), Figures 8 to 17: seconds of single methods and of the best hybrid, on L40 and A100
memory   xDiT, Figure 18: GB of a rank under each method on 8 L40
experts  DICE (ICCV 2025), Figure 9: GB of a rank over batch and image size, on 8 ranks; "no": more than 24 GB
vae      xDiT, Table 3: GB of a rank that decodes an image with others, without tiles

Points are read from `tessera plan --json` and `tessera inspect --json`; "-": the plan cannot run or does not fit.
"""

import argparse
import json
import subprocess

# model, pixels of a side, steps
IMAGES = [("pixart_alpha", 1024, 20), ("pixart_alpha", 2048, 20), ("pixart_alpha", 4096, 20), ("sd3_medium", 1024, 20),
          ("sd3_medium", 2048, 20), ("flux_1_dev", 1024, 28), ("flux_1_dev", 2048, 28), ("hunyuan_dit", 1024, 50),
          ("hunyuan_dit", 2048, 50)]
METHODS = {"tensor": "tensor={n}", "distrifusion": "distrifusion={n}", "ring": "ring={n}", "ulysses": "ulysses={n}",
           "pipefusion": "pipefusion={n}"}
EXPERTS = {"expert parallel": "expert=8", "displaced": "expert=8,schedule=displaced",
           "DICE": "expert=8,schedule=interweaved,sync=deep,conditional=low", "DistriFusion": "distrifusion=8"}


class Planner:
    def __init__(self, program):
        self.program = program

    def plans(self, model, *arguments):
        """The plans that run, best first; none if all are refused."""
        done = subprocess.run([self.program, "plan", model, *map(str, arguments), "--json"], capture_output=True, text=True,
                              check=False)
        if done.returncode not in (0, 4):
            raise SystemExit(f"predicted_figures: {done.stderr.strip()}")
        return json.loads(done.stdout)["plans"] if done.stdout else []


    def decoding(self, model, side, ranks):
        """Bytes of the largest of the ranks that decode an image in bands; a single rank has most of its bytes in decoding."""
        sizes = ["--width", side, "--height", side, "--count", ranks]
        if ranks > 1:
            sizes += ["--plan", f"data={ranks},vae={ranks}"]
        done = subprocess.run([self.program, "inspect", model, *map(str, sizes), "--json"], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise SystemExit(f"predicted_figures: {done.stderr.strip()}")
        found = json.loads(done.stdout)
        return max((rank["decode"] for rank in found["ranks"]), default=found["memory"]["activations"])


def denoising(plan):
    """A plan without its decoding."""
    return ",".join(part for part in plan.split(",") if not part.startswith("vae="))


def single(plan, axis):
    """Whether a plan spreads along one axis, and the branches of guidance perhaps."""
    names = [part.partition("=")[0] for part in denoising(plan).split(",")]
    return axis in names and set(names) <= {axis, "cfg", "patches", "warmup"}


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def methods(found, value):
    """Cells of the best plan of each method, and of all."""
    cells = []
    for axis in METHODS:
        mine = [plan for plan in found if single(plan["plan"], axis)]
        cells.append(f"{value(min(mine, key=value)):.3g}" if mine else "-")
    best = min(found, key=value, default=None)
    return [*cells, f"{value(best):.3g}: `{denoising(best['plan']) or 'one rank'}`" if best else "-"]


def latency(planner, ranks):
    for hardware in ("L40", "A100"):
        print(f"On {hardware}, seconds of denoising\n")
        rows = []
        for model, side, steps in IMAGES:
            size = ("--width", side, "--height", side, "--steps", steps, "--quality", "stale", "--hardware", hardware)
            for n in ranks:
                found = planner.plans(model, *size, "--ranks", n)
                rows.append([model, str(side), str(n), *methods(found, lambda plan: plan["denoising_seconds"])])
        table(["model", "pixels", "ranks", *METHODS, "best"], rows)


def memory(planner, _):
    rows = []
    for model, side, steps in IMAGES:
        found = planner.plans(model, "--width", side, "--height", side, "--steps", steps, "--quality", "stale", "--ranks", 8,
                              "--hardware", "L40", "--optimise", "memory")
        rows.append([model, str(side), *methods(found, lambda plan: plan["rank_bytes"] / 1e9)])
    table(["model", "pixels", *METHODS, "least"], rows)


def experts(planner, _):
    for model in ("dit_moe_xl", "dit_moe_g"):
        print(f"{model} on 8 ranks, GB of the largest one\n")
        rows = []
        for side, batches in ((256, (4, 8, 16, 32)), (512, (4, 8)), (1024, (1,))):
            for batch in batches:
                cells = []
                for plan in EXPERTS.values():
                    found = planner.plans(model, "--width", side, "--height", side, "--count", 8 * batch, "--steps", 50,
                                          "--plan", plan, "--hardware", "RTX-4090", "--ranks", 8)
                    cells.append(f"{found[0]['rank_bytes'] / 1e9:.3g}" if found else "-")
                rows.append([str(side), str(batch), *cells])
        table(["pixels", "batch of a rank", *EXPERTS], rows)


def vae(planner, ranks):
    for model, channels in (("flux_1_dev", 16), ("pixart_alpha", 4)):
        print(f"{channels} latent channels, GB of a rank\n")
        table(["pixels", *(f"{n} rank{'s'[:n - 1]}" for n in ranks)],
              [[str(side), *(f"{planner.decoding(model, side, n) / 1e9:.3g}" for n in ranks)]
               for side in (1024, 2048, 4096, 7168, 8192)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("figures", choices=("latency", "memory", "experts", "vae"))
    parser.add_argument("--ranks", default="1,2,4,8,16")
    args = parser.parse_args()
    figures = {"latency": latency, "memory": memory, "experts": experts, "vae": vae}[args.figures]
    figures(Planner(args.program), [int(n) for n in args.ranks.split(",")])


if __name__ == "__main__":
    main()
