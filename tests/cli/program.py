"""Runs the program as a user does: what it prints, how it ends, what it leaves behind."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE") or pathlib.Path(__file__).parents[2])
PROGRAM = os.environ.get("TESSERA_PROGRAM") or str(SOURCE / "build/release/tessera")
DATA = SOURCE / "tests/data"
SHAPES = SOURCE / "models/shapes"


def run(*arguments, **options):
    """The finished process, its output as text."""
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True,
                          timeout=120, **options)


def read_safetensors(path):
    """({name: (dtype, shape, bytes)}, metadata) of a file."""
    raw = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__", {})
    data = raw[8 + length:]
    return {name: (e["dtype"], e["shape"], data[e["data_offsets"][0]:e["data_offsets"][1]])
            for name, e in header.items()}, metadata


def write_safetensors(path, tensors):
    """Writes {name: (dtype, shape, bytes)}."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text +
                                   b"".join(data for _, _, data in tensors.values()))


class ProgramTest(unittest.TestCase):
    """Each test has a scratch folder, and runs the program in it."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def run_here(self, *arguments, **options):
        return run(*arguments, cwd=self.folder, **options)

    def refused(self, status, *arguments, says=(), leaves=None, **options):
        """The run ends with `status`, one line that says all of `says`, and no new file."""
        before = sorted(self.folder.rglob("*"))
        done = self.run_here(*arguments, **options)
        shown = f"{arguments}: {done.returncode}\n{done.stderr}{done.stdout}"
        self.assertEqual(done.returncode, status, shown)
        lines = [line for line in done.stderr.splitlines() if line.startswith("tessera: error: ")]
        self.assertEqual(len(lines), 1, shown)
        self.assertEqual(done.stderr.splitlines()[-1], lines[0], shown)
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, lines[0], shown)
        if leaves is None:
            self.assertEqual(sorted(self.folder.rglob("*")), before, shown)
        return lines[0]

    def copy_model(self, name="model", source=DATA / "moe/dit_moe_flash/model"):
        folder = self.folder / name
        shutil.copytree(source, folder)
        return folder

    def change_json(self, path, **changes):
        content = json.loads(path.read_text())
        for key, value in changes.items():
            content.pop(key, None)
            if value is not None:
                content[key] = value
        path.write_text(json.dumps(content))
