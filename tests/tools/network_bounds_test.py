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


def run(plan, mbit, seconds, layer_bytes):
    return {"bench": "schedule", "mbit": mbit, "plan": plan, "steps": 5, "denoise_s": seconds,
            "layer_bytes": layer_bytes, "sent_bytes": sum(layer_bytes), "link_bytes": 0}


class Bounds(unittest.TestCase):
    """Five steps of four layers; 1 s of computing a layer; 8 Mbit/s carry a megabyte a second."""

    def rows(self, *lines):
        return {r["plan"]: r for r in bounds.rows_of(lines)}

    def test_which_layers_hide(self):
        hides = lambda plan: bounds.hides(plan, 4)
        self.assertEqual(hides("schedule=sync"), [False] * 4)
        self.assertEqual(hides("schedule=adaptive,budget=50"), [False] * 4)
        self.assertEqual(hides("schedule=displaced"), [True] * 4)
        self.assertEqual(hides("schedule=interweaved,sync=deep,conditional=low"), [True, True, False, False])
        self.assertEqual(hides("schedule=interweaved,sync=shallow"), [False, False, True, True])

    def test_synchronous_layers_add_and_asynchronous_ones_take_the_longer(self):
        lines = [run(p, m, t, b) for p, b in (("schedule=sync", [10 * MB] * 4),
                                              ("schedule=interweaved", [10 * MB, 4 * MB, 8 * MB, 2 * MB]))
                 for m, t in ((None, 20.0), (8.0, 80.0))]
        rows = self.rows(*lines)
        self.assertEqual(rows["schedule=sync"]["bound_s"], 20 + 40)
        # The first step is synchronous in any plan: 4 * (1 + 2). Later the layers' messages take 2, 0.5, 1.5 and 0 s.
        self.assertEqual(rows["schedule=interweaved"]["bound_s"], 12 + 4 * (2 + 1 + 1.5 + 1))
        self.assertEqual(rows["schedule=interweaved"]["of_bound"], round(34 / 80, 3))

    def test_steps_of_the_warm_up_are_synchronous(self):
        lines = [run(p, m, t, [10 * MB] * 4) for p in ("schedule=sync", "warmup=5,schedule=interweaved")
                 for m, t in ((None, 20.0), (8.0, 80.0))]
        rows = self.rows(*lines)
        self.assertEqual(rows["warmup=5,schedule=interweaved"]["bound_s"], rows["schedule=sync"]["bound_s"])

    def test_takes_the_bandwidth_that_was_reached_and_the_median_run(self):
        lines = [run("schedule=sync", m, t, [10 * MB] * 4) for m, t in ((None, 20.0), (8.0, 99.0), (8.0, 70.0),
                                                                        (8.0, 71.0))]
        for size, rate in ((4096, 7.0), (4 << 20, 4.0), (1 << 20, 3.0)):
            lines.append({"bench": "exchange", "mbit": 8.0, "bytes": size, "mbit_each_way": rate})
        row = self.rows(*lines)["schedule=sync"]
        self.assertEqual((row["bound_s"], row["denoise_s"], row["runs"]), (20 + 80, 71.0, 3))

    def test_prints_lines_or_a_table(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "lines.jsonl")
            path.write_text("mpirun says\n" + "\n".join(json.dumps(run("schedule=sync", m, 60.0, [10 * MB] * 4))
                                                        for m in (None, 8.0)))
            call = [sys.executable, FOLDER / "bounds.py", path]
            said = subprocess.run(call, capture_output=True, text=True, check=True).stdout
            self.assertEqual(json.loads(said)["bound_s"], 100)
            said = subprocess.run([*call, "--table"], capture_output=True, text=True, check=True).stdout
            self.assertIn("| `schedule=sync` | 40.0 | 60.00 s, 167 %, 1.00x |", said)


if __name__ == "__main__":
    unittest.main()
