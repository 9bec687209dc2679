"""Tests of tools/compare_builds.py: what counts as a difference between two builds."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import compare_builds as compared  # noqa: E402


class CompareBuilds(unittest.TestCase):
    def test_keys_may_have_been_renamed(self):
        old = {"a.layers[0].rows": 1, "a.rows": 2}
        self.assertEqual(compared.renamed(old, [(r"(layers\[\d+\])\.rows", r"\1.assignments")]),
                         {"a.layers[0].assignments": 1, "a.rows": 2})

    def test_commands_cover_models_and_plans_under_names_of_their_own(self):
        names = [name for name, _ in compared.commands()]
        self.assertGreaterEqual(len(names), 40)
        self.assertEqual(len(names), len(set(names)))

    def test_a_plan_says_how_many_ranks_it_needs(self):
        self.assertEqual(compared.ranks("data=2,distrifusion=3"), 6)
        self.assertEqual(compared.ranks("cfg=2,ring=2,ulysses=3,expert=4,warmup=9"), 12)
        self.assertEqual(compared.ranks("expert=4,schedule=displaced"), 4)
        self.assertEqual(compared.ranks("distrifusion=3,expert=3"), 3)

    def test_times_are_left_out_and_the_rest_is_not(self):
        report = {"plan": "x", "phase_seconds": {"load": 1}, "steps": [{"wait_seconds": 1, "rows": 2}]}
        self.assertEqual(compared.without_times(report), {"plan": "x", "steps": [{"rows": 2}]})

    def test_another_byte_another_row_and_a_missing_file_differ_memory_apart(self):
        old = {"x.png": b"a", "r.rows": 1, "r.peak_bytes.kv": 1, "r.mean": 0.1 + 0.2, "gone": b""}
        new = {"x.png": b"b", "r.rows": 2, "r.peak_bytes.kv": 2, "r.mean": 0.3}
        self.assertEqual(compared.differences(old, new), (["x.png", "r.rows", "gone"], ["r.peak_bytes.kv"]))
        self.assertEqual(compared.differences(old, old), ([], []))

    def test_a_run_is_its_status_its_output_and_its_files(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "program")
            program.write_text('#!/bin/sh\nmkdir -p "$2/deep"; printf \'{"rows": 3, "seconds": 9}\' > "$2/deep/r.json"\n'
                               "echo done; exit 4\n")
            program.chmod(0o755)
            out = pathlib.Path(folder, "out")
            out.mkdir()
            left = compared.run(str(program), ["generate", "OUT"], out, compared.DATA)
        self.assertEqual(left["status"], 4)
        self.assertEqual(left["stdout"], b"done\n")
        self.assertEqual([v for k, v in left.items() if k.startswith("deep/r.json")], [3])


if __name__ == "__main__":
    unittest.main()
