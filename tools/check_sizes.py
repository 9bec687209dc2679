#!/usr/bin/env python3
"""Finds files and functions above their length limits, and a tree above its size limit.

Files: nine of ten have at most 350 lines, none more than 600. Functions: 60 lines, in
src/kernels 200. Tree: 60 MB, of it models/ 36 MB and tests/data 21 MB.
"""

import argparse
import ast
import math
import pathlib
import re
import sys

import source_tree

FILE_LIMIT, FILE_P90, FUNCTION, KERNEL = 600, 350, 60, 200
FOLDERS = ("src", "include", "apps", "tests", "bench", "tools", "training", "examples", "python")
MEGABYTES = {"": 60, "models": 36, "tests/data": 21}
OUTPUTS = {"demo.png", "tessera.png"}

_TYPE = re.compile(r"^\s*(?:template\s*<[^{]*>\s*)?(?:class|struct|union|enum)\b")
_NAMESPACE = re.compile(r'\bnamespace\b|^\s*extern\s*"[^"]*"\s*$')
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)


def _kind(header):
    """Returns the kind of block opened by a brace after this text."""
    if _NAMESPACE.search(header):
        return "namespace"
    if _TYPE.match(header) and not re.search(r"\)\s*(?:const|noexcept|override)?\s*$", header):
        return "type"
    return "function" if "(" in header else "value"


def cpp_functions(text):
    """Yields (first line, lines, name) of every function defined at namespace or class level."""
    text = source_tree.without_comments(text)
    text = _DIRECTIVE.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)
    stack, start, carried, line_of = [], 0, None, text.count
    for match in re.finditer(r"[{};]", text):
        at, mark = match.start(), match.group(0)
        if mark == ";":
            start = at + 1
            continue
        if mark == "{":
            header = text[start:at]
            outside = all(kind != "function" for kind, _, _ in stack)
            kind = "function" if carried else _kind(header) if outside else "value"
            first = carried or (start + len(header) - len(header.lstrip()), header)
            stack.append((kind, first, outside))
            carried, start = None, at + 1
            continue
        start = at + 1
        if not stack:
            continue
        kind, (begin, header), outside = stack.pop()
        if kind != "function" or not outside:
            continue
        # After a member initialised with braces, the rest of the constructor follows.
        if re.match(r"\s*[,{]", text[at + 1:at + 200]) and ":" in header:
            carried = (begin, header)
            continue
        first_line = line_of("\n", 0, begin) + 1
        name = re.search(r"([\w:~<>]+|operator\S+)\s*\(", header)
        yield first_line, line_of("\n", 0, at) + 2 - first_line, name.group(1) if name else "?"


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1, node.name


def function_offences(root, path, text):
    limit = KERNEL if path.parts[:2] == ("src", "kernels") else FUNCTION
    found = python_functions(text) if path.suffix == ".py" else cpp_functions(text)
    return [f"{path}:{line}: function {name} has {lines} lines, the limit is {limit}"
            for line, lines, name in found if lines > limit]


def tree_offences(root):
    sizes = [(path.as_posix(), (root / path).stat().st_size) for path in source_tree.files(root)
             if path.as_posix() not in OUTPUTS]
    offences = []
    for folder, limit in MEGABYTES.items():
        total = sum(size for path, size in sizes if not folder or path.startswith(folder + "/"))
        if total > limit * 1000000:
            offences.append(f"{folder or 'the tree'}: {total / 1e6:.1f} MB, the limit is {limit}")
    return offences


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root.resolve()
    offences, lengths = [], []
    for path in source_tree.files(root, *FOLDERS):
        if path.suffix not in source_tree.CODE | {".py"}:
            continue
        text = source_tree.read(root, path)
        lines = text.count("\n")
        lengths.append((lines, str(path)))
        if lines > FILE_LIMIT:
            offences.append(f"{path}: {lines} lines, the limit is {FILE_LIMIT}")
        offences += function_offences(root, path, text)
    lengths.sort()
    p90 = lengths[math.ceil(0.9 * len(lengths)) - 1][0] if lengths else 0
    if p90 > FILE_P90:
        long = ", ".join(f"{p} ({n})" for n, p in lengths[::-1] if n > FILE_P90)
        offences.append(f"one file in ten has more than {p90} lines, the limit is {FILE_P90}: {long}")
    offences += tree_offences(root)
    longest = f", the longest {lengths[-1][1]} with {lengths[-1][0]}" if lengths else ""
    return source_tree.report(
        "check_sizes", offences,
        f"{len(lengths)} files, nine of ten within {p90} lines{longest}")


if __name__ == "__main__":
    sys.exit(main())
