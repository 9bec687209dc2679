"""What the tests of the Python module share."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE") or pathlib.Path(__file__).parents[2])
PROGRAM = os.environ.get("TESSERA_PROGRAM") or str(SOURCE / "build/release/tessera")
DATA = SOURCE / "tests/data"
DTYPES = {"F32": np.float32, "F16": np.float16, "I32": np.int32, "I64": np.int64, "U8": np.uint8}


def read_safetensors(path):
    """{name: array} of a file."""
    raw = pathlib.Path(path).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(raw[8 + size + e["data_offsets"][0]:8 + size + e["data_offsets"][1]],
                                DTYPES[e["dtype"]]).reshape(e["shape"]) for name, e in header.items()}


def program(*arguments):
    """Standard output of the command line program, which ends well."""
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def python(code, **variables):
    """Standard output of a Python process that ends well."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def latents_of(tmp_path):
    """The latents that the command line saves for a request."""
    def run(model, *arguments):
        path = tmp_path / "latents.safetensors"
        program("generate", model, *arguments, "--latents-only", "--save-latents", path)
        return read_safetensors(path)["latents"]
    return run
