#!/usr/bin/env python3
"""Converts checkpoints made here byte by byte, as torch.save writes them, and damaged ones."""

import collections
import io
import json
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import tempfile
import types
import unittest
import zipfile

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE") or pathlib.Path(__file__).parents[2])
TOOL = SOURCE / "tools/convert_dit_moe.py"
MODELS = {name: SOURCE / "tests/data/moe" / name / "model" for name in ("dit_moe_flash", "dit_moe_timm")}
KINDS = {"F32": "FloatStorage", "BF16": "BFloat16Storage", "F64": "DoubleStorage", "I64": "LongStorage"}
WIDTHS = {"F32": 4, "BF16": 2, "F64": 8, "I64": 8}


def fake_torch():
    """Modules with the names that a pickle of PyTorch refers to."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    def _rebuild_tensor_v2(*_):
        pass

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    for name in KINDS.values():
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    sys.modules.update({"torch": torch, "torch._utils": utils})
    return torch, _rebuild_tensor_v2


TORCH, REBUILD = fake_torch()


class Ref:
    """A tensor on its way into a pickle."""

    def __init__(self, dtype, shape, data, stride=None, offset=0):
        self.dtype, self.shape, self.data, self.offset = dtype, tuple(shape), data, offset
        self.stride = stride or tuple(
            product_of(shape[i + 1:]) for i in range(len(shape)))

    def __reduce__(self):
        return REBUILD, (StorageRef(self), self.offset, self.shape, self.stride, False,
                         collections.OrderedDict())


def product_of(sizes):
    product = 1
    for size in sizes:
        product *= size
    return product


class StorageRef:
    def __init__(self, tensor):
        self.tensor = tensor


class Pickler(pickle.Pickler):
    def __init__(self, file):
        super().__init__(file, protocol=2)
        self.storages = []

    def persistent_id(self, value):
        if not isinstance(value, StorageRef):
            return None
        tensor = value.tensor
        self.storages.append(tensor.data)
        return ("storage", getattr(TORCH, KINDS[tensor.dtype]), str(len(self.storages) - 1), "cpu",
                len(tensor.data) // WIDTHS[tensor.dtype])


def save(path, content, prefix="archive/", leave_out=()):
    """What torch.save does."""
    text = io.BytesIO()
    pickler = Pickler(text)
    pickler.dump(content)
    with zipfile.ZipFile(path, "w") as out:
        out.writestr(prefix + "data.pkl", text.getvalue())
        out.writestr(prefix + "byteorder", "little")
        for i, data in enumerate(pickler.storages):
            if i not in leave_out:
                out.writestr(f"{prefix}data/{i}", data)
        out.writestr(prefix + "version", "3\n")


def read_safetensors(path):
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (e["dtype"], e["shape"], raw[8 + length:][slice(*e["data_offsets"])])
            for name, e in header.items()}


def state_of(model):
    return collections.OrderedDict((name, Ref(*entry)) for name, entry in
                                   read_safetensors(MODELS[model] / "model.safetensors").items())


class ConvertTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def convert(self, *more, source="a.pt"):
        return subprocess.run([sys.executable, TOOL, source, "out", *more], cwd=self.folder,
                              capture_output=True, text=True)

    def refused(self, status, *says, more=(), source="a.pt"):
        done = self.convert(*more, source=source)
        shown = done.stdout + done.stderr
        self.assertEqual(done.returncode, status, shown)
        self.assertEqual(len(done.stderr.splitlines()), 1, shown)
        self.assertTrue(done.stderr.startswith("convert_dit_moe: error: "), shown)
        for part in says:
            self.assertIn(part, done.stderr)
        out = self.folder / "out"
        self.assertFalse(out.exists() and any(p.name.startswith("model") for p in out.iterdir()))

    def converted(self, model, content, *more):
        save(self.folder / "a.pt", content)
        done = self.convert(*more, "--force")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        config = json.loads((self.folder / "out/config.json").read_text())
        expected = json.loads((MODELS[model] / "config.json").read_text())
        expected.pop("architectures", None)
        self.assertEqual(config, expected)
        self.assertEqual(read_safetensors(self.folder / "out/model.safetensors"),
                         read_safetensors(MODELS[model] / "model.safetensors"))
        self.assertEqual(sorted(p.name for p in (self.folder / "out").iterdir()),
                         ["config.json", "model.safetensors"])


class Converts(ConvertTest):
    def test_the_layouts_of_published_files(self):
        flash = state_of("dit_moe_flash")
        wrong = {name: Ref("F32", [1], b"\0" * 4) for name in flash}
        self.converted("dit_moe_flash", flash)
        self.converted("dit_moe_flash", {"model": wrong, "ema": flash, "train_steps": 7})
        self.converted("dit_moe_flash", {"model": flash, "opt": {"state": {}, "param_groups": [1.5]}})
        self.converted("dit_moe_flash", {"ema": {"module." + k: v for k, v in flash.items()}})
        self.converted("dit_moe_flash", {"ema": wrong, "other": flash}, "--key", "other")
        self.converted("dit_moe_timm", state_of("dit_moe_timm"), "--num-heads", "3")

    def test_training_options_are_passed_over(self):
        import argparse
        self.converted("dit_moe_flash", {"ema": state_of("dit_moe_flash"),
                                         "args": argparse.Namespace(lr=1e-4)})

    def test_views_of_one_storage(self):
        state = state_of("dit_moe_flash")
        name = "t_embedder.mlp.2.weight"
        whole = state[name]
        rows, columns = whole.shape
        turned = b"".join(whole.data[(r * columns + c) * 4:][:4] for c in range(columns) for r in range(rows))
        state[name] = Ref("F32", whole.shape, b"\0" * 8 + turned, stride=(1, rows), offset=2)
        self.converted("dit_moe_flash", state)

    def test_the_program_opens_what_comes_out(self):
        self.converted("dit_moe_flash", state_of("dit_moe_flash"))
        done = subprocess.run([os.environ["TESSERA_PROGRAM"], "inspect", self.folder / "out", "--json"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["components"][0]["facts"]["num_heads"], "2")

    def test_help(self):
        done = subprocess.run([sys.executable, TOOL, "--help"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0)
        self.assertIn("--num-heads", done.stdout)


class Refuses(ConvertTest):
    def test_files(self):
        self.refused(3, "a.pt", "No such file")
        for data, says in [(b"", "no PyTorch checkpoint"), (b"PK\3\4 cut", "cut short"),
                           (b"\x80\x02]q\x00.", "before PyTorch 1.6")]:
            (self.folder / "a.pt").write_bytes(data)
            self.refused(3, "a.pt", says)
        with zipfile.ZipFile(self.folder / "a.pt", "w") as out:
            out.writestr("readme", "x")
        self.refused(3, "data.pkl")

    def test_code(self):
        for call in ((os.system, ("touch made",)), (eval, ("open('made', 'w')",))):
            evil = type("Evil", (), {"__reduce__": lambda self, call=call: call})
            save(self.folder / "a.pt", {"ema": evil()})
            self.refused(3, "could run code")
            self.assertFalse((self.folder / "made").exists())

    def test_contents(self):
        for content, says in [([1], "no dictionary"), ({}, "no state dict"), ({"ema": {"a": 1}}, "more than tensors: a"),
                              ({"w": Ref("F32", [1], b"\0" * 4)}, "no DiT-MoE")]:
            save(self.folder / "a.pt", content)
            self.refused(3, says)
        save(self.folder / "a.pt", {"model": {}})
        self.refused(3, "holds no entry 'best'", "'model'", more=("--key", "best"))

    def test_all_tensors_that_do_not_fit_are_named(self):
        state = state_of("dit_moe_flash")
        del state["final_layer.linear.bias"], state["blocks.1.moe.gate.weight"]
        state["surplus"] = Ref("F32", [1], b"\0" * 4)
        state["x_embedder.proj.bias"] = Ref("F32", [3], b"\0" * 12)
        state["t_embedder.mlp.0.bias"] = Ref("F64", [32], b"\0" * 256)
        save(self.folder / "a.pt", state)
        self.refused(3, "2 missing: final_layer.linear.bias, blocks.1.moe.gate.weight",
                     "1 unknown: surplus", "x_embedder.proj.bias [3], expected [32]",
                     "t_embedder.mlp.0.bias F64")

    def test_heads(self):
        save(self.folder / "a.pt", state_of("dit_moe_timm"))
        self.refused(3, "--num-heads")
        self.refused(3, "no multiple of 5", more=("--num-heads", "5"))
        save(self.folder / "a.pt", state_of("dit_moe_flash"))
        self.refused(3, "has 2 attention heads", more=("--num-heads", "4"))
        self.refused(3, "--num-experts-per-tok 9", more=("--num-experts-per-tok", "9"))

    def test_data(self):
        state = state_of("dit_moe_flash")
        save(self.folder / "a.pt", state, leave_out={3})
        self.refused(3, "lacks the data")
        first = next(iter(state))
        good = state[first]
        state[first] = Ref(good.dtype, good.shape, good.data[:-4])
        save(self.folder / "a.pt", state)
        self.refused(3, "beyond its storage")
        state[first] = good
        save(self.folder / "a.pt", state)
        raw = bytearray((self.folder / "a.pt").read_bytes())
        raw[raw.index(good.data[:64]) + 5] ^= 1
        (self.folder / "a.pt").write_bytes(raw)
        self.refused(3, "damaged")

    def test_outputs(self):
        save(self.folder / "a.pt", state_of("dit_moe_flash"))
        (self.folder / "out").write_text("a file")
        self.refused_output("out")
        (self.folder / "out").unlink()
        (self.folder / "out").mkdir()
        (self.folder / "out/config.json").write_text("{}")
        self.refused(2, "config.json exists", "--force")

    def refused_output(self, name):
        done = self.convert()
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(name, done.stderr)


if __name__ == "__main__":
    unittest.main()
