#!/usr/bin/env python3
"""Draws a trace of fused_bench as an SVG: the work of each rank of each way over time.

    build/release/bench/fused_bench ... trace=trace.json
    python3 bench/parallel/timeline.py trace.json "fused,bulk" > timeline.svg
"""
import json
import sys

COLOURS = {"gate": "#8da0cb", "dispatch": "#fc8d62", "up": "#66c2a5", "down": "#2a9d78", "experts": "#2a9d78",
           "give": "#e7b42f", "collect": "#e5c494", "combine": "#a6761d", "wait": "#eeeeee", "shared": "#e78ac3"}
NAMES = {"give": "give back", "up": "first product", "down": "second product", "experts": "experts (all products)",
         "wait": "wait for all"}
LEFT, WIDTH, LINE, GAP = 110, 860, 15, 26


def rows_of(spans, ways):
    """Returns (way, rank) in the order of the drawing, each with its spans."""
    rows = {}
    for span in spans:
        way, _, rank = span["pid"].rpartition(" rank ")
        if way in ways:
            rows.setdefault((ways.index(way), int(rank)), []).append(span)
    return dict(sorted(rows.items()))


def joined(spans, end):
    """Returns kind, begin and end in pixels; spans of a kind that touch in the drawing are one."""
    found, last = [], {}
    for s in spans:
        begin = WIDTH * s["ts"] / end
        stop = begin + max(WIDTH * s["dur"] / end, 0.4)
        before = last.get(s["cat"])
        if before and begin <= before[2] + 0.5:
            before[2] = max(before[2], stop)
        else:
            found.append([s["cat"], begin, stop])
            last[s["cat"]] = found[-1]
    return found


def drawing(spans, ways):
    rows = rows_of(spans, ways)
    end = max(s["ts"] + s["dur"] for of in rows.values() for s in of)
    parts, y, seen, last = [], 0, set(), None
    for (way, rank), of in rows.items():
        if way != last:
            y += GAP
            took = max(s["ts"] + s["dur"] for (w, _), some in rows.items() if w == way for s in some)
            parts.append(f'<text x="{LEFT}" y="{y - 6}" font-weight="bold">{ways[way]}: {took / 1e3:.0f} ms</text>')
            last = way
        parts.append(f'<text x="{LEFT - 8}" y="{y + LINE - 3}" text-anchor="end">rank {rank}</text>')
        for kind, begin, stop in joined(of, end):
            seen.add(kind)
            parts.append(f'<rect x="{LEFT + begin:.2f}" y="{y}" height="{LINE - 2}" '
                         f'width="{stop - begin:.2f}" fill="{COLOURS.get(kind, "#999999")}"/>')
        y += LINE
    y += GAP
    x = LEFT
    for kind in (k for k in COLOURS if k in seen):
        name = NAMES.get(kind, kind)
        parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{COLOURS[kind]}"/>'
                     f'<text x="{x + 16}" y="{y}">{name}</text>')
        x += 34 + 7 * len(name)
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 10}" height="{y + 12}" '
            'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#ffffff"/>')
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        spans = json.load(file)
    ways = sys.argv[2].split(",")
    if not rows_of(spans, ways):
        sys.exit(f"'{sys.argv[1]}' holds nothing of {', '.join(ways)}")
    sys.stdout.write(drawing(spans, ways))


if __name__ == "__main__":
    main()
