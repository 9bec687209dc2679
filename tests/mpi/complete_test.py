#!/usr/bin/env python3
"""`mpirun -np N tessera complete`: the answer of one process, printed once."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import unittest

MPIRUN = shlex.split(os.environ["TESSERA_MPIRUN"])
PROGRAM = os.environ["TESSERA_PROGRAM"]
DATA = pathlib.Path(os.environ["TESSERA_SOURCE"]) / "tests/data/moe"


def settled(result):
    """What the answers are; confidences of sums in another order differ in their last digits."""
    return [{key: c[key] for key in ("ids", "finish", "usage", "passes")} for c in result["completions"]]


class CompleteTest(unittest.TestCase):
    def complete(self, prefix, model, *more):
        done = subprocess.run([*prefix, PROGRAM, "complete", str(DATA / model / "model"), "--dtype", "f32",
                               "--prompt-ids", "5,17,30", "--prompt-ids", "8", "--max-tokens", "9",
                               "--block", "8", "--select", "des-vote:0.5", "--threads", "1", "--json", *more],
                              capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_processes_give_the_answer_of_one(self):
        for model, plans in (("llada_moe", ("expert=3", "moe=fused,expert=3", "tensor=2")),
                             ("llada2", ("expert=2", "moe=fused,expert=2"))):
            one = self.complete([], model)
            for plan in plans:
                many = self.complete(MPIRUN + ["-np", plan[-1]], model, "--plan", plan)
                threads = self.complete([], model, "--plan", plan)
                for key in ("experts_read", "forwards"):
                    self.assertEqual(many[key], one[key], f"{model} {plan} {key}")
                self.assertEqual(settled(many), settled(one), f"{model} {plan}")
                self.assertEqual(many["bytes_sent"], threads["bytes_sent"])
                self.assertEqual(many["bytes_read"], threads["bytes_read"])

    def test_ranks_read_their_experts_within_their_budgets(self):
        model = pathlib.Path(os.environ["TESSERA_SOURCE"]) / "models/tasks-b"
        ask = [PROGRAM, "complete", str(model), "--prompt", "sort hello=", "--threads", "1", "--json"]

        def run(*command):
            return subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)

        one = json.loads(run(*ask).stdout)
        for ranks in (2, 3):
            many = [*MPIRUN, "-np", str(ranks), *ask, "--plan", f"expert={ranks}", "--memory-budget"]
            refused = run(*many, "1KB")
            self.assertEqual(refused.returncode, 6, refused.stderr)
            least = re.search(r"it fits into --memory-budget ([0-9.]+MB)", refused.stderr)
            self.assertIsNotNone(least, refused.stderr)
            done = run(*many, least[1])
            self.assertEqual(done.returncode, 0, done.stderr)
            result = json.loads(done.stdout)
            self.assertEqual(result["completions"], one["completions"], "bit by bit")
            self.assertEqual(len(result["per_rank"]), ranks)
            for key in ("all", "resident", "hits", "misses", "bytes"):
                self.assertEqual(sum(rank["streamed_experts"][key] for rank in result["per_rank"]),
                                 result["streamed_experts"][key])
            for rank in result["per_rank"]:
                self.assertLessEqual(rank["peak_bytes"]["total"], float(least[1][:-2]) * 1e6)
                self.assertLess(rank["streamed_experts"]["resident"], rank["streamed_experts"]["all"])
                self.assertGreater(rank["streamed_experts"]["bytes"], 0)

    def test_a_bad_plan_is_refused_in_one_line(self):
        done = subprocess.run([*MPIRUN, "-np", "3", PROGRAM, "complete", str(DATA / "llada2/model"),
                               "--prompt-ids", "1", "--plan", "tensor=3"],
                              capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        lines = [l for l in done.stderr.splitlines() if l.startswith("tessera: error: ")]
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertEqual(len(lines), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
