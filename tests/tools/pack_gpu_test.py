"""pack_gpu.py on a small program: it runs elsewhere with what was packed, and so do its tests."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import scratch_tree  # finds tools/

import pack_gpu

LIBRARIES = {"carried": "int carried(void) { return 40; }", "swscale": "int video(void) { return 1; }"}
PROGRAM = """#include <stdio.h>
#include <string.h>
int carried(void), video(void);
int main(int count, char** words) {
  if (count > 1 && !strcmp(words[1], "--gtest_list_tests")) return puts("Suite.\\n  Test  # of 3"), 0;
  if (count > 2) return video();
  printf("%d\\n", carried() + count);
  return 0;
}"""


class PackGpu(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        build = self.folder / "build/tests"
        build.mkdir(parents=True)
        for name, text in LIBRARIES.items():
            self.compile(text, build / f"lib{name}.so", "-shared", f"-Wl,-soname,lib{name}.so")
        self.compile(PROGRAM, build / "a_test", f"-L{build}", "-lcarried", "-lswscale", f"-Wl,-rpath,{build}")
        pack_gpu.pack(self.folder / "build", self.folder / "packed", ["tests/a_test"])
        for path in build.iterdir():
            path.unlink()
        self.there = pack_gpu.environment(self.folder / "packed", scratch_tree.SOURCE)

    def compile(self, text, out, *options):
        subprocess.run(["gcc", "-x", "c", "-", "-x", "none", "-fPIC", "-o", out, *options], input=text, text=True,
                       check=True)

    def run_it(self, *words):
        return subprocess.run([self.folder / "packed/tests/a_test", *words], capture_output=True, text=True,
                              env=self.there, check=False)

    def test_what_is_carried_works_and_what_is_empty_stops(self):
        self.assertEqual(self.run_it("x").stdout, "42\n")
        self.assertLess(self.run_it("x", "y").returncode, 0)

    def test_ctest_finds_its_tests(self):
        done = subprocess.run(["ctest", "--test-dir", self.folder / "packed", "-L", "gpu"], capture_output=True,
                              text=True, env=self.there, check=False)
        self.assertIn("100% tests passed, 0 tests failed out of 1", done.stdout, done.stderr)

    def test_paths_of_the_packing_machine_lead_to_the_tree(self):
        packed = self.folder / "packed/packed.json"
        packed.write_text(json.dumps({"source": str(self.folder / "elsewhere/tree")}))
        pack_gpu.unpack(self.folder / "packed", scratch_tree.SOURCE)
        self.assertEqual(os.readlink(self.folder / "elsewhere/tree"), str(scratch_tree.SOURCE))


if __name__ == "__main__":
    unittest.main()
