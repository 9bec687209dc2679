#!/usr/bin/env python3
"""Lists, takes and compares tensors of a golden file."""

import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE") or pathlib.Path(__file__).parents[2])
GOLDEN = SOURCE / "tests/data/moe/dit_moe_flash/io.safetensors"
sys.path.insert(0, str(SOURCE / "tools"))

import tensors  # noqa: E402


def run(*arguments):
    done = subprocess.run([sys.executable, SOURCE / "tools/tensors.py", *map(str, arguments)],
                          capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class Tensors(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def test_lists(self):
        status, said = run("list", GOLDEN)
        self.assertEqual(status, 0, said)
        self.assertIn("forward.0.x  F32 [2, 4, 8, 8]\n", said)

    def test_takes_and_compares(self):
        taken = self.folder / "in.safetensors"
        self.assertEqual(run("take", GOLDEN, "forward.0.", taken), (0, ""))
        status, said = run("compare", f"{taken}:x", f"{GOLDEN}:forward.0.x")
        self.assertEqual(status, 0)
        self.assertIn("differs by 0 at most", said)
        self.assertEqual(run("compare", f"{taken}:x", f"{GOLDEN}:forward.1.x")[0], 1)

    def test_takes_one_under_another_name(self):
        taken = self.folder / "one.safetensors"
        self.assertEqual(run("take", GOLDEN, "forward.0.x", taken, "--as", "sample"), (0, ""))
        self.assertEqual(run("compare", f"{taken}:sample", f"{GOLDEN}:forward.0.x")[0], 0)
        self.assertNotIn("\n", run("list", taken)[1].strip())
        self.assertNotEqual(run("take", GOLDEN, "forward.0.", taken, "--as", "x")[0], 0)

    def test_reads_every_float(self):
        numbers = [1.0, -2.5, 0.0, 3.140625]
        path = self.folder / "t.safetensors"
        tensors.write(path, {
            "a": ("F32", [4], struct.pack("<4f", *numbers)),
            "b": ("BF16", [4], b"".join(struct.pack("<f", v)[2:] for v in numbers)),
            "c": ("F16", [2, 2], struct.pack("<4e", *numbers)), "i": ("I32", [1], b"\0" * 4)})
        for other in "bc":
            self.assertEqual(run("compare", f"{path}:a", f"{path}:{other}", "--within", "0")[0], 0)
        self.assertEqual(run("compare", f"{path}:a", f"{path}:i")[0], 1)

    def test_says_what_is_wrong(self):
        for arguments, says in [(("list", "none"), "No such file"), (("list", __file__), "no safetensors"),
                                (("take", GOLDEN, "none.", "x"), "nothing under 'none.'"),
                                (("compare", f"{GOLDEN}:x", f"{GOLDEN}:y"), "holds no 'x'")]:
            status, said = run(*arguments)
            self.assertEqual(status, 1, said)
            self.assertIn(says, said)
            self.assertEqual(len(said.splitlines()), 1, said)

    def test_a_number_that_is_none_is_a_difference(self):
        path = self.folder / "t.safetensors"
        tensors.write(path, {"a": ("F32", [1], struct.pack("<f", float("nan")))})
        self.assertEqual(run("compare", f"{path}:a", f"{path}:a")[0], 1)


if __name__ == "__main__":
    unittest.main()
