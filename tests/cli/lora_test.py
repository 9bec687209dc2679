#!/usr/bin/env python3
"""Adapters at the command line: strengths, plans, merging, quantised weights, refusals."""

import array
import unittest

from program import DATA, ProgramTest, read_safetensors, write_safetensors

ADAPTER = DATA / "features/lora/adapters/scenes.safetensors"
FLUX = DATA / "diffusers/flux_dev"
RUN = ("generate", "scenes", "--prompt", "a red circle left of a blue square", "--steps", 3, "--latents-only",
       "--threads", 2)


def floats(tensor):
    dtype, shape, data = tensor
    assert dtype == "F32", dtype
    return array.array("f", bytes(data))


def error(a, b):
    """|a - b| / |b|, L2."""
    return (sum((x - y) ** 2 for x, y in zip(a, b)) / sum(y * y for y in b)) ** 0.5


class Lora(ProgramTest):
    def latents(self, *words, notes=None):
        done = self.run_here(*RUN, "--save-latents", "l.safetensors", "--overwrite", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        if notes:
            self.assertIn(notes, done.stderr)
        return floats(read_safetensors(self.folder / "l.safetensors")[0]["latents"])

    def test_strength(self):
        plain = self.latents()
        self.assertEqual(self.latents("--lora", f"{ADAPTER}:0"), plain)
        one = self.latents("--lora", ADAPTER, notes="changes 12 layers at strength 1")
        self.assertNotEqual(one, plain)
        self.assertEqual(self.latents("--lora", f"{ADAPTER}:1"), one)
        half = self.latents("--lora", f"{ADAPTER}:0.5", "--dtype", "f32")
        self.assertLess(error(self.latents("--lora", f"{ADAPTER}:0.7", "--lora", f"{ADAPTER}:-0.2", "--dtype", "f32"), half), 1e-5)

    def test_plans_give_the_bits_of_one_rank(self):
        lora = ("--lora", f"{ADAPTER}:0.8")
        alone = self.latents(*lora)
        for plan in ("cfg=2", "ulysses=2", "ulysses=4", "cfg=2,ulysses=2", "shard=2", "shard=4", "ulysses=2,shard=2",
                     "pipefusion=2,patches=2,warmup=3", "pipefusion=4,patches=4,warmup=3"):
            self.assertEqual(self.latents(*lora, "--plan", plan), alone, plan)
        exact = self.latents(*lora, "--dtype", "f32")
        for plan in ("tensor=2", "tensor=4", "tensor=2,cfg=2"):
            self.assertLess(error(self.latents(*lora, "--dtype", "f32", "--plan", plan), exact), 1e-4, plan)

    def test_streamed_blocks(self):
        lora = ("--lora", f"{ADAPTER}:0.8")
        self.assertEqual(self.latents(*lora, "--memory-budget", "9MB"), self.latents(*lora))

    def test_merging(self):
        beside = self.latents("--lora", ADAPTER, "--dtype", "f32")
        merged = self.latents("--lora", ADAPTER, "--merge-lora", "--dtype", "f32")
        self.assertLess(error(merged, beside), 1e-4)
        self.assertEqual(self.latents("--lora", ADAPTER, "--merge-lora", "--plan", "shard=2"),
                         self.latents("--lora", ADAPTER, "--merge-lora"))
        self.refused(2, *RUN, "--merge-lora", "--save-latents", "x.safetensors", says="--merge-lora")
        self.refused(2, *RUN, "--lora", ADAPTER, "--merge-lora", "--dtype", "int8", "--save-latents", "x.safetensors",
                     says="--merge-lora")

    def forward(self, *words):
        done = self.run_here("forward", FLUX / "model", "--component", "transformer", "--inputs", "in.safetensors",
                             "--outputs", "out.safetensors", "--overwrite", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return floats(read_safetensors(self.folder / "out.safetensors")[0]["out"])

    def test_quantised_weights_keep_the_effect(self):
        given, _ = read_safetensors(FLUX / "io_transformer.safetensors")
        write_safetensors(self.folder / "in.safetensors",
                          {name.removeprefix("fwd0.in."): x for name, x in given.items() if name.startswith("fwd0.in.")})
        lora = DATA / "features/lora/adapters/flux_kohya_rest.safetensors"
        def changes(dtype):
            plain = self.forward("--dtype", dtype)
            return [[x - y for x, y in zip(self.forward("--dtype", dtype, "--lora", f"{lora}:{s}"), plain)]
                    for s in (0.1, 0.2, 0.3)]

        wanted = changes("f32")
        for dtype in ("int8", "int4"):
            made = changes(dtype)
            small, middle, large = (sum(x * x for x in change) ** 0.5 for change in made)
            self.assertAlmostEqual((small + large) / 2 / middle, 1, delta=0.05, msg=f"{dtype}: linear in the strength")
            self.assertLess(error(made[2], wanted[2]), 0.2, dtype)

    def test_refusals(self):
        out = ("--save-latents", "x.safetensors")
        self.refused(3, *RUN, "--lora", DATA / "features/lora/adapters/flux_xlabs.safetensors", *out,
                     says=["flux_xlabs", "FLUX"])
        self.refused(2, *RUN, "--lora", f"{ADAPTER}:much", *out, says="FILE:STRENGTH")
        self.refused(2, *RUN, "--lora", f"{ADAPTER}:1e9", *out, says="strength")
        tensors, _ = read_safetensors(ADAPTER)
        name = next(iter(tensors))
        del tensors[name]
        write_safetensors(self.folder / "half.safetensors", tensors)
        self.refused(3, *RUN, "--lora", "half.safetensors", *out, says=["half.safetensors", name.rpartition(".lora_")[0]])
        self.refused(2, "forward", "scenes", "--component", "vae.decode", "--inputs", ADAPTER, "--outputs", "x.safetensors",
                     "--lora", ADAPTER, says="--lora")


if __name__ == "__main__":
    unittest.main()
