import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/list_skipped.py"
LOG = """Start testing: now
----------------------------------------------------------
1/3 Testing: kernels.A.Runs
1/3 Test: kernels.A.Runs
Output:
[       OK ] A.Runs (0 ms)
<end of output>
2/3 Testing: kernels.B.Waits
Output:
[ RUN      ] B.Waits
/src/b_test.cpp:9: Skipped
this CPU has
no tiles

[  SKIPPED ] B.Waits (0 ms)
<end of output>
3/3 Testing: kernels.C.Silent
Output:
%s
[  SKIPPED ] C.Silent (0 ms)
"""


class ListSkipped(unittest.TestCase):
    def run_on(self, log):
        with tempfile.TemporaryDirectory() as name:
            if log is not None:
                folder = pathlib.Path(name, "Testing/Temporary")
                folder.mkdir(parents=True)
                (folder / "LastTest.log").write_text(log)
            done = subprocess.run([sys.executable, TOOL, name], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def test_names_every_skipped_test_with_its_reason(self):
        status, said = self.run_on(LOG % "/src/c_test.cpp:3: Skipped\nno network here\n")
        self.assertEqual(status, 0, said)
        self.assertEqual(said, "skipped: kernels.B.Waits: this CPU has no tiles\n"
                               "skipped: kernels.C.Silent: no network here\n")

    def test_a_test_without_a_reason_is_an_error(self):
        status, said = self.run_on(LOG % "")
        self.assertEqual(status, 1)
        self.assertIn("skipped: kernels.C.Silent: no reason given", said)

    def test_says_when_nothing_ran(self):
        status, said = self.run_on(None)
        self.assertEqual(status, 1)
        self.assertIn("run ctest first", said)


if __name__ == "__main__":
    unittest.main()
