import pathlib
import tempfile
import unittest

from scratch_tree import help_of, run_on

TOOL = "check_format.py"
# Stands in for clang-format, which need not be installed: dislikes files that hold "ugly".
FORMATTER = """#!/bin/sh
shift
[ "$1" != src/nn/broken.cpp ] || { echo "cannot read"; exit 1; }
grep -n ugly "$@" /dev/null | sed 's/^\\([^:]*:[0-9]*\\):.*/\\1:1: warning: code should be formatted/'
"""


class CheckFormat(unittest.TestCase):
    def run_with_formatter(self, files):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "formatter")
            program.write_text(FORMATTER)
            program.chmod(0o755)
            return run_on(TOOL, files, "--program", str(program))

    def test_help(self):
        self.assertEqual(help_of(TOOL)[0], 0)

    def test_accepts_formatted_files(self):
        status, said = self.run_with_formatter({"src/nn/a.cpp": "int a;\n", "docs/a.cpp": "ugly"})
        self.assertEqual((status, said.strip()), (0, "check_format: 1 files are formatted"))

    def test_names_the_first_line_of_each_file(self):
        status, said = self.run_with_formatter({"src/nn/a.cpp": "int a;\nugly\nugly\n",
                                                "tests/nn/b.h": "ugly\n"})
        self.assertEqual(status, 1)
        self.assertIn("src/nn/a.cpp:2: run formatter -i src/nn/a.cpp", said)
        self.assertIn("tests/nn/b.h:1: run formatter", said)
        self.assertIn("2 offences", said)

    def test_says_when_the_formatter_fails_or_is_missing(self):
        status, said = self.run_with_formatter({"src/nn/broken.cpp": ""})
        self.assertEqual(status, 1)
        self.assertIn("cannot read", said)
        status, said = run_on(TOOL, {"src/nn/a.cpp": ""}, "--program", "no-such-formatter")
        self.assertEqual(status, 1)
        self.assertIn("./scripts/install ci", said)


if __name__ == "__main__":
    unittest.main()
