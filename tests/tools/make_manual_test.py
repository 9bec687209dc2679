#!/usr/bin/env python3
"""Manual pages and completions say what --help says."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE") or pathlib.Path(__file__).parents[2])
PROGRAM = os.environ.get("TESSERA_PROGRAM") or str(SOURCE / "build/release/tessera")
sys.path.insert(0, str(SOURCE / "tools"))
import make_manual  # noqa: E402


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.out = pathlib.Path(holder.name)
        subprocess.run([sys.executable, SOURCE / "tools/make_manual.py", PROGRAM, cls.out], check=True, timeout=120)
        cls.commands = make_manual.Command(PROGRAM, []).all()

    def completed(self, *words):
        script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tessera; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", script, "_", self.out / "tessera.bash", *words], capture_output=True,
                              text=True, check=True, timeout=60)
        return done.stdout.split()

    def test_every_command_and_option_is_in_all_of_them(self):
        self.assertGreater(len(self.commands), 8)
        zsh, fish = ((self.out / name).read_text() for name in ("_tessera", "tessera.fish"))
        for command in self.commands:
            page = (self.out / "man1" / f"{command.name()}.1").read_text().replace("\\-", "-")
            words = self.completed("tessera", *command.path, "-")
            self.assertIn("--help", words, command.path)
            for flag, _, _ in command.options():
                self.assertIn(flag, page)
                self.assertIn(flag, words)
                self.assertIn(f"'{flag}[", zsh)
                self.assertIn(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}", fish)
            for each in command.commands:
                self.assertIn(each.path[-1], self.completed("tessera", *command.path, ""))

    def test_options_of_the_help_are_all_found(self):
        generate = next(c for c in self.commands if c.path == ["generate"])
        flags = {flag for flag, _, _ in generate.options()}
        text = subprocess.run([PROGRAM, "generate", "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
        left = [line[:27] for line in text.splitlines() if line.startswith("  -")]
        for line in left:
            for word in line.replace(",", " ").split():
                if word.startswith("--") and len(word) > 2:
                    self.assertIn(word, flags)
        self.assertIn(("--steps", "N"), {(flag, value) for flag, value, _ in generate.options()})

    def test_words_complete_as_typed(self):
        self.assertEqual(self.completed("tessera", "ge"), ["generate"])
        self.assertEqual(self.completed("tessera", "generate", "shapes", "--guidance-r"), ["--guidance-rescale"])
        self.assertEqual(self.completed("tessera", "generate", "sha"), [])  # left to names of files
        self.assertIn("--json", self.completed("tessera", "bench", "parallel", "--j"))

    def test_shells_and_man_read_them(self):
        for shell, name in (("bash", "tessera.bash"), ("zsh", "_tessera"), ("fish", "tessera.fish")):
            if shutil.which(shell):
                subprocess.run([shell, "-n", self.out / name], check=True, timeout=60)
        if not shutil.which("groff"):
            self.skipTest("there is no groff here that would read the manual pages")
        for page in (self.out / "man1").iterdir():
            done = subprocess.run(["groff", "-ww", "-man", "-Tutf8", "-z", page], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""), page)


if __name__ == "__main__":
    unittest.main()
