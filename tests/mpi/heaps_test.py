#!/usr/bin/env python3
"""A rank that is killed or stopped within a layer of fused experts: the others name it, and nothing is left."""

import os
import pathlib
import shlex
import subprocess
import time
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
    def run_to_its_end(self, word, way):
        run = uuid.uuid4().hex
        done = subprocess.run([*MPIRUN, "-np", "3", HEAPS, word], capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL,
                              env={**os.environ, "TESSERA_RUN": run, "TESSERA_HEAP": way})
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        self.assertEqual(mapped_by(run), set())
        return done

    def test_a_killed_rank_is_named_and_leaves_no_memory(self):
        for way in ("", "", "messages", "messages"):
            done = self.run_to_its_end("lost", way)
            lines = [l for l in done.stderr.splitlines() if l.startswith("rank 2 was lost")]
            self.assertEqual(len(lines), 1, done.stderr)

    def test_a_stopped_rank_is_named_after_the_deadline(self):
        for way in ("", "messages"):
            begin = time.monotonic()
            done = self.run_to_its_end("stopped", way)
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertLess(time.monotonic() - begin, 30)
            self.assertRegex(done.stderr, "(?m)^(rank 2 was lost: nothing was heard|fused experts: rank [01] waits .* of rank 2)")


if __name__ == "__main__":
    unittest.main()
