#!/usr/bin/env python3
"""Hostile configurations and inputs: whatever stands in a file, a run ends soon, with one line at most."""

import json
import math
import random
import subprocess
import unittest

from program import DATA, PROGRAM, SHAPES, ProgramTest, read_safetensors, write_safetensors

VALUES = [0, -1, 3, 2**31, 2**64, 1e300, -0.5, None, "x", [], [1, 2], {}, True]


class Hostile(ProgramTest):
    def survives(self, what, *arguments):
        done = subprocess.run([PROGRAM, *map(str, arguments)], cwd=self.folder, capture_output=True,
                              text=True, timeout=60, errors="replace")
        self.assertIn(done.returncode, (0, 2, 3, 6), f"{what}\n{done.stderr}")
        lines = [line for line in done.stderr.splitlines() if line.startswith("tessera: error: ")]
        self.assertEqual(len(lines), 0 if done.returncode == 0 else 1, f"{what}\n{done.stderr}")
        return done.returncode

    def test_every_field_of_a_configuration(self):
        refused = 0
        for source in (DATA / "moe/dit_moe_flash/model", DATA / "diffusers/pixart_alpha/model/vae",
                       DATA / "diffusers/flux_dev/model/transformer"):
            model = self.copy_model(source.parent.parent.name + source.name, source)
            config = model / "config.json"
            whole = json.loads(config.read_text())
            for key in whole:
                for value in VALUES:
                    config.write_text(json.dumps({**whole, key: value}))
                    refused += self.survives(f"{source}: {key}={value!r}", "inspect", model) != 0
        self.assertGreater(refused, 100)

    def test_inputs_of_any_shape_and_content(self):
        rng = random.Random(7)
        model = DATA / "moe/dit_moe_flash/model"
        io, _ = read_safetensors(DATA / "moe/dit_moe_flash/io.safetensors")
        whole = {k: io["forward.0." + k] for k in "xty"}
        for _ in range(60):
            name = rng.choice("xty")
            dtype, shape, data = whole[name]
            shape = [rng.choice([n, 0, 1, n + 1, 2 * n]) for n in shape]
            size = 4 * math.prod(shape)
            data = bytes(rng.choice([data[i % len(data)], rng.randrange(256), 255]) for i in range(size))
            changed = {**whole, name: (rng.choice(["F32", "I32"]), shape, data)}
            write_safetensors(self.folder / "in.safetensors", changed)
            self.survives(f"{name} {shape}", "forward", model, "--inputs", "in.safetensors",
                          "--outputs", "out.safetensors")

    def test_flipped_bytes_of_headers(self):
        rng = random.Random(7)
        model = self.copy_model(source=SHAPES)
        path = model / "vae/diffusion_pytorch_model.safetensors"
        whole = path.read_bytes()
        length = int.from_bytes(whole[:8], "little")
        for _ in range(60):
            raw = bytearray(whole)
            for _ in range(rng.choice([1, 3])):
                raw[rng.randrange(length + 8)] = rng.randrange(256)
            path.write_bytes(raw)
            self.survives("flipped", "inspect", model)


if __name__ == "__main__":
    unittest.main()
