#!/usr/bin/env python3
"""Measures rules of expert sharing on trained models; source of all figures in docs/results/des.md.

    python3 bench/des/measure.py build/release -o des.json a-0=tasks-a b-0=tasks-b a-1=FOLDER ...
    python3 bench/des/tables.py des.json

A model is named FORM-SEED. Results in the file are not measured again, so that seeds can be added later. One
thread; a model of form a takes about eight minutes of a core, form b six, the first seeds half more.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HELD_OUT = [(100, 5000, []), (200, 6000, ["hard"])]  # for each task: number, seed, selection


def sweep(rule, values):
    return [f"{rule}:{value}" for value in values]


def every_expert_count(counts, experts=64):
    return [count / experts for count in counts]


# Points near a retained accuracy of 99 %, and the points of the paper's Table 1.
RULES = {
    "a": sweep("topk", range(2, 8)) + sweep("des-seq", range(1, 7))
    + sweep("des-vote", [0.25, 0.4, 0.5, 0.6, *every_expert_count((48, 52, 56, 58, 60, 62))])
    + sweep("des-max", every_expert_count((8, 12, 16, 18, 20, 22, 24, 28, 32)))
    + sweep("des-norm4", every_expert_count((12, 16, 20, 24, 28, 32)))
    + sweep("des-peak", [0.06, 0.05, 0.04, 0.03, 0.025, 0.02])
    + sweep("naee", [0.6, 0.4, 0.3, 0.2, 0.1]) + sweep("mc", [0.6, 0.4, 0.2, 0.1, 0.05])
    + ["des-vote:0.6,weights=A", "des-vote:0.6,weights=B", "des-max:0.25,weights=A", "des-max:0.25,weights=B"],
    "b": sweep("topk", range(4, 8)) + sweep("des-seq", range(2, 8))
    + sweep("des-vote", [0.25, 0.4, 0.6, *every_expert_count((48, 56, 60, 62))])
    + sweep("des-max", every_expert_count((16, 24, 32, 40, 44, 48, 52, 56, 60)))
    + sweep("des-norm4", every_expert_count((40, 48, 52, 56, 60)))
    + sweep("des-peak", [0.14, 0.12, 0.11, 0.1, 0.09, 0.08])
    + sweep("naee", [0.6, 0.3, 0.1, 0.05]) + sweep("mc", [0.6, 0.1, 0.05]),
    # Canvases: a rule over all tokens, and over the open tokens.
    "c": [rule + over for over in ("", ",over=open") for rule in sweep("topk", (4, 6))
          + sweep("des-seq", (1, 2, 4)) + sweep("des-vote", every_expert_count((16, 32, 48)))
          + sweep("des-max", every_expert_count((12, 16, 24, 32)))],
}
TUNE = ["--select-tune", "0.01"]
BATCHED = [rule + scope for rule in ("des-vote:0.6", "des-max:0.375") for scope in ("", ",scope=batch")]
CORES = [f"{rule}:{count / 64}" for count in (8, 16, 24, 32, 48) for rule in ("des-vote", "des-max")] + [
    "des-seq:1", "des-seq:2", "des-seq:3"]


class Runs:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.path = pathlib.Path(args.output)
        self.done = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.data = {"all": self.items("all", HELD_OUT), "plain": self.items("plain", HELD_OUT[:1])}

    def items(self, name, sets):
        """Writes items drawn by the generator to a file."""
        text = ""
        for count, seed, which in sets:
            command = [sys.executable, str(ROOT / "training/tasks_data.py"), str(count), str(seed), *which]
            text += subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
        path = self.folder / f"{name}.jsonl"
        path.write_text(text)
        return str(path)

    def keep(self, key, program, *arguments):
        """Runs a command for its JSON lines, unless the file has them."""
        if key in self.done:
            return
        print(key, flush=True)
        command = [f"{self.args.build}/{program}", *map(str, arguments)]
        made = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
        whole = made if made.startswith("{\n") else None
        self.done[key] = json.loads(whole) if whole else [json.loads(line) for line in made.splitlines()]
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps(self.done, indent=0) + "\n")
        temporary.replace(self.path)

    def tasks(self, key, model, rules, *more, data="all", batch=20):
        select = ["--select", *rules] if rules else []
        self.keep(key, "tessera", "eval", "tasks", model, "--data", self.data[data], "--threads", 1, "--batch",
                  batch, "--json", *select, *more)


def measure(runs, name, model):
    form = name[0]
    runs.tasks(f"{name} rules", model, RULES[form], *TUNE, *(["--limit", runs.args.limit] if runs.args.limit else []))
    if name[2:] != "0" or form == "c":
        return
    if form == "a":
        # Earlier setting: passes that fill the cache also decide without the rule.
        runs.tasks(f"{name} refreshes off", model, ["des-vote:0.25", "des-max:0.1875"], "--select-refresh", "off",
                   data="plain")
    runs.keep(f"{name} experts", "tessera", "eval", "experts", model, "--data", runs.data["all"], "--limit", 45,
              "--threads", 1, "--json", "--select", *CORES)
    for batch in (20, 5, 1):
        runs.tasks(f"{name} batches of {batch}", model, BATCHED if batch > 1 else BATCHED[::2], batch=batch)
    runs.tasks(f"{name} int8", model, ["des-max:0.375", "des-vote:0.75"], "--dtype", "int8")
    if form == "a":
        for block in (16, 64):
            runs.tasks(f"{name} block {block}", model,
                       sweep("des-vote", every_expert_count((32, 40, 48, 56)))
                       + sweep("des-max", every_expert_count((12, 16, 20, 24, 32))), *TUNE, "--block", block)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="folder of the programs: build/release")
    parser.add_argument("models", nargs="+", metavar="FORM-SEED=MODEL")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--limit", type=int, help="items of the rules' runs, the first ones (default: all)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(args, pathlib.Path(folder))
        for pair in args.models:
            name, _, model = pair.partition("=")
            if name[:2] not in ("a-", "b-", "c-") or not model:
                sys.exit(f"'{pair}': expected FORM-SEED=MODEL, as a-0=tasks-a")
            measure(runs, name, model)


if __name__ == "__main__":
    main()
