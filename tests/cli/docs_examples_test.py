#!/usr/bin/env python3
"""Keeps the documents true: runs their commands, and finds their quotations in the code.

A block ```sh is run, the blocks of a document one after the other in one folder; a block ```text behind
it holds lines that must come out, in order, where '...' stands for anything. A command in a table cell
that begins with `tessera` or `python3 tools/` is run too. A block ```bash is what a test cannot run inside
itself: only the commands in WHOLE may stand there. A block ```cpp FILE quotes FILE. A block ```python is run by
tests/python/documents_test.py, and of docs/guides/server.md by tests/server/openai_test.py.
"""

import os
import pathlib
import re
import socket
import subprocess
import tempfile
import unittest

from program import PROGRAM, SOURCE

DOCUMENTS = sorted([SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", SOURCE / "SECURITY.md", *(SOURCE / "docs").rglob("*.md")])
WHOLE = re.compile(r"^(\./scripts/|git clone |cd |python3 training/|python3 -m venv |ctest |hf download |#|$)")
CELL = re.compile(r"`((?:TESSERA_\w+=\S+ )?(?:tessera|python3 tools/)[^`]*)`")
# mpirun refuses root otherwise, which is what containers run tests as.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
MARK = "==== example "


def parts_of(document):
    """[(kind, text, line number)] of blocks, and of commands in tables as kind 'sh'."""
    found, kind, text, start = [], None, [], 0
    for number, line in enumerate(document.read_text().splitlines(), 1):
        if line.startswith("```"):
            if kind is None:
                kind, text, start = line[3:].strip() or "plain", [], number
            else:
                found.append((kind, "\n".join(text), start))
                kind = None
        elif kind is not None:
            text.append(line)
        elif line.startswith("|"):
            found += [("sh", command, number) for command in CELL.findall(line)]
    return found


def headings_of(document):
    """The names by which links reach the headings of a document."""
    prose = re.sub(r"(?ms)^```.*?^```", "", document.read_text())
    lines = re.findall(r"(?m)^#+ (.*)$", prose)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def appears(expected, output):
    """The first expected line that does not follow its predecessors in the output, or None."""
    lines = iter(output.splitlines())
    for wanted in expected.splitlines():
        pattern = ".*".join(map(re.escape, wanted.rstrip().split("...")))
        if wanted.strip() != "..." and not any(re.fullmatch(pattern, got.rstrip()) for got in lines):
            return wanted
    return None


def quoted(text, source):
    """The first run of lines of a quotation that does not stand in the source as it is, behind the
    one before it, or None. Only a line of dots leaves something out."""
    lines = [line.strip() for line in source.splitlines()]
    at = 0
    for run in re.split(r"(?m)^ *(?://)? *\.\.\. *$", text):
        wanted = [line.strip() for line in run.strip("\n").splitlines()]
        if not wanted:
            continue
        while lines[at:at + len(wanted)] != wanted:
            at += 1
            if at + len(wanted) > len(lines):
                return run.strip("\n")
        at += len(wanted)
    return None


class Documents(unittest.TestCase):
    def run_document(self, parts):
        """The outputs of the sh parts, run in a folder that looks like a built clone."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for entry in SOURCE.iterdir():
                if entry.name not in ("build", ".git"):
                    (folder / entry.name).symlink_to(entry)
            (folder / "build/release").mkdir(parents=True)
            for entry in ("tessera", "examples"):
                (folder / "build/release" / entry).symlink_to(pathlib.Path(PROGRAM).parent / entry)
            with socket.socket() as s:  # for those that serve
                s.bind(("127.0.0.1", 0))
                port = str(s.getsockname()[1])
            script = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + "".join(
                f"echo '{MARK}'{i}\n{text}\n" for i, (_, text, _) in enumerate(parts))
            done = subprocess.run(["bash", "-c", script], cwd=folder, text=True, timeout=850,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env={**os.environ, "TMPDIR": name, "PORT": port, **AS_ROOT,
                                       "PATH": f"{folder}/build/release:{os.environ['PATH']}"})
        outputs = [part.partition("\n")[2] for part in done.stdout.split(MARK)[1:]]
        if done.returncode != 0:
            _, text, line = parts[len(outputs) - 1]
            self.fail(f"line {line} ends with {done.returncode}:\n{text}\n{outputs[-1]}")
        return outputs

    def test_commands(self):
        for document in DOCUMENTS:
            with self.subTest(document.relative_to(SOURCE)):
                parts = parts_of(document)
                runnable = [part for part in parts if part[0] == "sh"]
                if not runnable:
                    continue
                outputs = dict(zip((part[2] for part in runnable), self.run_document(runnable)))
                for before, part in zip(parts, parts[1:]):
                    if part[0] == "text" and before[0] == "sh":
                        missing = appears(part[1], outputs[before[2]])
                        self.assertIsNone(missing, f"line {part[2]}: '{missing}' is not in\n"
                                                   f"{outputs[before[2]]}")

    def test_kinds_of_blocks(self):
        for document in DOCUMENTS:
            for kind, text, line in parts_of(document):
                where = f"{document.relative_to(SOURCE)}:{line}"
                self.assertIn(kind.split()[0], ("sh", "text", "bash", "cpp", "python"), where)
                if kind == "bash":
                    for command in text.splitlines():
                        self.assertRegex(command, WHOLE, where)

    def test_quotations(self):
        for document in DOCUMENTS:
            for kind, text, line in parts_of(document):
                if not kind.startswith("cpp"):
                    continue
                source = (SOURCE / kind.split()[1]).read_text()
                missing = quoted(text, source)
                self.assertIsNone(missing, f"{document.relative_to(SOURCE)}:{line}: '{missing}' is not "
                                           f"in {kind.split()[1]}")

    def test_a_quotation_with_a_line_left_out_is_found(self):
        source = "a {\n  b;\n  c;\n  d;\n}\n"
        for text in ("a {\n  b;\n", "a {\n  ...\n  d;\n}", "// ...\n  c;\n", "  c;\n  d;"):
            self.assertIsNone(quoted(text, source), text)
        for text in ("a {\n  c;", "  c;\n  ...\n  b;", "  b;\n  x;", "..."+"\n  e;"):
            self.assertIsNotNone(quoted(text, source), text)

    def test_links_lead_somewhere(self):
        for document in DOCUMENTS:
            prose = re.sub(r"(?ms)^```.*?^```", "", document.read_text())
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
                if not re.match(r"[a-z]+:", target) and not target.startswith("docs/images/"):
                    self.assertTrue((document.parent / target).exists(), f"{document}: {target}")

    def test_links_to_headings_find_them(self):
        for document in DOCUMENTS:
            prose = re.sub(r"(?ms)^```.*?^```", "", document.read_text())
            for target, heading in re.findall(r"\]\((?![a-z]+:)([^)#\s]*)#([^)\s]+)\)", prose):
                page = document.parent / target if target else document
                self.assertIn(heading, headings_of(page), f"{document}: {target}#{heading}")

    def test_the_layer_table_is_the_one_that_is_checked(self):
        import sys
        sys.path.insert(0, str(SOURCE / "tools"))
        from check_layers import LAYERS
        rows = re.findall(r"(?m)^\| `(\w+)` \| ([^|]*) \|", (SOURCE / "docs/architecture.md").read_text())
        written = {name: set(line.split()) - {"-"} for name, line in rows}
        self.assertEqual(written, {name: set(line.split()) for name, line in LAYERS.items()})


if __name__ == "__main__":
    unittest.main()
