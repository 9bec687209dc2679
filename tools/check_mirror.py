#!/usr/bin/env python3
"""Checks that every src/<layer>/**/x.cpp has a test tests/<layer>/**/x_test.cpp, or
tests/whole/<layer>/**/x_test.cpp for tests through Model.

A kernel for an instruction set, src/kernels/<set>/x.cpp, is covered by tests/kernels/x_test.cpp,
because this test runs over all sets.
"""

import argparse
import pathlib
import sys

import source_tree


def candidates(source):
    """Yields tests that may cover a source, the usual test last. Paths are relative to the root."""
    inside = source.relative_to("src")
    test = pathlib.Path("tests") / inside.parent / f"{inside.stem}_test.cpp"
    yield pathlib.Path("tests", "whole", *test.parts[1:])
    yield test
    if inside.parts[0] == "kernels" and len(inside.parts) == 3:
        yield test.parent.parent / test.name


def untested(root):
    sources = [f for f in source_tree.code_files(root, "src") if f.suffix in {".cpp", ".cu"}]
    missing = [s for s in sources if not any((root / c).is_file() for c in candidates(s))]
    return sources, missing


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root.resolve()
    sources, missing = untested(root)
    offences = [f"{s}: write {list(candidates(s))[-1]}" for s in missing]
    return source_tree.report("check_mirror", offences, f"each of {len(sources)} sources has a test")


if __name__ == "__main__":
    sys.exit(main())
