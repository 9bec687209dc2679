#!/usr/bin/env python3
"""The script behind docs/results/fused.md asks for each way in each kind of cell, and shows each line of a cell."""

import contextlib
import importlib.util
import io
import json
import pathlib
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "bench/parallel/fused_page.py"
spec = importlib.util.spec_from_file_location("fused_page", SCRIPT)
fused_page = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fused_page)


class FusedPageTest(unittest.TestCase):
    def test_cells_are_of_all_kinds_and_each_once(self):
        for tiny in (True, False):
            cells = [json.dumps(cell) for cell in fused_page.cells(tiny)]
            self.assertEqual(len(cells), len(set(cells)))
            self.assertEqual({json.loads(cell)[0] for cell in cells}, set(fused_page.TITLES))
        ranks = {words["ranks"] for kind, _, _, words in fused_page.cells(False) if kind == "links"}
        self.assertEqual(ranks, {2, 4, 8})

    def test_cells_over_links_run_on_two_hosts(self):
        for kind, each, mbit, words in fused_page.cells(False):
            program = fused_page.command(pathlib.Path("build"), each, mbit, words)
            self.assertEqual("transport=mpi" in program, kind in ("links", "sizes"))
            self.assertIn(f"ranks={words['ranks']}", program)
            if each:
                self.assertEqual(words["ranks"], 2 * each)

    def test_the_page_shows_each_way_with_its_ratio(self):
        cell = next(list(cell) for cell in fused_page.cells(True) if cell[0] == "links")
        line = {"cell": cell, "ranks": 2, "how": "fused", "p50": 0.5, "p95": 0.75, "payload_bytes": 2e6}
        slow = {**line, "how": "stale bulk", "p50": 0.1, "over_fused": [1.25, 1.5, 1.75]}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "lines"
            path.write_text("".join(json.dumps(one) + "\n" for one in (line, slow)))
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                fused_page.page(path)
        self.assertIn("## Limited links", said.getvalue())
        self.assertNotIn("## Skew", said.getvalue())
        self.assertIn("| 2 | 100 | fused | 500.0 | 750.0 | 2.00 |  |\n", said.getvalue())
        self.assertIn("| 2 | 100 | stale bulk | 100.0 | 750.0 | 2.00 | 1.50 [1.25, 1.75] |\n", said.getvalue())


if __name__ == "__main__":
    unittest.main()
