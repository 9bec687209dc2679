#!/usr/bin/env python3
"""What is typed arrives as it was typed: brackets, nothing, standard input; and errors are in our own words."""

import json
import os
import re
import subprocess
import unittest

from program import DATA, PROGRAM, ProgramTest, read_safetensors, run

VIDEO = DATA / "diffusers/cogvideox_2b/model"
WAVES = ("generate", VIDEO, "--width", "48", "--height", "32", "--frames", "9", "--steps", "1",
         "--progress", "none", "--latents-only", "--save-latents")
TEXTS = ("[INST] x [/INST]", "INST] x [/INST", "x", "[x]", "[[xx]]", "[1, 2, 3]", "{}", "--steps", "")


class Texts(ProgramTest):
    def complete(self, *arguments, **options):
        done = self.run_here("complete", "tasks-a", "--raw", "--max-tokens", "4", "--json", *arguments,
                             **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["completions"]

    def latents(self, *arguments, **options):
        done = self.run_here(*WAVES, "l.safetensors", *arguments, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return read_safetensors(self.folder / "l.safetensors")[0]["latents"][2]

    def test_prompts_are_not_taken_apart(self):
        # CLI11 would have read "[x]" as a list with the one entry "x", and so on.
        apart = [self.latents("--prompt", text) for text in TEXTS]
        self.assertEqual(len(set(apart)), len(TEXTS))
        for text, latents in zip(TEXTS, apart):
            self.assertEqual(latents, self.latents("--prompt", "-", input=text), text)
        self.assertNotEqual(self.latents("--prompt", "x", "--negative-prompt", "[x]"),
                            self.latents("--prompt", "x", "--negative-prompt", "x"))

    def test_stops_are_not_taken_apart(self):
        whole = self.complete("--prompt", "rev stone=")[0]["text"]
        self.assertIn(whole[0], "enots")
        stopped = self.complete("--prompt", "rev stone=", "--stop", f"[{whole[0]}]")[0]["text"]
        self.assertEqual(stopped, whole)
        self.assertNotEqual(self.complete("--prompt", "rev stone=", "--stop", whole[0])[0]["text"], whole)
        for command in (("complete", "tasks-b", "--prompt", "rev stone="), ("chat", "tasks-b")):
            self.refused(2, *command, "--stop", "a", "--stop", "", input="x\n", says="--stop '': an empty text ends every answer")

    def test_each_prompt_is_one(self):
        self.assertEqual(len(self.complete("--prompt", "a", "--prompt", "b")), 2)
        self.refused(2, "complete", "tasks-a", "--prompt", "[a]", says="no token for '['")
        self.refused(2, "complete", "tasks-a", "--prompt", "a", "b", says=["unexpected argument 'b'"])

    def test_no_text_is_the_unconditional_image(self):
        none = self.latents("--prompt", "", "--guidance", "1")
        self.assertEqual(none, self.latents("--prompt=", "--guidance", "1"))
        self.assertEqual(none, self.latents("--prompt", "-", "--guidance", "1", input="\n"))
        self.assertNotEqual(none, self.latents("--prompt", "waves", "--guidance", "1"))

    def test_texts_that_look_like_options(self):
        self.assertEqual(self.latents("--prompt=-x"), self.latents("--prompt", "-x"))
        self.refused(2, *WAVES, "l", "--prompt", says="--prompt needs a value")


class Inputs(ProgramTest):
    def test_standard_input(self):
        done = self.run_here(*WAVES, "a", "--prompt", "-", input="waves\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.run_here(*WAVES, "b", "--prompt", "waves")
        self.assertEqual((self.folder / "a").read_bytes(), (self.folder / "b").read_bytes())

    def test_lines(self):
        (self.folder / "prompts").write_text("waves\r\nrocks\n\r\n\n")
        self.assertEqual(self.run_here(*WAVES, "a", "--prompt-file", "prompts").returncode, 0)
        self.run_here(*WAVES, "b", "--prompt-file", "-", input="\ufeffwaves\nrocks\n")
        self.assertEqual((self.folder / "a").read_bytes(), (self.folder / "b").read_bytes())
        self.assertEqual(read_safetensors(self.folder / "a")[0]["latents"][1][0], 2)
        self.refused(2, *WAVES, "c", "--prompt-file", "-", input="\n",
                     says="--prompt-file: standard input holds no line")
        for text, line in (("\nwaves\n", 1), ("waves\r\n\r\nrocks", 2), ("a\nb\n\n\nc\n", 3)):
            self.refused(2, *WAVES, "c", "--prompt-file", "-", input=text, says=f"has nothing in line {line};")

    def test_what_cannot_be_read(self):
        os.mkfifo(self.folder / "pipe")
        for name, says in (("none", "No such file"), ("pipe", "no regular file"), (".", "no regular file"),
                           ("/dev/zero", "no regular file")):
            self.refused(2, *WAVES, "c", "--prompt-file", name, says=["--prompt-file", name, says])
            self.refused(2, "complete", "tasks-a", "--chat", name, says=["--chat", name, says])

    def test_standard_input_without_end(self):
        with open("/dev/zero") as zeros:
            self.refused(2, *WAVES, "c", "--prompt", "-", stdin=zeros,
                         says=["--prompt: standard input", "16 MB"])

    def test_standard_input_reaches_one_process(self):
        self.refused(2, *WAVES, "c", "--prompt", "-", env={**os.environ, "OMPI_COMM_WORLD_SIZE": "2"},
                     says=["--prompt: standard input", "one of mpirun's processes"], input="x")

    def test_interrupted_while_somebody_types(self):
        process = subprocess.Popen([PROGRAM, *map(str, WAVES), "c", "--prompt", "-"], cwd=self.folder,
                                   stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.terminate()
        self.assertEqual(process.wait(20), 130)
        self.assertIn("stopped while standard input was read", process.stderr.read())
        process.stdin.close()
        process.stderr.close()


class Repeated(ProgramTest):
    def test_the_last_wins_with_a_note(self):
        done = self.run_here(*WAVES, "a", "--prompt", "waves", "--seed", "1", "--prompt", "rocks", "--seed", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.splitlines(), ["note: --prompt was given 2 times; the last counts",
                                                    "note: --seed was given 2 times; the last counts"])
        self.run_here(*WAVES, "b", "--prompt", "rocks", "--seed", "2")
        self.assertEqual((self.folder / "a").read_bytes(), (self.folder / "b").read_bytes())

    def test_lists_are_no_repetitions(self):
        done = self.run_here("complete", "tasks-a", "--prompt", "1", "--prompt", "2", "--prompt-ids", "3",
                             "--prompt-ids", "4", "--max-tokens", "2", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len(json.loads(done.stdout)["completions"]), 4)


class Reports(ProgramTest):
    def test_a_place_that_is_not_there_is_refused_before_the_work(self):
        for command in (("generate", "no/model", "--class", "1"), ("complete", "no/model", "--prompt", "x")):
            self.refused(2, *command, "--report", "none/r.json", says=["'none/r.json'", "make its folder"])


class Wording(ProgramTest):
    """CLI11 words its errors anew in each version: none of its words may come out."""

    THEIRS = re.compile(r"in range|Could not|not in \{|Value |required (TEXT|INT|UINT)|At Most|converted")

    def test_every_option_of_every_command(self):
        seen = 0
        for command in ("generate", "complete", "forward", "inspect", "eval", "eval speed", "eval tasks",
                        "eval experts", "bench kernels", "bench parallel"):
            words = command.split()
            for option in sorted(set(re.findall(r"--[a-z][a-z-]+", run(*words, "--help").stdout))):
                for value in (("wrong",), ("-99999999999999999999",), ()):
                    done = self.run_here(*words, "no/model", option, *value)
                    lines = done.stderr.splitlines()
                    if option == "--help":
                        continue
                    self.assertNotEqual(done.returncode, 0, (command, option, value))
                    self.assertTrue(lines[-1].startswith("tessera: error: "), (command, option, value))
                    self.assertNotRegex(lines[-1], self.THEIRS, (command, option, value))
                    seen += 1
        self.assertGreater(seen, 150)

    def test_checks_of_values(self):
        for option, value, says in (("--threads", "0", "--threads: expected a whole number from 1 to 4096, not '0'"),
                                    ("--comm-timeout", "1e9", "--comm-timeout: expected a number from 0.01 to 86400"),
                                    ("--dtype", "f16", "--dtype: expected f32, bf16, int8 or int4, not 'f16'"),
                                    ("--width", "-8", "--width: expected a whole number from 1 to 1048576, not '-8'"),
                                    ("--seed", "x", "--seed x: this is no number that the option takes")):
            self.refused(2, "generate", "shapes", "--class", "1", option, value, says=says)


if __name__ == "__main__":
    unittest.main()
