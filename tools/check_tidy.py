#!/usr/bin/env python3
"""Checks C++ under the given paths with clang-tidy and the .clang-tidy of the repository."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

import source_tree

# clang cannot read gcc's precompiled header and parses the headers as text.
GCC_ONLY = re.compile(r" -Winvalid-pch| -include \S*cmake_pch\.hxx")


def compile_commands(build, root, paths):
    """Returns the entries of build/compile_commands.json with files under the paths."""
    wanted = [(root / path).resolve() for path in paths]
    entries = []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = pathlib.Path(entry["file"]).resolve()
        # clang-tidy does not support nvcc's options.
        if file.suffix != ".cu" and any(file == path or path in file.parents for path in wanted):
            entry["command"] = GCC_ONLY.sub("", entry["command"])
            entries.append(entry)
    return entries


def commands_folder(root):
    """Returns build/commands, configured so that each source is compiled alone."""
    build = root / "build" / "commands"
    if (root / "CMakePresets.json").is_file():
        subprocess.run(["cmake", "--preset", "release", "-B", str(build), "-DTESSERA_UNITY=OFF"], cwd=root,
                       stdout=subprocess.DEVNULL, check=True)
    return build


def newest_first(root, entries):
    """Sorts the entries, the latest committed files first."""
    if not shutil.which("git"):
        return entries
    log = subprocess.run(["git", "log", "--format=", "--name-only", "--relative"], cwd=root, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    age = {}
    for name in log.stdout.splitlines():
        age.setdefault(root / name, len(age))
    return sorted(entries, key=lambda entry: age.get(pathlib.Path(entry["file"]).resolve(), len(age)))


def findings(program, database, root, file):
    """Returns the offences of a file; several files may report the same header."""
    run = subprocess.run([*shlex.split(program), "--quiet", "-p", database, file], cwd=root,
                         text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    found = re.findall(r"^(\S+?:\d+):\d+: (?:error|warning): (.*)$", run.stdout, re.M)
    offences = {f"{os.path.relpath(place, root)}: {what}" for place, what in found}
    if run.returncode != 0 and not offences:
        offences = {f"{os.path.relpath(file, root)}: clang-tidy failed: {run.stderr.strip()}"}
    return offences


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", default=["src", "apps"],
                        help="files or folders (default: src apps)")
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--build", type=pathlib.Path,
                        help="a folder configured with -DTESSERA_UNITY=OFF (default: build/commands, configured here)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=float("inf"),
                        help="begin no file after so long, those committed last come first")
    parser.add_argument("--program", help="clang-tidy (default: that of ./scripts/install ci)")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    build = arguments.build or commands_folder(root)
    program = arguments.program or str(root / "build" / "tidy" / "bin" / "clang-tidy")
    if not shutil.which(program):
        print(f"check_tidy: there is no {program} here; run ./scripts/install ci",
              file=sys.stderr)
        return 1
    if not (build / "compile_commands.json").is_file():
        print(f"check_tidy: {build} is not configured; run "
              f"cmake --preset release -B build/commands -DTESSERA_UNITY=OFF", file=sys.stderr)
        return 1
    entries = compile_commands(build, root, arguments.paths)
    if not entries:
        print(f"check_tidy: no source of {build} lies under {' '.join(arguments.paths)}",
              file=sys.stderr)
        return 1
    end = time.monotonic() + arguments.seconds
    with tempfile.TemporaryDirectory() as database:
        pathlib.Path(database, "compile_commands.json").write_text(json.dumps(entries))
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            runs = pool.map(lambda entry: findings(program, database, root, entry["file"])
                            if time.monotonic() < end else None, newest_first(root, entries))
            done = [run for run in runs if run is not None]
    offences = sorted(set().union(*done))
    if len(done) < len(entries):
        print(f"check_tidy: LEFT OUT, {arguments.seconds:g} s are over: {len(entries) - len(done)} files")
    return source_tree.report("check_tidy", offences, f"{len(done)} files are tidy")


if __name__ == "__main__":
    sys.exit(main())
