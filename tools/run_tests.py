#!/usr/bin/env python3
"""Runs the tests of a build. Only tests labelled flaky-environment may fail and are run again.

  run_tests.py BUILD [CTEST_OPTION...]

BUILD/flaky_tests.txt has a line "test: reason" for each labelled test. Tests that failed first and then
passed are named at the end, and added to BUILD/failed_once.txt.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

LABEL = "flaky-environment"
TIMES = 3  # runs of a failing labelled test, including the first
FAILED = re.compile(r"^\s*\d+ - (\S+) \((?!Disabled|Skipped)", re.M)  # in ctest's list of failed tests
END = re.compile(r"^(\d+% tests passed.*)$", re.M)


def reasons(build):
    """Returns {test: reason} of build/flaky_tests.txt."""
    path = build / "flaky_tests.txt"
    lines = path.read_text().splitlines() if path.is_file() else []
    return dict(line.split(": ", 1) for line in lines if ": " in line)


def labelled(build):
    listed = subprocess.run(["ctest", "--test-dir", build, "-L", f"^{LABEL}$", "--show-only=json-v1"],
                            check=True, text=True, stdout=subprocess.PIPE).stdout
    return {test["name"] for test in json.loads(listed)["tests"]}


def run(build, options):
    """Returns (names of failed tests, final output of ctest); passes on all output."""
    said = []
    with subprocess.Popen(["ctest", "--test-dir", build, "--output-on-failure", *options],
                          text=True, errors="replace", stdout=subprocess.PIPE) as ctest:
        for line in ctest.stdout:
            print(line, end="", flush=True)
            said.append(line)
    text = "".join(said)
    end = END.search(text)
    if ctest.returncode == 0:
        return [], end.group(1) if end else "there are no tests"
    failed = list(dict.fromkeys(FAILED.findall(text, end.end() if end else 0)))
    return failed or ["ctest"], end.group(1) if end else "ctest did not come to its end"


def run_again(build, tests):
    """Returns the tests that fail every time."""
    names = "^(" + "|".join(re.escape(test) for test in tests) + ")$"
    again, _ = run(build, ["-R", names, "--repeat", f"until-pass:{TIMES - 1}"])
    return tests if again == ["ctest"] else again


def list_skipped(build):
    """Runs list_skipped.py; the status is 0 if each skipped test has a reason."""
    tool = pathlib.Path(__file__).with_name("list_skipped.py")
    return subprocess.run([sys.executable, tool, build, "gpu=they need a GPU: ctest -L gpu",
                           "long=they take minutes: ctest -L long"], check=False).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("options", nargs=argparse.REMAINDER, metavar="CTEST_OPTION")
    arguments = parser.parse_args()
    build, why = arguments.build, reasons(arguments.build)
    silent = sorted(labelled(build) - why.keys())
    for test in silent:
        print(f"run_tests: {test} is labelled {LABEL} without a reason", file=sys.stderr)
    failed, end = run(build, arguments.options)
    told = list_skipped(build)  # for the first run, before the next overwrites the log
    flaky = [test for test in failed if test in why]
    lost = [test for test in failed if test not in why]
    if flaky:
        lost += run_again(build, flaky)
    once = [test for test in flaky if test not in lost]
    with open(build / "failed_once.txt", "a") as listed:
        listed.writelines(f"{test}: {why[test]}\n" for test in once)
    for test in lost:
        print(f"failed: {test}")
    for test in once:
        print(f"failed once, then passed: {test}: {why[test]}")
    print(end + (f"; failed once, then passed: {', '.join(once)}" if once and not lost else ""))
    return 1 if lost or silent or not told else 0


if __name__ == "__main__":
    sys.exit(main())
