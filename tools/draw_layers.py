#!/usr/bin/env python3
"""Draws the layers of src/ and their includes as an SVG, from the include graph: docs/images/layers.svg."""

import argparse
import pathlib
import sys

import check_layers

WIDTH, ROW, BOX, GAP, LEFT, TOP = 1000, 74, 34, 18, 24, 58
PURPOSE = {
    "study": "evaluation, benchmarks", "engine": "public C++ API", "pipeline": "generate, complete, forward",
    "admission": "dry run, memory", "completion": "text requests", "diffusion": "image requests",
    "runtime": "open models", "cluster": "ranks of a run", "parallel": "strategies", "evaluation": "quality",
    "fused": "fused MoE", "models": "networks", "sample": "schedulers", "load": "weights, folders",
    "nn": "layers, seams", "media": "PNG, MP4", "tokenizer": "text to ids", "jinja": "chat templates", "caption": "clean prompts",
    "comm": "messages",
    "ops": "tensor functions", "kernels": "CPU and GPU code", "tensor": "memory", "base": "errors, files, threads",
}


def layer_graph(root):
    """Returns {layer: included layers} of the files; layers without files are left out."""
    _, files = check_layers.check_includes(root)
    graph = {}
    for path, targets in files.items():
        owner = check_layers.owner_of(path)
        if owner in check_layers.LAYERS:
            seen = {check_layers.owner_of(t) for t in targets} & set(check_layers.LAYERS)
            graph.setdefault(owner, set()).update(seen - {owner})
    return graph


def reaches(graph, start):
    """Returns the layers reachable from start over includes."""
    found, todo = set(), list(graph[start])
    while todo:
        layer = todo.pop()
        if layer not in found:
            found.add(layer)
            todo += graph[layer]
    return found


def reduced(graph):
    """Removes arrows implied by a longer path."""
    far = {layer: reaches(graph, layer) for layer in graph}
    return {layer: {t for t in targets if not any(t in far[other] for other in targets - {t})}
            for layer, targets in graph.items()}


def heights(graph):
    """Returns {layer: longest path down}: 0 for a layer without includes."""
    height = {}

    def visit(layer):
        if layer not in height:
            height[layer] = 1 + max((visit(t) for t in graph[layer]), default=-1)
        return height[layer]

    for layer in graph:
        visit(layer)
    return height


def places(graph):
    """Returns {layer: (x, y, width)}: rows by height, sorted by the centre of their included layers."""
    height = heights(graph)
    top, placed = max(height.values()), {}
    for level in range(top + 1):
        row = sorted(layer for layer in graph if height[layer] == level)
        centre = {layer: sum(placed[t][0] + placed[t][2] / 2 for t in graph[layer]) / len(graph[layer])
                  if graph[layer] else WIDTH / 2 for layer in row}
        row.sort(key=lambda layer: (centre[layer], layer))
        wide = [9 * len(layer) + 6.6 * len(PURPOSE.get(layer, "")) + 46 for layer in row]
        x = (WIDTH - sum(wide) - GAP * (len(row) - 1)) / 2
        for layer, width in zip(row, wide):
            placed[layer] = (x, TOP + (top - level) * ROW, width)
            x += width + GAP
    return placed


def draw(root):
    """Returns the text of the SVG."""
    graph = layer_graph(root)
    placed = places(graph)
    bottom = max(y for _, y, _ in placed.values()) + BOX + 24
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom}" '
             'font-family="Helvetica, Arial, sans-serif" font-size="13">',
             f'<rect width="{WIDTH}" height="{bottom}" fill="#ffffff"/>',
             f'<text x="{LEFT}" y="30" fill="#333333">Layers of src/. An arrow points to an included layer; '
             "arrows that a longer path implies are left out.</text>"]
    for layer, targets in sorted(reduced(graph).items()):
        x, y, width = placed[layer]
        for target in sorted(targets):
            tx, ty, twidth = placed[target]
            x1, y1, x2, y2 = x + width / 2, y + BOX, tx + twidth / 2, ty
            bend = (y2 - y1) / 2
            parts.append(f'<path d="M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} '
                         f'{x2:.0f} {y2:.0f}" fill="none" stroke="#8aa0b8" stroke-width="1.3"/>')
            parts.append(f'<circle cx="{x2:.0f}" cy="{y2:.0f}" r="3" fill="#8aa0b8"/>')
    for layer, (x, y, width) in sorted(placed.items()):
        parts.append(f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{BOX}" rx="6" '
                     'fill="#eef3f9" stroke="#4a6785"/>')
        parts.append(f'<text x="{x + 12:.0f}" y="{y + 22:.0f}"><tspan font-weight="bold" '
                     f'fill="#1d3a57">{layer}</tspan><tspan dx="8" fill="#555555">'
                     f'{PURPOSE.get(layer, "")}</tspan></text>')
    return "\n".join(parts + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=pathlib.Path, default=root)
    parser.add_argument("--output", type=pathlib.Path, default=root / "docs/images/layers.svg")
    arguments = parser.parse_args()
    arguments.output.write_text(draw(arguments.root.resolve()))
    print(arguments.output)


if __name__ == "__main__":
    sys.exit(main())
