#!/usr/bin/env python3
"""A rank that is killed within a layer of fused experts: the others name it, and nothing is left."""

import os
import pathlib
import shlex
import subprocess
import unittest
import uuid

MPIRUN = shlex.split(os.environ["TESSERA_MPIRUN"])
HEAPS = os.environ["TESSERA_HEAPS"]


def mapped_by(run):
    """Processes of this run that have shared memory of ours mapped; it has no name that could be left."""
    mapped = set()
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        try:
            if f"TESSERA_RUN={run}".encode() in (maps.parent / "environ").read_bytes() and \
                    "/memfd:tessera" in maps.read_text():
                mapped.add(maps.parent.name)
        except OSError:
            pass
    return mapped


class HeapsTest(unittest.TestCase):
    def test_a_killed_rank_is_named_and_leaves_no_memory(self):
        for way in ("", "", "messages", "messages"):
            run = uuid.uuid4().hex
            done = subprocess.run([*MPIRUN, "-np", "3", HEAPS, "lost"], capture_output=True, text=True,
                                  timeout=120, stdin=subprocess.DEVNULL,
                                  env={**os.environ, "TESSERA_RUN": run, "TESSERA_HEAP": way})
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(done.stdout, "")
            lines = [l for l in done.stderr.splitlines() if l.startswith("rank 2 was lost")]
            self.assertEqual(len(lines), 1, done.stderr)
            self.assertEqual(mapped_by(run), set())


if __name__ == "__main__":
    unittest.main()
