import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from scratch_tree import SOURCE, help_of

# Stands for ctest: each call takes the next answer, a status and the tests that fail at its end.
CTEST = """#!{python}
import json, pathlib, sys
folder = pathlib.Path({folder!r})
if "--show-only=json-v1" in sys.argv:
    label = sys.argv[sys.argv.index("-L") + 1]
    names = (folder / "labelled").read_text().split() if "flaky" in label else []
    print(json.dumps({{"tests": [{{"name": name}} for name in names]}}))
    sys.exit()
calls = folder / "calls"
calls.write_text((calls.read_text() if calls.exists() else "") + " ".join(sys.argv[1:]) + "\\n")
answers = (folder / "answers").read_text().splitlines()
failed = answers[len(calls.read_text().splitlines()) - 1].split()
print("90% tests passed,", len(failed), "tests failed out of 10")
print("\\nThe following tests did not run:\\n\\t 7 - kernels.Other (Skipped)")
if failed:
    print("\\nThe following tests FAILED:")
    for number, name in enumerate(failed):
        print("\\t %d - %s (Failed)" % (number, name))
sys.exit(8 if failed else 0)
"""


class RunTests(unittest.TestCase):
    def run_on(self, answers, labelled="", reasons=""):
        """(status, lines it said, calls of ctest, failed_once.txt)"""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "answers").write_text("\n".join(answers) + "\n")
            (root / "labelled").write_text(labelled)
            ctest = root / "bin/ctest"
            ctest.parent.mkdir()
            ctest.write_text(CTEST.format(python=sys.executable, folder=folder))
            ctest.chmod(0o755)
            log = root / "build/Testing/Temporary/LastTest.log"
            log.parent.mkdir(parents=True)
            log.write_text("")
            (root / "build/flaky_tests.txt").write_text(reasons)
            done = subprocess.run(
                [sys.executable, SOURCE / "tools/run_tests.py", root / "build", "-j2"], text=True,
                stdout=subprocess.PIPE, env={**os.environ, "PATH": f"{ctest.parent}:{os.environ['PATH']}"})
            return (done.returncode, done.stdout.splitlines(), (root / "calls").read_text().splitlines(),
                    (root / "build/failed_once.txt").read_text())

    def test_help(self):
        self.assertEqual(help_of("run_tests.py")[0], 0)

    def test_all_pass(self):
        status, said, calls, once = self.run_on([""])
        self.assertEqual((status, len(calls), once), (0, 1, ""))
        self.assertTrue(said[-1].startswith("90% tests passed"), said)
        self.assertNotIn("failed once", said[-1])

    def test_a_test_without_the_label_is_not_run_again(self):
        status, said, calls, _ = self.run_on(["nn.A"], "mpi.B", "mpi.B: ports\n")
        self.assertEqual((status, len(calls)), (1, 1))
        self.assertIn("failed: nn.A", said)

    def test_a_labelled_test_that_passes_later_is_listed_and_in_the_last_line(self):
        status, said, calls, once = self.run_on(["mpi.B", ""], "mpi.B", "mpi.B: ports\n")
        self.assertEqual((status, len(calls)), (0, 2))
        self.assertIn("-R ^(mpi\\.B)$", calls[1])
        self.assertIn("failed once, then passed: mpi.B: ports", said)
        self.assertIn("failed once, then passed: mpi.B", said[-1])
        self.assertEqual(once, "mpi.B: ports\n")

    def test_a_labelled_test_that_fails_every_time_fails(self):
        status, said, _, once = self.run_on(["mpi.B nn.A", "mpi.B"], "mpi.B", "mpi.B: ports\n")
        self.assertEqual((status, once), (1, ""))
        self.assertIn("failed: mpi.B", said)
        self.assertIn("failed: nn.A", said)

    def test_a_label_needs_a_reason(self):
        self.assertEqual(self.run_on([""], "mpi.B")[0], 1)


if __name__ == "__main__":
    unittest.main()
