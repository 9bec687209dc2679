#!/usr/bin/env python3
"""Files in place of a folder's weights: --transformer, --text-encoder, --vae."""

import json
import pathlib
import shutil
import struct
import unittest

from program import DATA, ProgramTest, read_safetensors, write_safetensors

VIDEO = DATA / "diffusers/cogvideox_2b/model"
RUN = ("--prompt", "waves", "--width", "48", "--height", "32", "--frames", "9", "--steps", "2", "--seed", "3")


def gguf(tensors, **keys):
    """The bytes of a GGUF file with tensors {name: (dtype, shape, bytes)} and text keys."""
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    numbers = {"F32": 0, "F16": 1, "BF16": 30, "Q4_0": 2}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, value in keys.items():
        head += text(name.replace("__", ".")) + struct.pack("<I", 8) + text(value)
    data = b""
    for name, (dtype, shape, values) in tensors.items():
        sizes = shape[::-1] or [1]
        head += text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, numbers[dtype], len(data))
        data += values + bytes(-len(values) % 32)
    return head + bytes(-len(head) % 32) + data


def weights(part):
    (file,) = (VIDEO / part).glob("*.safetensors")
    return read_safetensors(file)[0]


def pixels_of(png):
    """The compressed pixels of an image; its parameters name the model."""
    parts, at = b"", 8
    while at < len(png):
        size, kind = int.from_bytes(png[at:at + 4], "big"), png[at + 4:at + 8]
        parts += png[at + 8:at + 8 + size] if kind == b"IDAT" else b""
        at += 12 + size
    assert parts
    return parts


class WeightFiles(ProgramTest):
    def setUp(self):
        super().setUp()
        self.bare = self.folder / "bare"  # without a weight
        shutil.copytree(VIDEO, self.bare, ignore=shutil.ignore_patterns("*.safetensors"))

    def latents(self, model, *words):
        out = self.folder / "out.safetensors"
        done = self.run_here("generate", model, *RUN, *words, "--latents-only", "--save-latents", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        return read_safetensors(out)[0]["latents"]

    def test_blocks_stay_in_few_bits_or_give_the_file_exactly(self):
        tensors = weights("transformer")
        name = next(n for n, (_, shape, _) in tensors.items()
                    if n.startswith("transformer_blocks.0.ff.") and len(shape) == 2 and shape[1] % 32 == 0)
        rows, columns = tensors[name][1]
        tensors[name] = ("Q4_0", [rows, columns], (b"\x00\x20" + bytes(range(16))) * (rows * columns // 32))
        (self.folder / "t.gguf").write_bytes(gguf(tensors))
        ask = ("--transformer", "t.gguf")
        exact = self.latents(VIDEO, *ask, "--exact-quants")
        self.assertNotEqual(self.latents(VIDEO, *ask), exact)
        self.assertEqual(self.latents(VIDEO, *ask, "--dtype", "f32", "--exact-quants"),
                         self.latents(VIDEO, *ask, "--dtype", "f32"))
        done = self.run_here("generate", VIDEO, *RUN, "--exact-quants", "--latents-only", "--save-latents", "x")
        self.assertEqual(done.returncode, 2)
        self.assertIn("has no GGUF file in blocks", done.stderr)

    def test_files_give_the_bits_of_the_folder(self):
        write_safetensors(self.folder / "t.safetensors",
                          {"model.diffusion_model." + name: t for name, t in weights("transformer").items()})
        (self.folder / "t5.gguf").write_bytes(gguf(weights("text_encoder"), general__architecture="t5encoder"))
        write_safetensors(self.folder / "vae.safetensors",
                          {"first_stage_model." + name: t for name, t in weights("vae").items()})
        files = ("--transformer", "t.safetensors", "--text-encoder", "t5.gguf", "--vae", "vae.safetensors")
        expected = self.latents(VIDEO)
        self.assertEqual(self.latents(self.bare, *files), expected)
        self.assertEqual(self.latents(VIDEO, *files[:2]), expected)
        self.assertEqual(self.latents(self.bare, *files, "--ranks", "2", "--plan", "cfg=2"), expected)
        images = {}
        for model, words in ((VIDEO, ()), (self.bare, files)):
            done = self.run_here("generate", model, *RUN, *words, "-o", "frames/")
            self.assertEqual(done.returncode, 0, done.stderr)
            images[model] = [pixels_of((self.folder / "frames" / pathlib.Path(name).name).read_bytes())
                             for name in done.stdout.split()]
            shutil.rmtree(self.folder / "frames")
        self.assertEqual(len(images[VIDEO]), 9)
        self.assertEqual(images[VIDEO], images[self.bare])

    def test_inspect_names_file_and_types(self):
        (self.folder / "t.gguf").write_bytes(gguf(weights("transformer")))
        done = self.run_here("inspect", self.bare, "--transformer", "t.gguf", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        parts = {part["name"]: part for part in json.loads(done.stdout)["components"]}
        self.assertTrue(parts["transformer"]["path"].endswith("t.gguf"))
        self.assertRegex(json.dumps(parts["transformer"]), r"stored as.*(F32|BF16|F16) \d+")

    def test_refusals(self):
        (self.folder / "t.gguf").write_bytes(gguf(weights("transformer")))
        (self.folder / "half.gguf").write_bytes((self.folder / "t.gguf").read_bytes()[:-64])
        save = (*RUN, "--latents-only", "--save-latents", "out.safetensors")
        ask = ("generate", VIDEO, *save)
        self.refused(3, *ask, "--transformer", "half.gguf", says=["half.gguf", "no more and no rest"])
        self.refused(3, *ask, "--transformer", "none.gguf", says="none.gguf")
        self.refused(3, "generate", self.bare, *save, "--transformer", self.bare / "model_index.json",
                     says="model_index.json")
        self.refused(2, *ask, "--text-encoder", "t.gguf", says=["holds none of", "text_encoder (T5EncoderModel)"])
        few = dict(list(weights("transformer").items())[:4])
        (self.folder / "few.gguf").write_bytes(gguf(few))
        self.refused(3, *ask, "--transformer", "few.gguf", says=["few.gguf", "missing"])
        self.refused(2, "generate", VIDEO, *RUN, "--transformer", "t.gguf", "--latents-only", "--save-latents",
                     "t.gguf", "--overwrite", says="t.gguf")
        self.refused(2, "serve", VIDEO, "shapes", "--transformer", "t.gguf", says="for one model")
        self.refused(3, "generate", "t.gguf", *save, says=["GGUF", "--transformer"])


if __name__ == "__main__":
    unittest.main()
