#!/usr/bin/env python3
"""Items of the tasks: the same for a seed, with right answers, the hard ones of trained lengths."""

import json
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "training/tasks_data.py"
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def drawn(*arguments):
    made = subprocess.run([sys.executable, str(DATA), *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    return made.returncode, [json.loads(line) for line in made.stdout.splitlines()]


def answer_of(prompt):
    name, *words = prompt.rstrip("=").split(" ")
    if name == "rev":
        return words[0][::-1]
    if name == "sort":
        return "".join(sorted(words[0]))
    if name == "shift":
        return "".join(LETTERS[(LETTERS.index(c) + int(words[0])) % 26] for c in words[1])
    if name == "add":
        return f"{sum(map(int, words[0].split('+'))):03}"
    return " ".join(str(sum(map(int, words[: i + 1])) % 10) for i in range(len(words)))


class TasksData(unittest.TestCase):
    def test_items_are_right_and_the_same_for_a_seed(self):
        for which, tasks in (([], 6), (["hard"], 3)):
            status, items = drawn("50", "7", *which)
            self.assertEqual((status, len(items)), (0, 50 * tasks))
            self.assertEqual(drawn("50", "7", *which)[1], items)
            self.assertNotEqual(drawn("50", "8", *which)[1], items)
            for item in items:
                if item["task"] != "fact":
                    self.assertEqual(item["answer"], answer_of(item["prompt"]), item)

    def test_hard_items_have_trained_lengths(self):
        for item in drawn("200", "1", "hard")[1]:
            words = item["prompt"].rstrip("=").split(" ")[1:]
            if item["task"] == "hard-sort":
                self.assertEqual(len(words[0]), 6)
                self.assertLessEqual(len(set(words[0])), 4)
            elif item["task"] == "hard-add":
                self.assertGreaterEqual(int(item["answer"]), 100)
                self.assertGreaterEqual(sum(int(word[1]) for word in words[0].split("+")), 10)
            else:
                self.assertEqual(len(words), 17)
                self.assertLessEqual(len(set(words)), 2)

    def test_other_arguments_are_refused(self):
        self.assertNotEqual(drawn("5")[0], 0)
        self.assertNotEqual(drawn("5", "1", "easy")[0], 0)


if __name__ == "__main__":
    unittest.main()
