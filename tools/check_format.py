#!/usr/bin/env python3
"""Checks C++ files against clang-format 14 and the .clang-format of the repository."""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

import source_tree

FOLDERS = ("src", "include", "apps", "tests", "bench", "examples", "python")


def unformatted(root, program, files):
    """Returns an offence for each file that formatting would change; None if the program failed."""
    run = subprocess.run([program, "--dry-run", *map(str, files)], cwd=root, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if run.returncode != 0:
        print(f"check_format: {program} failed:\n{run.stdout}", file=sys.stderr)
        return None
    first = {}
    for path, line in re.findall(r"^(\S+?):(\d+):\d+: warning: ", run.stdout, re.M):
        first.setdefault(path, line)
    return [f"{path}:{line}: run {pathlib.Path(program).name} -i {path}"
            for path, line in first.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--program", default="clang-format-14")
    arguments = parser.parse_args()
    if not shutil.which(arguments.program):
        print(f"check_format: there is no {arguments.program} here; run ./scripts/install ci",
              file=sys.stderr)
        return 1
    files = source_tree.code_files(arguments.root, *FOLDERS)
    offences = unformatted(arguments.root, arguments.program, files) if files else []
    if offences is None:
        return 1
    return source_tree.report("check_format", offences, f"{len(files)} files are formatted")


if __name__ == "__main__":
    sys.exit(main())
