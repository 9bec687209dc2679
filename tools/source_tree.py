"""Files of the repository, for the check tools: no git needed, build folders left out."""

import os
import pathlib
import re

SKIPPED = {".git", "build", "__pycache__", ".cache", ".ccache", ".venv", "venv", "node_modules"}
CODE = {".cpp", ".h", ".inc", ".cu", ".cuh"}


def files(root, *folders):
    """Returns paths below the folders (default: the root), relative to the root, sorted."""
    root = pathlib.Path(root)
    found = []
    for top in [root / f for f in folders] or [root]:
        for place, names, entries in os.walk(top):
            names[:] = sorted(n for n in names if n not in SKIPPED)
            found += [(pathlib.Path(place) / e).relative_to(root) for e in entries
                      if e not in SKIPPED]
    return sorted(found)


def code_files(root, *folders):
    return [f for f in files(root, *folders) if f.suffix in CODE]


def read(root, path):
    return (pathlib.Path(root) / path).read_text(encoding="utf-8", errors="replace")


_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
    re.S)


def _blank(match, kept):
    text = match.group(0)
    comment = text.startswith(("//", "/*"))
    if not comment and kept:
        return text
    middle = re.sub(r"[^\n]", " ", text)
    return middle if comment else '"' + middle[1:-1] + '"'


def without_comments(text, keep_strings=False):
    """Blanks comments (and the insides of strings) of C++ text; line numbers do not change."""
    return _TOKEN.sub(lambda m: _blank(m, keep_strings), text)


def report(tool, offences, good):
    """Prints offences or the success message; returns the exit status of the tool."""
    for offence in offences:
        print(f"{tool}: {offence}")
    if offences:
        print(f"{tool}: {len(offences)} offence{'s' if len(offences) > 1 else ''}")
        return 1
    print(f"{tool}: {good}")
    return 0
