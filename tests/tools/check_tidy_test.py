import json
import pathlib
import subprocess
import tempfile
import unittest

from scratch_tree import help_of, run_on

import check_tidy

TOOL = "check_tidy.py"
# Stands in for clang-tidy, which need not be installed: dislikes files that hold "ugly".
TIDY = """#!/bin/sh
for file; do :; done
grep -q -e cmake_pch "$3/compile_commands.json" && { echo "sees gcc's header" >&2; exit 1; }
grep -n ugly "$file" | sed "s#^\\([0-9]*\\):.*#$file:\\1:1: error: ugly [taste]#"
grep -q broken "$file" && { echo "cannot read" >&2; exit 1; }
! grep -q ugly "$file"
"""


class CheckTidy(unittest.TestCase):
    def run_with_tidy(self, files, *options):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder).resolve()
            program = folder / "tidy"
            program.write_text(TIDY)
            program.chmod(0o755)
            entries = []
            for name, text in files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                entries.append({"directory": str(folder), "file": str(path),
                                "command": f"c++ -include x/cmake_pch.hxx -c {path}"})
            (folder / "build").mkdir()
            (folder / "build/compile_commands.json").write_text(json.dumps(entries))
            return run_on(TOOL, {}, "--root", str(folder), "--build", str(folder / "build"),
                          "--program", str(program), *options)

    def test_help(self):
        self.assertEqual(help_of(TOOL)[0], 0)

    def test_accepts_tidy_files_and_looks_at_no_others(self):
        status, said = self.run_with_tidy({"src/nn/a.cpp": "int a;", "tests/b.cpp": "ugly",
                                           "src/kernels/cuda/c.cu": "ugly"})
        self.assertEqual((status, said.strip()), (0, "check_tidy: 1 files are tidy"))

    def test_names_each_line(self):
        files = {"src/nn/a.cpp": "int a;\nugly\n", "src/load/b.cpp": "ugly\n"}
        status, said = self.run_with_tidy(files)
        self.assertEqual(status, 1)
        self.assertIn("src/nn/a.cpp:2: ugly [taste]", said)
        self.assertIn("src/load/b.cpp:1: ugly", said)
        self.assertNotIn("a.cpp", self.run_with_tidy(files, "src/load")[1])

    def test_what_time_is_left_goes_to_what_was_committed_last(self):
        files = {"src/nn/a.cpp": "ugly", "src/load/b.cpp": "int b;"}
        status, said = self.run_with_tidy(files, "--seconds", "0")
        self.assertEqual(status, 0)
        self.assertIn("LEFT OUT, 0 s are over: 2 files", said)
        self.assertIn("check_tidy: 0 files are tidy", said)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder).resolve()
            git = ["git", "-c", "user.name=a", "-c", "user.email=a"]
            subprocess.run([*git, "init", "-q"], cwd=folder, check=True)
            for name in ("old.cpp", "new.cpp"):
                (folder / name).write_text("")
                subprocess.run([*git, "add", name], cwd=folder, check=True)
                subprocess.run([*git, "commit", "-qm", name], cwd=folder, check=True)
            entries = [{"file": str(folder / name)} for name in ("none.cpp", "old.cpp", "new.cpp")]
            self.assertEqual([pathlib.Path(entry["file"]).name for entry in
                              check_tidy.newest_first(folder, entries)], ["new.cpp", "old.cpp", "none.cpp"])

    def test_says_when_it_cannot_look(self):
        self.assertIn("cannot read", self.run_with_tidy({"src/a.cpp": "broken"})[1])
        self.assertEqual(self.run_with_tidy({"src/a.cpp": ""}, "src/none")[0], 1)
        status, said = run_on(TOOL, {}, "--program", "no-such-tidy")
        self.assertEqual(status, 1)
        self.assertIn("./scripts/install ci", said)
        self.assertIn("is not configured", run_on(TOOL, {}, "--program", "sh")[1])


if __name__ == "__main__":
    unittest.main()
