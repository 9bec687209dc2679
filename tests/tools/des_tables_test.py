#!/usr/bin/env python3
"""The tables of des.md, from runs as bench/des/measure.py keeps them."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TABLES = pathlib.Path(__file__).resolve().parents[2] / "bench/des/tables.py"


def line(rule, right, experts, ruled=1.0):
    return {"select": rule, "examples": 100, "accuracy": right / 100, "accuracy_95": [0.5, 0.9], "gained": 1,
            "lost": 7, "p": 0.07, "ruled": ruled, "experts": experts, "experts_share": experts / 50,
            "batch_experts": 60.0, "passes": 3.0, "bytes": 2e6, "milliseconds": 5.0, "tasks": {"add": right / 100}}


RUN = [line("vanilla", 80, 50.0), line("topk:4", 60, 30.0), line("des-vote:0.6", 76, 38.0),
       line("mc:0.6,0,0.1", 70, 45.0), {"tuned": line("des-vote:0.6", 78, 38.0)}]


class Tables(unittest.TestCase):
    def printed(self, runs):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "des.json"
            path.write_text(json.dumps(runs))
            done = subprocess.run([sys.executable, str(TABLES), str(path)], text=True, stdout=subprocess.PIPE)
        self.assertEqual(done.returncode, 0)
        return done.stdout

    def test_table_1_is_relative_to_vanilla(self):
        text = self.printed({"a-0 rules": RUN})
        self.assertIn("Tokens decided under the rule: 100.0 % at least", text)
        self.assertIn("| `des-vote:0.6` | 38.0; 95.0 (-7 +1, p 0.07) |", text)
        self.assertIn("| `mc:0.6` | 45.0; 87.5 (-7 +1", text)
        self.assertIn("| `des-vote` | 76 % (`des-vote:0.6`; 92.9 % kept, -7 +1, p 0.07) |", text)
        self.assertIn("| `topk` | more than was tried |", text)

    def test_seeds_stand_side_by_side(self):
        text = self.printed({"a-1 rules": RUN, "a-0 rules": RUN})
        self.assertIn("| rule | a-0 | a-1 |\n|---|---|---|\n| `vanilla` | 50.0; 100.0 | 50.0; 100.0 |", text)

    def test_canvases_stand_seed_by_seed_with_their_open_tokens(self):
        run = [line("vanilla", 80, 50.0), line("des-max:0.25", 79, 15.0), line("des-max:0.25,over=open", 78, 40.0, 0.97)]
        text = self.printed({"c-0 rules": run, "c-1 rules": run})
        self.assertIn("Tokens decided under the rule: 97.0 % at least", text)
        cell = "15.0 (30 %); 79.0 (-7 +1)"
        self.assertIn(f"| `des-max:0.25` | {cell} | {cell} | 3.0, 3.0 | 2.0, 2.0 | 80, 80 | 78.0, 78.0 |", text)
        self.assertNotIn("| `des-max:0.25,over=open` | 40.0 (", text)

    def test_too_few_tokens_under_the_rule_are_said(self):
        self.assertIn("below 90 %", self.printed({"a-0 rules": [line("vanilla", 80, 50.0, 0.06)]}))


if __name__ == "__main__":
    unittest.main()
