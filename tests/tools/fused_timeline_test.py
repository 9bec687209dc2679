#!/usr/bin/env python3
"""The drawing of a fused benchmark's trace holds each span of the ways that were asked for."""

import importlib.util
import pathlib
import unittest
import xml.etree.ElementTree

SCRIPT = pathlib.Path(__file__).parents[2] / "bench/parallel/timeline.py"
spec = importlib.util.spec_from_file_location("timeline", SCRIPT)
timeline = importlib.util.module_from_spec(spec)
spec.loader.exec_module(timeline)


def span(pid, cat, begin, length):
    return {"name": cat, "cat": cat, "ph": "X", "pid": pid, "tid": 0, "ts": begin, "dur": length}


SPANS = [span("fused rank 1", "up", 5, 5), span("fused rank 0", "gate", 0, 4), span("bulk rank 0", "wait", 4, 16),
         span("2 pieces rank 0", "gate", 0, 100)]


class TimelineTest(unittest.TestCase):
    def test_rows_are_ranks_by_way(self):
        self.assertEqual(list(timeline.rows_of(SPANS, ["fused", "bulk"])), [(0, 0), (0, 1), (1, 0)])
        self.assertEqual(list(timeline.rows_of(SPANS, ["2 pieces"])), [(0, 0)])
        self.assertEqual(timeline.rows_of(SPANS, ["padded"]), {})

    def test_spans_lie_where_they_were_in_time(self):
        root = xml.etree.ElementTree.fromstring(timeline.drawing(SPANS, ["fused", "bulk"]))
        rects = [r for r in root.iter() if r.tag.endswith("rect")][1:]
        by_colour = {r.get("fill"): r for r in rects if r.get("height") == str(timeline.LINE - 2)}
        self.assertEqual(set(by_colour), {timeline.COLOURS[kind] for kind in ("up", "gate", "wait")})
        wait, up = by_colour[timeline.COLOURS["wait"]], by_colour[timeline.COLOURS["up"]]
        self.assertAlmostEqual(float(wait.get("x")) + float(wait.get("width")), timeline.LEFT + timeline.WIDTH, delta=0.1)
        self.assertAlmostEqual(float(up.get("x")), timeline.LEFT + timeline.WIDTH / 4, delta=0.1)


if __name__ == "__main__":
    unittest.main()
