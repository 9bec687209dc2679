import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from scratch_tree import SOURCE

# What .ci/run calls: all of it succeeds at once.
STUBS = ["scripts/install", "scripts/test", "scripts/build", "scripts/fuzz", "bin/mpirun",
         "build/asan/tests/tessera_mutation"]
CHECKS = ["check_format", "check_ptxas", "check_sass", "check_tidy", "run_tests"]
LAYERS = ["base", "tensor", "comm", "kernels", "ops", "nn", "tokenizer", "jinja", "caption", "media", "load",
          "sample", "parallel", "fused", "engine", "cluster", "runtime", "diffusion", "whole", "server"]


class CiRun(unittest.TestCase):
    def last_line(self, seconds, once=""):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            programs = STUBS + [f"build/{preset}/tests/tessera_{layer}_test"
                                for preset in ("tsan", "asan") for layer in LAYERS]
            for name in [".ci/run", *programs]:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / ".ci/run", root / ".ci/run")
            for name in programs:
                (root / name).write_text("#!/bin/sh\nexit 0\n")
                (root / name).chmod(0o755)
            (root / "tests/server").mkdir(parents=True)
            for script in ("hostile_clients_test", "hostile_http_test", "hostile_load_test",
                           "hostile_store_test"):
                (root / f"tests/server/{script}.py").write_text("")
            (root / "tools").mkdir()
            for name in CHECKS:
                (root / f"tools/{name}.py").write_text("")
            (root / "build/ci").mkdir()
            (root / "build/ci/failed_once.txt").write_text(once)
            done = subprocess.run([root / ".ci/run"], text=True, stdout=subprocess.PIPE, env={
                **os.environ, "TESSERA_CI_SECONDS": str(seconds), "PATH": f"{root}/bin:{os.environ['PATH']}"})
            self.assertEqual(done.returncode, 0, done.stdout)
            return done.stdout.splitlines()[-1]

    def test_all_is_well(self):
        self.assertRegex(self.last_line(3600), r"^ci: all is well \(after \d+ s\)$")

    def test_what_was_left_out_makes_the_run_incomplete(self):
        last = self.last_line(1)
        self.assertTrue(last.startswith("INCOMPLETE"), last)
        self.assertNotIn("all is well", last)
        for part in ("killed_ranks", "threads", "addresses", "tidy", "readers"):
            self.assertIn(part, last)

    def test_what_failed_once_is_in_the_last_line(self):
        for seconds, begin in ((3600, "ci: all is well; failed once"), (1, "INCOMPLETE")):
            last = self.last_line(seconds, "mpi.A: ports\npage.B: a browser\n")
            self.assertTrue(last.startswith(begin), last)
            self.assertIn("failed once, then passed: mpi.A, page.B", last)


if __name__ == "__main__":
    unittest.main()
