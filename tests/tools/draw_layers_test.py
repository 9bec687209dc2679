#!/usr/bin/env python3
"""The figure of the layers: arrows, rows, and each layer of the tree."""

import pathlib
import sys
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_layers  # noqa: E402
import draw_layers  # noqa: E402

GRAPH = {"base": set(), "tensor": {"base"}, "ops": {"tensor", "base"}, "media": {"base"}}


class DrawLayers(unittest.TestCase):
    def test_an_arrow_that_a_longer_path_implies_is_left_out(self):
        self.assertEqual(draw_layers.reduced(GRAPH), {"base": set(), "tensor": {"base"}, "ops": {"tensor"},
                                                      "media": {"base"}})

    def test_a_layer_stands_above_all_that_it_includes(self):
        placed = draw_layers.places(GRAPH)
        for layer, targets in GRAPH.items():
            for target in targets:
                self.assertLess(placed[layer][1], placed[target][1])

    def test_boxes_of_a_row_do_not_meet(self):
        rows = {}
        for x, y, width in draw_layers.places(draw_layers.layer_graph(ROOT)).values():
            rows.setdefault(y, []).append((x, x + width))
        for row in rows.values():
            row.sort()
            for (_, end), (begin, _) in zip(row, row[1:]):
                self.assertLess(end, begin)
            self.assertGreater(row[0][0], 0)
            self.assertLess(row[-1][1], draw_layers.WIDTH)

    def test_the_figure_holds_every_layer_and_is_whole_xml(self):
        figure = draw_layers.draw(ROOT)
        self.assertTrue(xml.etree.ElementTree.fromstring(figure).tag.endswith("svg"))
        for layer in check_layers.LAYERS:
            self.assertIn(f">{layer}<", figure)

    def test_the_page_has_the_figure_of_all_layers(self):
        figure = (ROOT / "docs/images/layers.svg").read_text()
        for layer in check_layers.LAYERS:
            self.assertIn(f">{layer}<", figure, "run python3 tools/draw_layers.py")


if __name__ == "__main__":
    unittest.main()
