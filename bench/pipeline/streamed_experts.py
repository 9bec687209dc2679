#!/usr/bin/env python3
"""Measures the bytes that language models read for each pass if not all experts fit in memory, by budget and rule.

    python3 bench/pipeline/streamed_experts.py TESSERA MODEL EXAMPLES RULE...

The examples are the first of the model's tasks.jsonl, each in a separate process. Ids, confidences and passes are compared with
a run with all experts in memory.
"""

import json
import pathlib
import subprocess
import sys

SHARES = (0.9, 0.75, 0.5)  # of the experts in memory


def complete(program, model, prompt, rule, budget=None):
    limit = ["--memory-budget", f"{budget / 1e6:.6f}MB"] if budget else []
    command = [program, "complete", model, "--prompt", prompt, "--select", rule, "--json", *limit]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main():
    program, model, count, rules = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    lines = (pathlib.Path(__file__).parents[2] / "models" / model / "tasks.jsonl").read_text().splitlines()
    prompts = [json.loads(line)["prompt"] for line in lines[:count]]
    some = complete(program, model, prompts[0], rules[0])
    total = some["peak_bytes"]["total"]
    streamed = complete(program, model, prompts[0], rules[0], total - 100_000)["streamed_experts"]
    all_of, experts = streamed["all"], streamed["bytes"] // streamed["misses"]
    print("| rule | experts that stay | of | passes | asked of a layer, a pass | read a pass | KB a pass | there | same bits |")
    for rule in rules:
        whole = [complete(program, model, prompt, rule) for prompt in prompts]
        for share in SHARES:
            made = [complete(program, model, prompt, rule,
                             before["peak_bytes"]["total"] - (1 - share) * all_of * experts) for prompt, before in zip(prompts, whole)]
            passes = sum(one["forwards"] for one in made)
            use = {key: sum(one["streamed_experts"][key] for one in made) for key in ("hits", "misses", "bytes", "resident")}
            layers = len(made[0]["completions"][0]["passes"][0]["experts"])
            same = all(a["completions"] == b["completions"] for a, b in zip(made, whole))
            asked = (use["hits"] + use["misses"]) / passes
            print(f"| {rule} | {use['resident'] / len(made):.0f} | {all_of} | {passes} | {asked / layers:.1f} | {use['misses'] / passes:.1f} | "
                  f"{use['bytes'] / passes / 1e3:.0f} | {100 * use['hits'] / (use['hits'] + use['misses']):.0f} % | {'yes' if same else 'NO'} |")


if __name__ == "__main__":
    main()
