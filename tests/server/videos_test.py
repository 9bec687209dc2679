#!/usr/bin/env python3
"""Videos have the frame rate of their model, whoever writes them: the server, the command line, its previews."""

import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from serving import PROGRAM, SOURCE, Server, main

sys.path.insert(0, str(SOURCE / "tests/cli"))
from program import read_safetensors, write_safetensors  # noqa: E402

SMALL = {"width": 48, "height": 32, "frames": 9, "steps": 2}


def cogvideox_15(folder):
    """The small CogVideoX-2b, its patches made as deep as those of CogVideoX1.5, of 16 frames a second."""
    shutil.copytree(SOURCE / "tests/data/diffusers/cogvideox_2b/model", folder)
    transformer = folder / "transformer"
    for file in transformer.iterdir():
        file.chmod(0o644)
    transformer.chmod(0o755)
    config = json.loads((transformer / "config.json").read_text())
    config |= {"patch_size_t": 2, "patch_bias": False, "use_rotary_positional_embeddings": True}
    (transformer / "config.json").write_text(json.dumps(config))
    path = transformer / "diffusion_pytorch_model.safetensors"
    tensors, _ = read_safetensors(path)
    for name, shape in (("patch_embed.proj.weight", [64, 128]), ("proj_out.weight", [128, 64]), ("proj_out.bias", [128])):
        tensors[name] = (tensors[name][0], shape, tensors[name][2] * 2)
    path.unlink()
    write_safetensors(path, tensors)


def rate_of(raw):
    """Frames a second of an MP4 file: its media's clock by the length of a frame."""
    (clock,), (length,) = (struct.unpack(">I", raw[at + 16:at + 20]) for at in (raw.index(b"mdhd"), raw.index(b"stts")))
    return clock / length


class FrameRates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        cls.model = cls.folder / "newer"
        cogvideox_15(cls.model)

    def test_the_server(self):
        server = Server(models=(str(self.model), str(SOURCE / "tests/data/diffusers/cogvideox_2b/model")))
        self.addCleanup(server.close)
        for model, rate in (("newer", 16), ("model", 8)):
            job = server.wait(server.submit({"prompt": "waves", **SMALL}, model, previews=1))
            self.assertEqual(job["state"], "done", job)
            self.assertEqual(rate_of(server.get(job["results"][0]["url"]).body), rate)

    def test_the_command_line(self):
        for more, rate in (((), 16), (("--fps", "24"), 24)):
            done = subprocess.run([PROGRAM, "generate", str(self.model), "--prompt", "waves", *(f"--{name}={value}" for name, value in SMALL.items()),
                                   "--preview", "p.mp4", "-o", "v.mp4", *more], cwd=self.folder, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            for name in ("v.mp4", "p.mp4"):
                self.assertEqual(rate_of((self.folder / name).read_bytes()), rate, name)


if __name__ == "__main__":
    main()
