#!/usr/bin/env python3
"""Lists the skipped tests of the last ctest run with reasons, and the labels left out.

  list_skipped.py BUILD [LABEL=REASON...]

A skipped test without a reason is an error.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

ONE = re.compile(r"^\d+/\d+ Testing: (\S+)\n(.*?)(?=^\d+/\d+ Testing: |\Z)", re.M | re.S)
REASON = re.compile(r": Skipped\n(.*?)\n(?:\n|\[)", re.S)


def skipped(log):
    """Returns [(test, reason or "")] of a LastTest.log of ctest."""
    found = []
    for name, output in ONE.findall(log):
        if "[  SKIPPED ]" in output:
            reason = REASON.search(output)
            found.append((name, " ".join(reason.group(1).split()) if reason else ""))
    return found


def labelled(build, label):
    """Returns the number of tests with a label."""
    listed = subprocess.run(["ctest", "--test-dir", build, "-L", f"^{label}$", "--show-only=json-v1"],
                            check=True, text=True, stdout=subprocess.PIPE).stdout
    return len(json.loads(listed)["tests"])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("labels", nargs="*", metavar="LABEL=REASON")
    arguments = parser.parse_args()
    log = arguments.build / "Testing" / "Temporary" / "LastTest.log"
    if not log.is_file():
        print(f"list_skipped: there is no {log}; run ctest first", file=sys.stderr)
        return 1
    found = skipped(log.read_text(errors="replace"))
    for name, reason in found:
        print(f"skipped: {name}: {reason or 'no reason given'}")
    for text in arguments.labels:
        label, _, reason = text.partition("=")
        count = labelled(arguments.build, label)
        if count:
            print(f"left out: {count} tests labelled {label}: {reason}")
    silent = [name for name, reason in found if not reason]
    if silent:
        print(f"list_skipped: {len(silent)} tests give no reason", file=sys.stderr)
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
