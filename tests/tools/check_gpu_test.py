"""check_gpu.py on a machine whose GPU, tests and programs are scripts."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from scratch_tree import SOURCE

SMI = """case "$*" in
  *temperature.gpu*) echo "1980 MHz, 3201 MHz, 41, 300.00 W" ;;
  *) echo "A GPU of paper, 580.1, 141 GiB, 700.00 W, 1980 MHz, 3201 MHz" ;;
esac"""
SCRIPTS = {
    "bin/nvidia-smi": SMI,
    "bin/ctest": 'echo "100% tests passed, 0 tests failed out of 54"',
    "bin/compute-sanitizer": 'case "$*" in *memcheck*) echo "part $GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS"; '
                             '[ "$GTEST_SHARD_INDEX" = 2 ] && { echo "ERROR SUMMARY: 3 errors"; exit 9; }; exit 0 ;; '
                             '*racecheck*) sleep 60 ;; *) echo "ERROR SUMMARY: 0 errors" ;; esac',
    "programs/tessera": """echo '{"bench":"limits","copy_gb_s":4300.0}'; echo '{"bench":"norm","ms":0.5}'""",
    "bin/python": """case "$*" in
  *vae_peer*) echo "no memory" >&2; exit 1 ;;
  *torch*) echo '{"torch": "2.11"}' ;;
  *) echo '{"shape":"8x8","cannot":{"flash":"a | b"}}' ;;
esac""",
}


class CheckGpu(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        for name, text in SCRIPTS.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("#!/bin/sh\n" + text + "\n")
            path.chmod(0o755)
        self.out = self.folder / "gpu.md"

    def run_tool(self, *options):
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run([sys.executable, SOURCE / "tools/check_gpu.py", "--programs", self.folder / "programs",
                               "--python", self.folder / "bin/python", "--out", self.out, *map(str, options)],
                              capture_output=True, text=True, env={**os.environ, "PATH": path}, check=False)
        return done.returncode, done.stdout + done.stderr

    def stages(self):
        found = json.loads(self.out.with_suffix(".json").read_text())["stages"]
        return {name: one["status"] for name, one in found.items()}

    def test_what_fails_or_hangs_does_not_stop_the_rest(self):
        status, said = self.run_tool("--stages", "tests,kernels,memcheck,attention,vae,racecheck,synccheck",
                                     "--minutes", "0.05")
        self.assertEqual(status, 1, said)
        stages = self.stages()
        self.assertRegex(stages.pop("racecheck"), "^stopped at its limit of [0-3] s")
        self.assertEqual(stages.pop("synccheck"), "not run: no time left")
        self.assertEqual(stages, {"tests": "passed", "kernels": "passed", "memcheck": "failed (status 9)",
                                  "attention": "passed", "vae": "failed (status 1)"})
        page = self.out.read_text()
        for text in ("A GPU of paper", "580.1", "1980 MHz, 3201 MHz, 41, 300.00 W", "2.11", "| 4300.0 |",
                     "flash: a / b", "no memory", "ERROR SUMMARY: 3 errors", "part 0 of 4", "part 3 of 4", "100% tests passed", "attention_peer.py"):
            self.assertIn(text, page)

    def test_results_of_several_calls_make_one_page(self):
        self.assertEqual(self.run_tool("--stages", "kernels")[0], 0)
        first = self.folder / "first.json"
        self.out.with_suffix(".json").rename(first)
        self.assertEqual(self.run_tool("--from", first, "--stages", "synccheck")[0], 0)
        self.assertEqual(self.stages(), {"kernels": "passed", "synccheck": "passed"})
        again = self.out.with_suffix(".json").rename(self.folder / "second.json")
        status, said = self.run_tool("--from", again, "--stages", "none")
        self.assertEqual(status, 0, said)
        self.assertIn("2 stages passed", said)

    def test_the_stages_of_one_launch_have_a_name(self):
        status, said = self.run_tool("--stages", "fused")
        self.assertEqual(status, 1, said)  # its programs are not here
        self.assertEqual(list(self.stages()), ["one_launch_tests", "one_launch_memcheck", "one_launch",
                                               "one_launch_peer", "one_launch_roof"])
        self.assertEqual(self.stages()["one_launch_peer"], "passed")
        limits = [one["limit_s"] for one in json.loads(self.out.with_suffix(".json").read_text())["stages"].values()]
        self.assertLessEqual(sum(limits), 480)

    def test_an_unknown_stage_is_named(self):
        status, said = self.run_tool("--stages", "tests,speed")
        self.assertEqual(status, 1)
        self.assertIn("no stage 'speed'; there are tests,", said)

    def test_without_a_gpu_stages_fail_and_the_page_says_so(self):
        for name in "nvidia-smi", "ctest":
            (self.folder / "bin" / name).write_text("#!/bin/sh\necho 'no driver' >&2\nexit 1\n")
        self.assertEqual(self.run_tool("--stages", "tests")[0], 1)
        self.assertIn("| device | unknown |", self.out.read_text())
        self.assertIn("no driver", self.out.read_text())


if __name__ == "__main__":
    unittest.main()
