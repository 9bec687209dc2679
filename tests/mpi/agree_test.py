#!/usr/bin/env python3
"""Ranks that were started differently end at once: the line names the rank and the thing."""

import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import time
import unittest

MPIRUN = shlex.split(os.environ["TESSERA_MPIRUN"])
PROGRAM = os.environ["TESSERA_PROGRAM"]
SOURCE = pathlib.Path(os.environ["TESSERA_SOURCE"])
MODEL = SOURCE / "tests/data/moe/dit_moe_flash/model"
TEXT_MODEL = SOURCE / "tests/data/moe/llada_moe/model"
IMAGE = {"--class": "1", "--steps": "3", "--seed": "5", "--guidance": "2", "--plan": "expert=2"}
TEXT = {"--prompt-ids": "5,17", "--max-tokens": "9", "--block": "8", "--plan": "expert=2"}


def words(options):
    return [word for pair in options.items() for word in pair]


class AgreeTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def ends(self, one, other, *expected):
        begin = time.monotonic()
        # One command for both: the mpirun of Open MPI 5.0.7 dies of `... : ...`.
        either = f'[ "$OMPI_COMM_WORLD_RANK" = 0 ] && exec {shlex.join(one)}; exec {shlex.join(other)}'
        done = subprocess.run([*MPIRUN, "-np", "2", "sh", "-c", either],
                              capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 5, done.stderr)
        lines = [l for l in done.stderr.splitlines() if l.startswith("tessera: error: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        for words in ("rank 1", *expected):
            self.assertIn(words, lines[0])
        self.assertLess(time.monotonic() - begin, 40)  # the usual deadline is 60
        self.assertEqual(list(self.folder.glob("*.safetensors")), [])

    def image(self, model=MODEL, before=(), **changed):
        options = {**IMAGE, **{"--" + k.replace("_", "-"): v for k, v in changed.items()}}
        out = str(self.folder / "out.safetensors")
        return [*before, PROGRAM, "generate", str(model), *words(options), "--latents-only",
                "--threads", "1", "--progress", "none", "--save-latents", out]

    def test_requests(self):
        for name, value in (("seed", "6"), ("steps", "4"), ("class", "2"), ("guidance", "3"),
                            ("dtype", "f32"), ("plan", "data=2")):
            self.ends(self.image(), self.image(**{name: value}), "--" + name)

    def test_instruction_sets(self):
        self.ends(self.image(before=("env", "TESSERA_ISA=avx2")),
                  self.image(before=("env", "TESSERA_ISA=reference")),
                  "instruction set", "'reference'", "'avx2'")

    def test_units(self):
        if "avx512_bf16" not in pathlib.Path("/proc/cpuinfo").read_text():
            self.skipTest("this CPU has one unit for products: no AVX512_BF16")
        self.ends(self.image(before=("env", "TESSERA_UNIT=dot")), self.image(before=("env", "TESSERA_UNIT=fma")),
                  "unit", "'fma'", "'dot'", "TESSERA_UNIT=fma")

    def test_weights_and_configurations(self):
        other = self.folder / "other"
        shutil.copytree(MODEL, other)
        weights = next(p for p in other.rglob("*.safetensors") if "vae" not in p.parts)
        data = bytearray(weights.read_bytes())
        data[-2] ^= 1
        weights.write_bytes(data)
        self.ends(self.image(), self.image(other), "weights", weights.name)

    def test_texts(self):
        def text(**changed):
            options = {**TEXT, **{"--" + k.replace("_", "-"): v for k, v in changed.items()}}
            return [PROGRAM, "complete", str(TEXT_MODEL), *words(options), "--threads", "1"]
        self.ends(text(), text(prompt_ids="5,18"), "--prompt-ids")
        self.ends(text(), text(select="topk:1"), "--select")

    def test_commands(self):
        text = [PROGRAM, "complete", str(TEXT_MODEL), *words(TEXT), "--threads", "1"]
        self.ends(self.image(), text, "command")


if __name__ == "__main__":
    unittest.main()
