#!/usr/bin/env python3
"""`tessera bench parallel`: every plan for some ranks in one table, and as JSON lines."""

import json
import re
import signal
import subprocess
import unittest

from program import DATA, PROGRAM, ProgramTest

TINY = DATA / "moe/dit_moe_flash/model"
RUN = ("bench", "parallel", TINY, "--steps", "3", "--dtype", "f32")


class BenchParallel(ProgramTest):
    def rows(self, done):
        """The plans of a table with their seconds, and its last line."""
        head, *rows, end = done.stdout.splitlines()
        self.assertEqual(head.split(), ["plan", "s", "a", "step", "MB", "sent", "messages", "MB", "a", "rank"])
        return [(row.split()[0], row.split()[1]) for row in rows], end

    def test_a_table_by_time_and_json(self):
        done = self.run_here(*RUN, "--rounds", "1", "--json", "plans.jsonl", "--seconds", "600")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows, end = self.rows(done)
        times = [float(seconds) for _, seconds in rows]
        self.assertEqual(times, sorted(times))
        plans = {plan for plan, _ in rows}
        self.assertEqual(len(plans), len(rows))
        self.assertLessEqual({"cfg=2", "ulysses=2", "ring=2", "tensor=2", "distrifusion=2"}, plans)
        self.assertRegex(end, rf"^{len(rows)} plans for 2 ranks, 0 not measured; left out: [1-9]\d* that cannot run")
        lines = [json.loads(line) for line in (self.folder / "plans.jsonl").read_text().splitlines()]
        self.assertEqual([line["plan"] for line in lines], [plan for plan, _ in rows])
        for line in lines:
            self.assertGreater(line["step_seconds"], 0)
            self.assertGreater(line["sent_bytes"], 0)
            self.assertEqual(line["rounds"], 1)

    def test_predicted_alone(self):
        done = self.run_here(*RUN, "--ranks", "6", "--seconds", "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows, end = self.rows(done)
        self.assertEqual({seconds for _, seconds in rows}, {"-"})
        self.assertIn(f"{len(rows)} plans for 6 ranks, {len(rows)} not measured", end)
        self.assertEqual(self.run_here(*RUN, "--ranks", "6", "--seconds", "0").stdout, done.stdout)

    def test_so_many_plans_are_predicted(self):
        done = self.run_here(*RUN, "--ranks", "64", "--seconds", "0", "--plans", "2")
        rows, end = self.rows(done)
        self.assertEqual(len(rows), 2)
        self.assertRegex(end, r", \d+ not tried \(see --plans\)$")

    def test_ctrl_c_prints_what_was_measured(self):
        process = subprocess.Popen([PROGRAM, *map(str, RUN), "--rounds", "10000", "--seconds", "600"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder)
        for line in process.stderr:
            if line.startswith("measured"):
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual(err.splitlines()[-1], "tessera: error: stopped before all plans were measured")
        rows, _ = self.rows(subprocess.CompletedProcess((), 0, out, ""))
        self.assertTrue(re.fullmatch(r"[\d.e-]+", rows[0][1]) and rows[0][1] != "-", out)

    def test_refusals(self):
        for arguments, says in ((("--size", "0"), "expected pixels"), (("--size", "512x"), "expected pixels"),
                                (("--size", "12x12y"), "512 or 768x512"), (("--ranks", "100"), "100 ranks"),
                                (("--size", "100"), "--size 100: width 100: expected a multiple of 16"), (("--plans", "0"), "--plans"),
                                (("--plan", "ulysses=2"), "leave out --plan"), (("--rounds", "0"), "--rounds"),
                                (("--json", "no/folder/x"), "make its folder first")):
            self.refused(2, *RUN, *arguments, says=says)
        self.refused(2, "bench", says="kernels, parallel or calibrate")
        self.refused(2, "bench", "parallel", says="MODEL")
        self.refused(2, "bench", "paralel", says=["unknown command 'bench paralel'", "did you mean 'parallel'"])
        self.refused(2, "bench", "parallel", "tasks-a", says="makes no images")
        self.refused(3, "bench", "parallel", "no/model", says="no/model")


if __name__ == "__main__":
    unittest.main()
