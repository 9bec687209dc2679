import importlib.machinery
import importlib.util
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def program():
    loader = importlib.machinery.SourceFileLoader("check_documented", str(ROOT / "bench/check_documented"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_documented", loader))
    loader.exec_module(module)
    return module


class CheckDocumented(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sys.dont_write_bytecode = True
        cls.program = program()

    def test_every_page_of_results_has_a_row_and_every_row_is_in_its_page(self):
        rows = self.program.ROWS
        self.assertEqual({row.page for row in rows}, {page.name for page in (ROOT / "docs/results").glob("*.md")} - {"README.md"})
        for row in rows:
            low, high = self.program.documented(row)
            self.assertLessEqual(low, high, row.name)

    def judged(self, value, **more):
        page = self.program.ROWS[0].page
        rows = sys.modules["rows"]
        row = rows.Row(page, "a row", "()", lambda _: (2.0, 3.0), lambda run: value(), **more)
        row.pattern = r"([0-9])"
        return self.program.judge(row, None, "a CPU")

    def test_a_row_holds_within_its_bounds(self):
        self.assertEqual([self.judged(lambda v=v: v)[1] for v in (1.9, 2, 2.5, 3, 3.1)], [True, False, False, False, True])
        self.assertIn("NO LONGER HOLDS: 4, documented 2 to 3", self.judged(lambda: 4.0)[0])

    def test_times_are_held_on_their_cpu_alone(self):
        self.assertTrue(self.judged(lambda: 9, cpu="a CPU")[1])
        said, bad = self.judged(lambda: 9, cpu="another CPU")
        self.assertFalse(bad)
        self.assertIn("measured on another CPU", said)

    def test_what_cannot_run_is_said(self):
        def broken():
            raise RuntimeError("no such program")
        self.assertEqual(self.judged(broken), ("could not run: RuntimeError('no such program')", True))
        self.assertEqual(self.judged(lambda: [][0]["key"])[1], True)
        self.assertEqual(self.judged(broken, needs=lambda: False, without="no GPU"), ("not run: no GPU", False))

    def test_programs_run_in_a_folder_of_their_own(self):
        with tempfile.TemporaryDirectory() as folder:
            run = self.program.Run("/usr/bin", folder)
            self.assertEqual(run("pwd").strip(), str(pathlib.Path(folder).resolve()))
            with self.assertRaisesRegex(RuntimeError, "status 1"):
                run("false")


if __name__ == "__main__":
    unittest.main()
