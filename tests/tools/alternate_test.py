"""Turns of a benchmark and a peer, without either: a program that counts, functions that wait."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

from scratch_tree import SOURCE

sys.path.insert(0, str(SOURCE / "bench/peers"))
import alternate

PROGRAM = """#!/usr/bin/env python3
import sys
assert sys.argv[1:] == ["2", "8x8", "--device", "cuda", "--turns"], sys.argv
for i, line in enumerate(sys.stdin):
    print('{"ms": %d}' % (i + 1), flush=True)
"""


def refuse():
    raise RuntimeError("not on this GPU\nand more")


class Alternate(unittest.TestCase):
    def compare(self, text, variants):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            program = pathlib.Path(folder) / "bench"
            program.write_text(text)
            program.chmod(0o755)
            line = alternate.compare_resident(str(program), 2, "8x8", variants, lambda f: f(), "cuda", rounds=3)
        self.assertEqual(json.loads(said.getvalue()), line)
        return line

    def test_medians_of_turns_and_ratios(self):
        line = self.compare(PROGRAM, {"eager": lambda: 0.012, "flash": refuse})
        # The first of four turns warms up: 2, 3 and 4 ms count.
        self.assertEqual(line["tessera_ms"], 3)
        self.assertEqual(line["eager_ms"], 12)
        self.assertEqual(line["eager_over_tessera"], 4)
        self.assertEqual(line["cannot"], {"flash": "not on this GPU"})

    def test_a_program_that_ends_is_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "ended with status 3"):
            self.compare("#!/bin/sh\nexit 3\n", {})

    def test_the_device_is_an_argument(self):
        self.assertEqual(alternate.take_device(["1", "--device", "cuda", "a"]), ("cuda", ["1", "a"]))
        self.assertEqual(alternate.take_device(["1"]), ("cpu", ["1"]))
        with self.assertRaises(SystemExit):
            alternate.take_device(["--device", "tpu"])


if __name__ == "__main__":
    unittest.main()
