import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "bench" / "network"
spec = importlib.util.spec_from_file_location("bounds", FOLDER / "bounds.py")
bounds = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bounds)

MB = 1_000_000


def run(plan, mbit, seconds, layer_bytes, wait=0.0, flops=100):
    return {"bench": "schedule", "mbit": mbit, "plan": plan, "steps": 5, "denoise_s": seconds, "wait_s": wait,
            "flops": flops, "layer_bytes": layer_bytes, "sent_bytes": sum(layer_bytes), "link_bytes": 0}


class Bounds(unittest.TestCase):
    """Five steps of four layers; 1 s of computing a layer; 8 Mbit/s carry a megabyte a second."""

    def rows(self, *lines):
        return {r["plan"]: r for r in bounds.rows_of(lines)}

    def test_computing_is_that_of_the_synchronous_plan_without_its_waits_for_all_rows(self):
        lines = [run(p, m, t, [10 * MB] * 4, w) for p, t, w in (("schedule=sync", 23.0, 3.0), ("schedule=sync", 24.0, 2.0),
                                                                ("schedule=displaced", 15.0, 1.0))
                 for m in (None, 800.0)]
        rows = self.rows(*lines)
        self.assertEqual({r["a_ms"] for r in rows.values()}, {1000})

    def test_a_plan_that_computes_less_takes_that_share_of_the_time(self):
        lines = [run(p, m, 60.0, [1 * MB] * 4, 40.0, r) for p, r in (("schedule=sync", 100), ("schedule=adaptive", 51))
                 for m in (None, 8.0)]
        self.assertEqual(self.rows(*lines)["schedule=adaptive"]["bound_s"], round(0.51 * 20, 3))

    def test_no_run_can_end_before_its_computing_or_its_messages(self):
        for mbytes, least in ((1, 20), (10, 40)):
            lines = [run(p, m, t, [mbytes * MB] * 4) for p in ("schedule=sync", "schedule=interweaved")
                     for m, t in ((None, 20.0), (8.0, 80.0))]
            for row in self.rows(*lines).values():
                self.assertEqual(row["bound_s"], least)
                self.assertEqual(row["of_bound"], least / 80)

    def test_the_least_synchronous_run_of_any_rate_counts(self):
        lines = [run("schedule=sync", m, t, [MB] * 4, w) for m, t, w in ((None, 23.0, 1.0), (8.0, 60.0, 40.0))]
        self.assertEqual(self.rows(*lines)["schedule=sync"]["a_ms"], 1000)

    def test_lines_without_a_synchronous_plan_are_refused(self):
        with self.assertRaises(SystemExit):
            self.rows(run("schedule=displaced", 8.0, 80.0, [MB] * 4))

    def test_takes_the_bandwidth_that_was_reached_and_the_median_run(self):
        lines = [run("schedule=sync", m, t, [10 * MB] * 4) for m, t in ((None, 20.0), (8.0, 99.0), (8.0, 70.0),
                                                                        (8.0, 71.0))]
        for size, rate in ((4096, 7.0), (4 << 20, 4.0), (1 << 20, 3.0)):
            lines.append({"bench": "exchange", "mbit": 8.0, "bytes": size, "mbit_each_way": rate})
        row = self.rows(*lines)["schedule=sync"]
        self.assertEqual((row["bound_s"], row["denoise_s"], row["runs"]), (80, 71.0, 3))

    def test_prints_lines_or_a_table(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "lines.jsonl")
            path.write_text("mpirun says\n" + "\n".join(json.dumps(run("schedule=sync", m, 60.0, [10 * MB] * 4))
                                                        for m in (None, 8.0)))
            call = [sys.executable, FOLDER / "bounds.py", path]
            said = subprocess.run(call, capture_output=True, text=True, check=True).stdout
            self.assertEqual(json.loads(said)["bound_s"], 60)
            said = subprocess.run([*call, "--table"], capture_output=True, text=True, check=True).stdout
            self.assertIn("| `schedule=sync` | 40.0 | 60.00 s, 100 %, 1.00x |", said)


if __name__ == "__main__":
    unittest.main()
