import importlib.util
import pathlib
import unittest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "bench" / "network"
spec = importlib.util.spec_from_file_location("plans", FOLDER / "plans.py")
plans = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plans)


def run(plan, seconds, flops=100, link=(0, 0), mbit=8.0):
    return {"bench": "plan", "mbit": mbit, "plan": plan, "each": 1, "steps": 4, "denoise_s": seconds, "core_flops": flops,
            "link_bytes": list(link)}


class Plans(unittest.TestCase):
    """One rank takes 20 s of 100 FLOPs; 8 Mbit/s carry a megabyte a second."""

    def row(self, *lines):
        return next(plans.rows_of([run("", 10.0), run("", 20.0), run("", 90.0), *lines]))

    def test_a_core_that_computes_longer_than_the_link_carries_is_the_bound(self):
        row = self.row(run("pipefusion=2", 11.0, 50, (2_000_000, 9_000_000)))
        self.assertEqual((row["core_s"], row["link_s"], row["over_bound"]), (10, 9, 1.1))

    def test_the_busiest_direction_of_the_link_is(self):
        row = self.row(run("ulysses=2", 90.0, 50, (30_000_000, 20_000_000)))
        self.assertEqual((row["core_s"], row["link_s"], row["over_bound"]), (10, 30, 3))

    def test_a_link_without_a_limit_carries_at_once(self):
        self.assertEqual(self.row(run("ulysses=2", 15.0, 50, (30_000_000, 0), None))["over_bound"], 1.5)

    def test_the_median_run_counts(self):
        self.assertEqual(self.row(*(run("ring=2", s, 50) for s in (99.0, 12.0, 11.0)))["denoise_s"], 12)

    def test_lines_without_a_run_on_one_rank_are_refused(self):
        with self.assertRaises(SystemExit):
            list(plans.rows_of([run("ring=2", 12.0)]))


if __name__ == "__main__":
    unittest.main()
