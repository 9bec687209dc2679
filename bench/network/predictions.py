"""Measures plans of two hosts with a core each over limited links, beside their predictions.

sudo python3 bench/network/predictions.py [--build DIR] [--cells flux,shards,schedules] [--each 1,2] [--mbit 20,100,500,none] [--rounds 3]

Cells: the models, plans and requests of docs/results/parallel.md and dice.md, on 2 ranks and on 4
(--each 2: two ranks share a core). Each also has the plans that `tessera plan` would choose. The
machine is described by `tessera bench calibrate` on a core, the link by build/.../bench/exchange_bench.
Prints JSON lines:

  prediction  a plan of a cell: measured and predicted seconds of denoising, and their ratio
  choice      whether the chosen plan, exact or stale, takes at most 1.1 times the best measured one
  summary     the share of predictions within 10 %, and of choices that hold

Needs root and a quiet machine. A cell with four rates, three rounds and 2 ranks takes 5 to 10 minutes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
LARGE = 65536  # bytes of a message that the rate of a limited link decides
NEAR = 0.1  # a prediction is near, and a choice good, within this share
SEQUENCE = {1: ["pipefusion=2,patches=8", "ulysses=2", "ring=2"],
            2: ["pipefusion=4,patches=8", "ulysses=4", "ring=4", "ulysses=2,ring=2", "pipefusion=2,patches=8,ulysses=2"]}
SPREAD = {1: ["data=2", "shard=2"], 2: ["data=2,ulysses=2", "shard=2,ulysses=2"]}
SCHEDULES = ["schedule=sync", "schedule=displaced,warmup=4", "schedule=interweaved,warmup=4",
             "schedule=interweaved,sync=deep,conditional=low,warmup=4", "schedule=adaptive,budget=76,warmup=4",
             "schedule=adaptive,budget=39,warmup=4"]


def cells(models):
    """Returns {name: (model, plans by ranks of a host, arguments of generate, those of plan)}."""
    flux, size = str(models / "flux"), ["--width", "256", "--height", "256", "--steps", "10"]
    large = ["--width", "1024", "--height", "1024", "--steps", "5", "--count", "2"]
    text = ["--embeddings", f"{flux}/embeddings.safetensors"]
    run = ["--count", "8", "--guidance", "1.5", "--steps", "20"]
    experts = {each: [f"expert={2 * each},{plan}" for plan in SCHEDULES] for each in (1, 2)}
    return {"flux": (flux, SEQUENCE, [*text, *size], [*size, "--text-tokens", "64"]),
            "shards": (flux, SPREAD, [*text, *large], [*large, "--text-tokens", "64"]),
            "schedules": (str(SOURCE / "models/shapes"), experts, ["--class", "1", *run], run)}


def output(*command, core=None):
    done = subprocess.run([*(["taskset", "-c", str(core)] if core is not None else []), *map(str, command)],
                          stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"predictions: {' '.join(map(str, command))} ended with status {done.returncode}")
    return done.stdout


def lines_of(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


class Bench:
    """The programs of a build, and this machine."""

    def __init__(self, build, scratch):
        self.build, self.scratch = Path(build), Path(scratch)
        self.machine, self.links = {}, {}

    def network(self, each, mbit, *task, rounds=1):
        command = [HERE / "run", "--build", self.build, "--each", str(each), "--mbit", mbit, *task]
        os.environ["TESSERA_ROUNDS"] = str(rounds)
        return lines_of(output(*command))

    def link(self, mbit):
        """Bytes a second and seconds of a small message between the hosts, measured.

        The first bytes of a message pass a limited link at once, so the rate is that of large messages, and the time
        of a small one is measured without a limit.
        """
        if mbit not in self.links:
            found = {line["bytes"]: line for line in self.network(1, mbit, "exchange") if line["bench"] == "exchange"}
            rate = max(line["mbit_each_way"] for size, line in found.items() if size >= LARGE) * 1e6 / 8
            small = min(found)
            latency = max(found[small]["x_ms"] * 1e-3 - small / rate, 1e-6)
            self.links[mbit] = {"bytes_per_second": rate,
                                "latency": latency if mbit == "none" else self.link("none")["latency"]}
        return self.links[mbit]

    def hardware(self, each, mbit):
        """A file with two hosts of `each` ranks on a core. Ranks of a host talk by TCP, too."""
        if each not in self.machine:
            self.machine[each] = json.loads(output(self.build / "tessera", "bench", "calibrate", "--ranks", each,
                                                   "--threads", 1, core=0))
        found = dict(self.machine[each], hosts=2, devices_per_host=each, link=self.link("none"), network=self.link(mbit))
        path = self.scratch / f"hosts-{each}-{mbit}.json"
        path.write_text(json.dumps(found))
        return path

    def plans(self, model, arguments, each, mbit, *more):
        """The predicted plans, best first."""
        text = output(self.build / "tessera", "plan", model, *arguments, "--dtype", "bf16", "--ranks", 2 * each,
                      "--hardware", self.hardware(each, mbit), "--threads", 1, "--json", *more)
        return json.loads(text)["plans"]


def whole(plan):
    """A plan of denoising alone: the runs decode nothing."""
    return ",".join(part for part in plan.split(",") if not part.startswith("vae="))


def exact(plan):
    stale = ("displaced", "interweaved", "adaptive", "pipefusion", "distrifusion", "patches", "conditional")
    return not any(word in plan for word in stale)


def measure(bench, name, cell, each, mbit, rounds):
    """Yields the lines of a cell."""
    model, plans, generate, predict = cell
    chosen = {quality: whole(bench.plans(model, predict, each, mbit, "--quality", quality)[0]["plan"])
              for quality in ("exact", "stale")}
    listed = list(dict.fromkeys([*plans[each], *chosen.values()]))
    told = {plan: bench.plans(model, predict, each, mbit, "--plan", plan)[0]["denoising_seconds"] for plan in listed}
    took = {}
    for line in bench.network(each, mbit, "plans", " ".join(listed), model, *generate, rounds=rounds):
        took.setdefault(line["plan"], []).append(line["denoise_s"])
    where = {"cell": name, "ranks": 2 * each, "mbit": None if mbit == "none" else float(mbit)}
    seconds = {plan: statistics.median(took[plan]) for plan in listed}
    for plan in listed:
        ratio = told[plan] / seconds[plan]
        yield {"bench": "prediction", **where, "plan": plan, "runs": len(took[plan]), "measured_s": round(seconds[plan], 3),
               "least_s": min(took[plan]), "most_s": max(took[plan]), "predicted_s": round(told[plan], 3),
               "ratio": round(ratio, 3), "near": abs(ratio - 1) <= NEAR}
    for quality, plan in chosen.items():
        among = [one for one in listed if quality == "stale" or exact(one)]
        best = min(among, key=seconds.get)
        ratio = seconds[plan] / seconds[best]
        yield {"bench": "choice", **where, "quality": quality, "chosen": plan, "chosen_s": round(seconds[plan], 3),
               "best": best, "best_s": round(seconds[best], 3), "ratio": round(ratio, 3), "holds": ratio <= 1 + NEAR}


def summary(lines):
    told = [line for line in lines if line["bench"] == "prediction"]
    choices = [line for line in lines if line["bench"] == "choice"]
    errors = [abs(line["ratio"] - 1) for line in told]
    return {"bench": "summary", "predictions": len(told), "near": sum(line["near"] for line in told),
            "median_error": round(statistics.median(errors), 3), "largest_error": round(max(errors), 3),
            "choices": len(choices), "hold": sum(line["holds"] for line in choices)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=SOURCE / "build/release")
    parser.add_argument("--cells", default="flux,shards,schedules")
    parser.add_argument("--each", default="1,2", help="ranks of a host")
    parser.add_argument("--mbit", default="20,100,500,none", help="rates of the link")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        bench, lines = Bench(args.build, scratch), []
        known = cells(Path(scratch))
        names = args.cells.split(",")
        for name in names:
            if name not in known:
                raise SystemExit(f"predictions: no cell '{name}'; known are {', '.join(known)}")
        if {"flux", "shards"} & set(names):
            output(sys.executable, HERE / "random_flux.py", "small", Path(scratch) / "flux")
        for name in names:
            for each in map(int, args.each.split(",")):
                for mbit in args.mbit.split(","):
                    for line in measure(bench, name, known[name], each, mbit, args.rounds):
                        print(json.dumps(line), flush=True)
                        lines.append(line)
        print(json.dumps(summary(lines)))


if __name__ == "__main__":
    main()
