#!/usr/bin/env python3
"""What stands inside an image: its parameters, in the form that other programs read, and always UTF-8."""

import os
import re
import struct
import unittest

from program import SHAPES, ProgramTest

SCENE = "a red circle left of a blue square"
QUICK = ("--steps", "2", "--seed", "7", "--guidance", "2.5")


def png_texts(path):
    raw, at, texts = path.read_bytes(), 8, {}
    while at < len(raw):
        length, kind = struct.unpack(">I4s", raw[at:at + 8])
        body = raw[at + 8:at + 8 + length]
        if kind == b"tEXt":
            key, value = body.split(b"\0", 1)
            texts[key.decode()] = value.decode("latin-1")
        elif kind == b"iTXt":
            key, rest = body.split(b"\0", 1)
            texts[key.decode()] = rest[4:].decode("utf-8")
        at += 12 + length
    return texts


def user_comment(raw):
    """Of the Exif data: the text behind its mark, UTF-16 from the most significant byte."""
    at = raw.index(b"UNICODE\0") + 8
    length = struct.unpack(">I", raw[raw.index(b"\x92\x86\x00\x07") + 4:][:4])[0] - 8
    return raw[at:at + length].decode("utf-16-be")


def parsed(text):
    """As other programs do it: the last line is `Name: value, ...`, above it prompt and negative prompt."""
    *lines, last = text.split("\n")
    split = next((i for i, line in enumerate(lines) if line.startswith("Negative prompt: ")), len(lines))
    fields = re.findall(r'(\w[\w ]*): ("(?:\\.|[^"\\])*"|[^,]*)(?:, |$)', last)
    negative = "\n".join(lines[split:]).removeprefix("Negative prompt: ")
    return "\n".join(lines[:split]), negative, dict(fields)


class Parameters(ProgramTest):
    def make(self, name, *arguments):
        done = self.run_here("generate", "scenes", *QUICK, "-o", name, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.folder / name

    def test_every_field(self):
        path = self.make("a.png", "--prompt", SCENE, "--negative-prompt", "a green star\na black cross")
        prompt, negative, fields = parsed(png_texts(path)["parameters"])
        self.assertEqual((prompt, negative), (SCENE, "a green star\na black cross"))
        self.assertEqual(fields, {"Steps": "2", "Sampler": "FlowMatchEulerDiscreteScheduler", "CFG scale": "2.5",
                                  "Seed": "7", "Size": "128x128", "Model": "scenes",
                                  "Version": fields["Version"]})
        self.assertRegex(fields["Version"], r"Tessera \d+\.\d+\.\d+")

    def test_classes_and_places_in_a_batch(self):
        done = self.run_here("generate", "shapes", "--class", "red circle,3", *QUICK, "-o", "p/")
        self.assertEqual(done.returncode, 0, done.stderr)
        prompt, _, fields = parsed(png_texts(self.folder / "p/0001.png")["parameters"])
        self.assertEqual((fields["Batch size"], fields["Batch pos"], fields["Sampler"]),
                         ("2", "1", "rectified-flow"))
        self.assertEqual(parsed(png_texts(self.folder / "p/0000.png")["parameters"])[0], "red circle")

    def test_a_model_whose_name_would_end_early(self):
        (self.folder / 'a, "b"').symlink_to(SHAPES)
        self.run_here("generate", 'a, "b"', "--class", "1", "--steps", "1", "-o", "a.png")
        fields = parsed(png_texts(self.folder / "a.png")["parameters"])[2]
        self.assertEqual(fields["Model"], r'"a, \"b\""')
        self.assertIn("Version", fields)

    def test_jpeg_and_webp(self):
        for name in ("a.jpg", "a.jpeg", "A.JPG", "a.webp"):
            raw = self.make(name, "--prompt", SCENE).read_bytes()
            prompt, _, fields = parsed(user_comment(raw))
            self.assertEqual((prompt, fields["Seed"]), (SCENE, "7"), name)
            if name.lower().endswith("g"):
                self.assertEqual((raw[:3], raw[-2:]), (b"\xff\xd8\xff", b"\xff\xd9"))

    def test_what_is_no_utf8_reaches_no_file(self):
        latin = os.fsdecode(b"a red circle \xe8")
        shown = "a red circle \N{REPLACEMENT CHARACTER}"
        model = os.fsdecode(os.fsencode(self.folder) + b"/m\xe8")
        os.symlink(SHAPES, model)
        path = self.make("a.png", "--prompt", latin, "--negative-prompt", latin, "--report", "r.json")
        self.assertEqual(parsed(png_texts(path)["parameters"])[:2], (shown, shown))
        (self.folder / "r.json").read_bytes().decode("utf-8")
        for name in ("a.jpg", "a.webp"):
            raw = self.make(name, "--prompt", latin).read_bytes()
            self.assertEqual(parsed(user_comment(raw))[0], shown)
            self.assertNotIn(b"circle \xe8", raw)
        done = self.run_here("generate", model, "--class", "1", "--steps", "1", "-o", "b.png", "--report", "b.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("m\N{REPLACEMENT CHARACTER}", parsed(png_texts(self.folder / "b.png")["parameters"])[2]["Model"])
        (self.folder / "b.json").read_bytes().decode("utf-8")


if __name__ == "__main__":
    unittest.main()
