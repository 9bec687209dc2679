#!/usr/bin/env python3
"""What measures the server (bench/server/measure.py) runs, and says what the results quote; its figures are not judged here."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

from serving import PROGRAM, SOURCE, main

SMALL = ["--requests", "3", "--rounds", "1", "--jobs", "8", "--sides", "64", "--steps", "2", "--count", "1", "--clients", "8", "--seconds", "2",
         "--connections", "200"]
SAID = {"overhead": {"client_ms", "library_ms", "overhead_ms", "run_ms"}, "batching": {"what", "against", "ratio", "batched_per_s"},
        "beside": {"own_ms", "step_ms", "p99_ms", "allowed_ms"}, "flooded": {"flood", "own_ms", "step_ms", "p99_ms", "allowed_ms"}, "clients": {"acknowledged", "lost", "p99_ms", "slope_kb_per_min"},
        "idle": {"held", "threads", "kb_each", "short_job_ms"}, "killed": {"acknowledged", "missing", "done_in_the_end"}}


class Measure(unittest.TestCase):
    def said(self, *measures):
        build = pathlib.Path(PROGRAM).parent
        done = subprocess.run([sys.executable, SOURCE / "bench/server/measure.py", build, *SMALL, *measures], capture_output=True, text=True,
                              timeout=240, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([line["measure"] for line in lines][-1], measures[-1])
        for line in lines:
            self.assertLessEqual(SAID[line["measure"]], set(line))
        return lines

    def test_the_overhead(self):
        if not (pathlib.Path(PROGRAM).parent / "bench/request_bench").exists():
            self.skipTest("this build has no benchmarks (TESSERA_BUILD_BENCH)")
        self.assertEqual({line["model"] for line in self.said("overhead")}, {"shapes", "tasks-a"})

    def test_batches_and_what_runs_beside(self):
        lines = self.said("batching", "beside")
        pairs = [(line["way"], line["against"]) for line in lines if line["measure"] == "batching"]
        self.assertEqual(pairs, [(way, other) for way in ("batched", "two batches at once") for other in ("alone", "two at once")] * 2)

    def test_a_flood(self):
        self.assertEqual([line["flood"] for line in self.said("flooded")], ["long", "short"])

    def test_crowds_and_kills(self):
        clients, idle, killed = self.said("clients", "idle", "killed")
        self.assertEqual((clients["lost"], clients["failures"], clients["threads_after"]), (0, [], clients["threads_before"]))
        self.assertEqual((idle["connections"], idle["closed_by_server"], idle["threads"]), (200, 0, idle["threads_before"]))
        self.assertEqual((killed["missing"], killed["done_in_the_end"]), (0, killed["acknowledged"]))


if __name__ == "__main__":
    main()
