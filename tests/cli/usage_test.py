#!/usr/bin/env python3
"""Wrong options, sizes and names: one clear line, status 2 (or 4 for plans, 6 for memory)."""

import json
import os
import re
import subprocess
import unittest

from program import DATA, PROGRAM, SHAPES, ProgramTest, run

TINY = DATA / "moe/dit_moe_flash/model"


class Help(ProgramTest):
    GROUPS = {(): ["Commands:", "Options:", "Try:"],
              ("generate",): ["Common:", "Prompt:", "Sampling:", "Files:", "Execution:"],
              ("complete",): ["Common:", "Sampling:", "Input and output:", "Decoding:", "Execution:"],
              ("chat",): ["Common:", "Decoding:", "Execution:"],
              ("eval",): ["Commands:", "Measurement:"],
              ("eval", "speed"): ["Measurement:", "Execution:"],
              ("eval", "tasks"): ["Measurement:", "Decoding:"],
              ("eval", "experts"): ["Measurement:", "Decoding:"],
              ("tokenize",): ["Input and output:"],
              ("forward",): ["Input and output:", "Execution:"],
              ("inspect",): ["Run to estimate:", "Execution:"],
              ("plan",): ["Hardware:", "Run:", "Plans:", "Output:"], ("quantise",): ["Options:"],
              ("serve",): ["Address:", "Limits and storage:", "Execution:"],
              ("bench",): ["Commands:"], ("bench", "kernels"): ["Options:"],
              ("bench", "parallel"): ["Measurement:", "Execution:"]}

    def test_fits_two_screens_and_groups_options(self):
        for command, groups in self.GROUPS.items():
            done = run(*command, "--help")
            lines = done.stdout.splitlines()
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertLessEqual(len(lines), 80 if command in (("generate",), ("complete",)) else 40, command)
            self.assertLessEqual(max(map(len, lines)), 80, command)
            for group in groups:
                self.assertIn(group, lines, command)

    def test_the_first_lines_show_the_usage_and_the_first_options(self):
        for command, first in (("generate", ("--prompt", "--class", "--output", "--steps", "--seed")),
                               ("complete", ("--prompt", "--chat", "--max-tokens", "--json", "--temperature"))):
            lines = run(command, "--help").stdout.splitlines()[:10]
            self.assertIn(f"Usage: tessera {command} MODEL [OPTION ...]", lines)
            for option in first:
                self.assertIn(option, "\n".join(lines), command)

    def test_every_option_has_a_phrase_of_its_own(self):
        for command in self.GROUPS:
            for line in run(*command, "--help").stdout.splitlines():
                if not line.startswith("  -"):
                    continue
                left, _, phrase = line[2:].partition("  ")
                self.assertRegex(phrase.strip(), r"^\S", line)
                self.assertLessEqual(left.count("--"), 2 if "--width" in left else 1, line)

    def test_every_option_it_names_exists(self):
        for command in ("generate", "complete", "tokenize", "forward", "inspect", "eval", "eval speed", "eval tasks",
                        "eval experts", "bench kernels", "bench parallel"):
            words = command.split()
            options = set(re.findall(r"--[a-z][a-z-]+", run(*words, "--help").stdout))
            self.assertGreaterEqual(len(options), 2)
            for option in options - {"--help"}:
                self.assertNotIn("unknown option", run(*words, option, "x").stderr, option)

    def test_version(self):
        self.assertRegex(run("--version").stdout, r"^tessera \d+\.\d+\.\d+\n$")

    def test_a_start_loads_nothing_that_only_videos_need(self):
        loaded = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True).stdout
        self.assertIn("libstdc++", loaded)
        for library in ("libavcodec", "libavformat", "libswscale"):
            self.assertNotIn(library, loaded)


class Arguments(ProgramTest):
    def test_commands(self):
        self.refused(2, says=["generate, complete, chat, tokenize, forward, inspect, plan, quantise, eval, bench or serve", "--help"])
        self.refused(2, "--verison", says=["unknown option '--verison'; did you mean '--version'?"])
        self.refused(2, "--steps", "3", "generate", says=["'--steps' stands before the command"])
        self.refused(2, "inspec", says=["unknown command 'inspec'", "did you mean 'inspect'"])
        self.refused(2, "--steps", "3", says="before the command")

    def test_options(self):
        self.refused(2, "generate", says="MODEL is required")
        self.refused(2, "generate", "shapes", says="give --class C, or --prompt T")
        self.refused(2, "generate", "shapes", "--class", "1", "--stesp", "3",
                     says=["unknown option '--stesp'", "did you mean '--steps'",
                           "tessera generate --help"])
        self.refused(2, "generate", "shapes", "--class", "1", "--xyzzy=3",
                     says="unknown option '--xyzzy'")
        self.refused(2, "generate", "shapes", "--class", "red", "circle",
                     says=["unexpected argument 'circle'", "quotes"])
        self.refused(2, "generate", "shapes", "--class", says="--class needs a value")
        self.refused(2, "complete", "tasks-a", "sort hello=", says=["unexpected argument", '--prompt "..."'])
        for text in (("--prompt", "-", "--prompt", "-"), ("--prompt", "-", "--chat", "-"),
                     ("--prompt-file", "-", "--prompt", "-")):
            self.refused(2, "complete", "tasks-a", *text, says="standard input can be read once", input="x\n")
        self.refused(2, "generate", "shapes", "--class", "1", "--dtype", "f16",
                     says=["--dtype", "f16", "f32, bf16, int8 or int4"])
        self.refused(2, "generate", "shapes", "--class", "1", "--device", "tpu",
                     says=["--device 'tpu'", "'cpu', 'cuda' or 'cuda:N'"])
        for device in ("cuda:", "cuda:-1", "cuda:one"):
            self.refused(2, "generate", "shapes", "--class", "1", "--device", device,
                         says=[device, "'cuda:N'"])

    def test_a_gpu_that_is_not_there(self):
        # Built without CUDA, without a driver, or with fewer GPUs: one line says which.
        for command in (("generate", "shapes", "--class", "1"), ("inspect", "shapes"),
                        ("complete", "tasks-a", "--prompt", "1+1="),
                        ("eval", "experts", "tasks-a", "--data", DATA / "none.jsonl"),
                        ("bench", "kernels")):
            self.refused(2, *command, "--device", "cuda:99", says=["cuda", "cpu"])
        self.refused(2, "generate", "shapes", "--class", "1", "--transport", "pigeon",
                     says=["--transport pigeon", "'threads'", "'mpi'", "'nccl'"])
        self.refused(2, "generate", "shapes", "--class", "1", "--transport", "nccl",
                     says=["--transport nccl", "--device cuda"])
        self.refused(2, "generate", "shapes", "--class", "1", "--transport", "nccl", "--device", "cuda",
                     says=["--transport nccl", "mpirun -np N"])
        self.refused(2, "generate", "shapes", "--class", "1", "--progress", "loud",
                     says=["--progress", "auto, plain or none"])
        self.refused(2, "bench", "pixels", says=["pixels", "kernels"])
        self.refused(2, "bench", "kernels", "--threads", "0", says=["--threads", "1 to 4096"])

    def test_units_of_the_environment(self):
        for unit in ("tile", "Dot", "dot fma", "\x1b[2J"):
            self.refused(2, "generate", SHAPES, "--class", "1", "-o", "a.png", says=("TESSERA_UNIT=", "expected fma or dot"),
                         env={**os.environ, "TESSERA_UNIT": unit})
        self.refused(2, "generate", SHAPES, "--class", "1", "-o", "a.png", says=("TESSERA_UNIT=dot", "reference"),
                     env={**os.environ, "TESSERA_UNIT": "dot", "TESSERA_ISA": "reference"})

    def test_the_report_says_the_unit(self):
        for isa in ("reference", "avx2"):
            done = self.run_here("generate", SHAPES, "--class", "1", "--steps", "1", "--latents-only", "--save-latents",
                                 f"{isa}.safetensors", "--report", f"{isa}.json", env={**os.environ, "TESSERA_ISA": isa})
            if "TESSERA_ISA=" in done.stderr:
                self.skipTest(done.stderr)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads((self.folder / f"{isa}.json").read_text())["unit"], "fma")

    def test_numbers(self):
        for option, value, says in [("--steps", "0", "1 to 100000, not '0'"), ("--steps", "-3", "not '-3'"),
                                    ("--steps", "2000000", "1 to 100000"), ("--steps", "ten", "not 'ten'"),
                                    ("--steps", "99999999999999999999", "--steps"),
                                    ("--count", "0", "--count: expected a whole number"), ("--count", "-1", "not '-1'"),
                                    ("--guidance", "nan", "--guidance nan"),
                                    ("--guidance", "-1", "--guidance -1"),
                                    ("--width", "0", "--width: expected a whole number"), ("--height", "-8", "not '-8'"),
                                    ("--threads", "-1", "--threads"),
                                    ("--seed", "x", "--seed x"), ("--seed", "-1", "--seed: expected a whole"),
                                    ("--seed", str(2**64), "0 to 18446744073709551615")]:
            self.refused(2, "generate", "shapes", "--class", "1", option, value, says=says)

    def test_sizes(self):
        self.refused(2, "generate", "shapes", "--class", "1", "--width", "100",
                     says="--width 100: expected a multiple of 16: 96 or 112")
        # 8 pixels are one latent pixel, and a patch has 2.
        for command in (("generate", "shapes", "--class", "1"), ("inspect", "shapes")):
            self.refused(2, *command, "--width", "136", "--height", "128",
                         says="--width 136: expected a multiple of 16: 128 or 144")
            self.refused(2, *command, "--height", "7", says="--height 7: expected a multiple of 16: 16")
        self.refused(2, "inspect", "shapes", "--count", "0", says="--count 0")

    def test_absurd_sizes_are_refused_before_the_work(self):
        for size in ("131072", "1048576"):
            self.refused(6, "generate", "shapes", "--class", "1", "--width", size, "--height", size,
                         says="use a smaller size or --count")
        self.refused(6, "generate", "shapes", "--class", "1", "--count", "100000", "--width",
                     "1024", "--height", "1024", says="--count")
        self.refused(6, "inspect", "dit_moe_g", "--width", "1048576", "--height", "1048576",
                     says="smaller size")

    def test_a_limit_on_memory_counts(self):
        limited = ["bash", "-c", 'ulimit -v 1000000; exec "$0" "$@"', PROGRAM, "generate", "shapes",
                   "--class", "1", "--width", "8192", "--height", "8192", "--threads", "1"]
        done = subprocess.run(limited, cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("would need about", done.stderr)

    def test_classes(self):
        self.refused(2, "generate", "shapes", "--class", "red circel",
                     says=["--class 'red circel': no such class", "did you mean 'red circle'", "inspect"])
        self.refused(2, "generate", "shapes", "--class", "32", says=["'32'", "0 to 31"])
        self.refused(2, "generate", "shapes", "--class", "1,,2", says="--class ''")
        done = self.run_here("generate", "shapes", "--class", "red circle, blue square ,3", "--steps", "1", "-o", "p/")
        self.assertEqual(done.stdout, "p/0000.png\np/0001.png\np/0002.png\n", done.stderr)
        self.refused(2, "generate", "shapes", "--class", "-1", says="'-1'")
        self.refused(2, "generate", TINY, "--class", "circle", "--latents-only", "--save-latents",
                     "l.safetensors", says=["'circle'", "0 to 9"])

    def test_models_without_classes(self):
        self.refused(2, "generate", "tasks-a", "--prompt", "x", says=["language model", "it completes texts"])
        self.refused(2, "generate", DATA / "diffusers/flux_dev/model/transformer", "--class", "1",
                     says=["takes text, not classes", "--prompt"])

    def test_a_repository_without_any_cache(self):
        says = ["organisation/name", "HOME name none"]
        self.refused(3, "inspect", "organisation/name", says=says, env={"PATH": "/usr/bin"})

    def test_no_heading_above_an_error(self):
        for command in (("eval", "nowhere"), ("eval", "tasks", "nowhere"), ("eval", "speed", "nowhere")):
            self.assertEqual(self.run_here(*command).stdout, "", command)

    def test_outputs_are_refused_before_the_work(self):
        (self.folder / "file").write_text("")
        for output, says in (("-", "/dev/stdout"), ("x" * 300 + ".png", "shorter name"),
                             ("file/x.png", "is a file, not a folder")):
            line = self.refused(2, "generate", "shapes", "--class", "1", "-o", output, says=says)
            self.assertNotIn("put in place", line)

    def test_plans(self):
        self.refused(4, "generate", "shapes", "--class", "1", "--ranks", "2",
                     says=["without a plan one rank does all, and 2 were given", "data=2"])
        self.refused(4, "generate", "shapes", "--class", "1", "--plan", "distrifussion=2",
                     says=["'distrifussion'", "distrifusion"])
        self.refused(4, "generate", "shapes", "--class", "1", "--plan", "data=0", says="'data=0'")
        self.refused(4, "generate", "shapes", "--class", "1", "--plan", "data", says="no value")

    def test_numbers_that_nobody_reads_are_noted(self):
        ask = ("generate", "shapes", "--class", "1", "--steps", "2", "--compare-steps")
        self.assertIn("note: --compare-steps has no effect", self.run_here(*ask).stderr)
        self.assertNotIn("no effect", self.run_here(*ask, "--overwrite", "--report", "r.json").stderr)

    def test_what_belongs_together(self):
        self.refused(2, "generate", "shapes", "--class", "1", "--compare-steps", "--plan",
                     "expert=2", "--count", "2", says=["--compare-steps", "leave out --plan"])
        self.refused(2, "generate", "shapes", "--class", "1", "--latents-only",
                     says="--save-latents")
        self.refused(3, "generate", TINY, "--class", "1", says=["no VAE", "--latents-only"])
        self.refused(2, "forward", TINY, "--component", "vae.decode", "--inputs", "x",
                     "--outputs", "y", says="has no VAE")
        self.refused(2, "forward", TINY, "--component", "unet", "--inputs", "x", "--outputs", "y",
                     says=["'unet'", "transformer", "vae.decode"])


if __name__ == "__main__":
    unittest.main()
