#!/usr/bin/env python3
"""Finds forbidden words in the tree: prints and exits of the library, loose ends, machine paths, and
comments in an unclear language."""

import argparse
import pathlib
import re
import sys

import source_tree

TEXT = {".cpp", ".h", ".inc", ".cu", ".cuh", ".py", ".md", ".txt", ".cmake", ".json", ".sh", ""}
SELF = {"tools/check_words.py", "tests/tools/check_words_test.py", "LICENSE"}
DATA = ("tests/data/", "tests/fuzz/corpus/", "models/")

CODE_FOLDERS = ("src", "include", "apps", "tests", "bench", "examples")

# The library throws tessera::Error; it never prints, exits or aborts.
LIBRARY = [
    (re.compile(r"(?<![\w.>])(?:std::)?(?:printf|puts|putchar|perror|vprintf)\s*\("), "prints"),
    (re.compile(r"(?<![\w.>])(?:std::)?v?fprintf\s*\(|\bfmt::print"), "prints"),
    (re.compile(r"\bstd::(?:cout|cerr|clog)\b|#\s*include\s*<iostream>"), "prints"),
    (re.compile(r"(?<![\w.>])(?<!void )(?:std::)?(?:_?exit|_Exit|quick_exit|abort|terminate)\s*\("), "ends the process"),
    (re.compile(r"(?<![\w.>])assert\s*\(|#\s*include\s*<cassert>"), "aborts"),
]
# Messages of the library name request fields; each program has its own options and commands.
OPTION = re.compile(r"\"[^\"\n]*(?:(?<![\w-])--[a-z]|\bmpirun\b|'tessera [a-z])")
EVERYWHERE = [
    (re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b"), "a loose end"),
    (re.compile(r"\bGTEST_SKIP\b(?!\(\) <<\s+\S)|\bDISABLED_"), "a test that does not run and gives no reason"),
    (re.compile(r"(?<![\w.])/(?:work|root|home)/\w"), "a path of one machine"),
]
# Words of the glossary in CONTRIBUTING: removed words, and their replacements.
GONE = [
    (re.compile(r"(?i)(?<!webp)(?<!webp_)pictures?(?!_)"), "say image, or sample of a batch"),
    (re.compile(r"\b(?:KvSlots|kv_slots)\b"), "say KvCache"),
    (re.compile(r"\b(?:RowPeers|RowUsage|RowPass|row_peers|row_usage)\b"), "say sequence"),
    (re.compile(r"\b(?:CallRows|StaleRows|stale_rows)\b"), "say results, or assignments"),
    (re.compile(r"\b(?:CommitRule|commit_rules?)\b"), "say unmasking policy"),
    (re.compile(r"\bTwoLinears\b"), "say Mlp"),
    (re.compile(r"(?i)\b\w*recipe\w*"), "say pipeline, or spec"),
    (re.compile(r"(?i)rehears|foret(?:old|ell)|foresee|foreseen"), "say dry run, or predict"),
]
# No comment begins with these words, and few words of comments are pronouns.
PRONOUNS = {"what", "which", "who", "whose", "whom", "that", "it", "its", "one", "ones"}
MOST_PRONOUNS = 0.05  # of the words in the comments of a file
OPENING = re.compile(r"\W*(?:of|what|who|whose|which)\b", re.I)
NAMES = re.compile(r"^(?:utils?|helpers?|common|misc)(?:\.|_|$)")


def comments(text):
    """[(line, comment)]: lines of comments that follow each other are one comment."""
    found, bare = [], source_tree.without_comments(text, keep_strings=True).split("\n")
    for number, (line, code) in enumerate(zip(text.split("\n"), bare), 1):
        words = line[len(code.rstrip()):].strip().lstrip("/<").strip()
        if not words:
            continue
        whole = not code.strip()
        if whole and found and found[-1][2] == number - 1:
            found[-1] = (found[-1][0], found[-1][1] + " " + words, number)
        else:
            found.append((number, words, number if whole else -1))
    return [(line, text) for line, text, _ in found]


def unclear_comments(path, text):
    """Offences of the comments of a file."""
    found, words = comments(text), []
    for line, comment in found:
        words += re.findall(r"[A-Za-z]+", comment)
        if OPENING.match(comment):
            yield f"{path}:{line}: {comment[:40]}: a comment begins with its subject, not with of, what or who"
    pronouns = [word for word in words if word.lower() in PRONOUNS]
    if len(pronouns) > max(2, MOST_PRONOUNS * len(words)):
        yield (f"{path}: {len(pronouns)} of {len(words)} words in comments are what, which, that, it, one or "
               f"their like, {MOST_PRONOUNS:.0%} at most: name the thing")


def offences_in(path, text):
    """Offences of one file; code is read without its comments where only code counts."""
    rules = [(rule, why, text) for rule, why in EVERYWHERE]
    if path.parts[0] in CODE_FOLDERS:
        rules += [(rule, why, text) for rule, why in GONE]
    if path.parts[0] in ("src", "include") and path.suffix in source_tree.CODE:
        bare = source_tree.without_comments(text)
        rules += [(rule, f"the library {why}", bare) for rule, why in LIBRARY]
        rules.append((OPTION, "the library names an option or a command; write the field in backticks",
                      source_tree.without_comments(text, keep_strings=True)))
    if path.suffix in source_tree.CODE:
        yield from unclear_comments(path, text)
    for rule, why, where in rules:
        for match in rule.finditer(where):
            line = where.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {match.group(0).strip()}: {why}"


def check(root):
    offences, count = [], 0
    for path in source_tree.files(root):
        name = path.as_posix()
        if name in SELF or name.startswith(DATA):
            continue
        if NAMES.match(path.name) and path.suffix in source_tree.CODE | {".py"}:
            offences.append(f"{path}: a file is named for what is in it")
        if path.suffix in TEXT:
            count += 1
            offences += offences_in(path, source_tree.read(root, path))
    return offences, count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    offences, count = check(parser.parse_args().root.resolve())
    return source_tree.report("check_words", offences, f"{count} files are clean")


if __name__ == "__main__":
    sys.exit(main())
