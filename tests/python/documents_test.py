"""The examples of the guide and of the package run, and are typed; the stubs say what is there."""

import ast
import contextlib
import doctest
import io
import json
import re
import subprocess
import sys

import pytest
import tessera
from conftest import DATA, SOURCE

PACKAGE = SOURCE / "python/tessera"
ADAPTER = DATA / "features/lora/adapters/scenes.safetensors"
BLOCKS = re.findall(r"(?ms)^```python\n(.*?)^```", (SOURCE / "docs/guides/python.md").read_text())
PRINTED = """2 (128, 128) 8
True cfg=2,ulysses=2
1
stopped: 130
ehllo
['ehllo', 'enots'] end
ehll|o|(1, 3, 128, 128) float32
class_labels 'red circel': no such class; did you mean 'red circle'; an inspection lists all 32
"""


def mypy(*arguments):
    pytest.importorskip("mypy", reason="mypy is not installed")
    return subprocess.run([sys.executable, "-m", *arguments], cwd=SOURCE, text=True,
                          capture_output=True, timeout=300)


def test_the_guide(tmp_path, monkeypatch):
    pytest.importorskip("PIL", reason="Pillow is not installed")
    monkeypatch.chdir(tmp_path)
    printed, names = io.StringIO(), {"__name__": "guide", "ADAPTER": ADAPTER}
    with contextlib.redirect_stdout(printed):
        for block in BLOCKS:
            exec(compile(block, "docs/guides/python.md", "exec"), names)
    assert printed.getvalue() == PRINTED
    assert (tmp_path / "circle.png").stat().st_size > 1000
    assert (tmp_path / "step.png").stat().st_size > 1000


def test_the_notebook():
    names = {}
    cells = json.loads((SOURCE / "examples/tessera.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    for i, cell in enumerate(code):
        exec(compile(cell, f"tessera.ipynb:{i}", "exec"), names)
    assert len(code) == 4


@pytest.mark.parametrize("module", ["pipeline", "language"])
def test_examples_in_docstrings(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(sys.modules[f"tessera.{module}"],
                            extraglobs={"Pipeline": tessera.Pipeline})
    assert found.attempted > 0 and found.failed == 0


def test_types(tmp_path):
    guide = tmp_path / "guide.py"
    guide.write_text('ADAPTER = "adapter.safetensors"\n' + "".join(BLOCKS))
    done = mypy("mypy", "--strict", f"--cache-dir={tmp_path}/cache", str(PACKAGE))
    assert done.returncode == 0, done.stdout + done.stderr
    # The guide's callback has no annotations, which strict asks for.
    done = mypy("mypy", "--strict", "--allow-untyped-defs", "--allow-untyped-calls",
                f"--cache-dir={tmp_path}/cache", str(guide), str(PACKAGE))
    assert done.returncode == 0, done.stdout + done.stderr


def test_stubs_say_what_is_there():
    stub = ast.parse((PACKAGE / "_core.pyi").read_text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    assert set(classes) == {name for name, thing in vars(tessera._core).items()
                            if isinstance(thing, type)}
    for name, node in classes.items():
        written = {getattr(part, "name", None) or part.target.id for part in node.body
                   if isinstance(part, (ast.FunctionDef, ast.AnnAssign))}
        there = {member for member in vars(getattr(tessera._core, name))
                 if not member.startswith("_")}
        assert written - {"__init__"} == there, name


def test_what_is_public_is_documented():
    for name in tessera.__all__:
        thing = getattr(tessera, name)
        assert name in ("__version__", "CancelToken") or thing.__doc__, name
        if isinstance(thing, type) and thing.__module__.startswith("tessera."):
            for member, value in vars(thing).items():
                if callable(value) and not member.startswith("_"):
                    assert value.__doc__ or name == "CancelToken", f"{name}.{member}"


def test_the_version_is_the_program_s():
    assert f'"{tessera.__version__}"' in (SOURCE / "include/tessera/version.h").read_text()
