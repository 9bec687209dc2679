#!/usr/bin/env python3
"""A rank that is killed within a layer of fused experts: the others name it, and nothing is left."""

import os
import pathlib
import shlex
import subprocess
import time
import unittest

MPIRUN = shlex.split(os.environ["TESSERA_MPIRUN"])
HEAPS = os.environ["TESSERA_HEAPS"]


def shared_memory():
    """Segments with a name, but for those of MPI itself, and processes that have one of ours mapped."""
    named = {p.name for p in pathlib.Path("/dev/shm").iterdir() if "vader" not in p.name and "mpi" not in p.name}
    mapped = set()
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        try:
            if "/memfd:tessera" in maps.read_text() and pathlib.Path(os.readlink(maps.parent / "exe")).name == \
                    pathlib.Path(HEAPS).name:
                mapped.add(maps.parent.name)
        except OSError:
            pass
    return named, mapped


class HeapsTest(unittest.TestCase):
    def test_a_killed_rank_is_named_and_leaves_no_memory(self):
        before, _ = shared_memory()
        for _ in range(3):
            begun = time.monotonic()
            done = subprocess.run([*MPIRUN, "-np", "3", HEAPS, "lost"], capture_output=True, text=True,
                                  timeout=120, stdin=subprocess.DEVNULL)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(done.stdout, "")
            lines = [l for l in done.stderr.splitlines() if l.startswith("rank 2 was lost")]
            self.assertEqual(len(lines), 1, done.stderr)
            self.assertLess(time.monotonic() - begun, 55, "not by the deadline")
            self.assertEqual(shared_memory()[1], set())
        self.assertLessEqual(shared_memory()[0], before)


if __name__ == "__main__":
    unittest.main()
