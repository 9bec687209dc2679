"""Files of a run: no output takes the place of an input or of a model's file."""

import os
import shutil

import pytest
import tessera
from conftest import SOURCE

REQUEST = {"class_labels": 1, "num_inference_steps": 1, "output_type": "latent"}


@pytest.fixture
def model(tmp_path):
    shutil.copytree(SOURCE / "models/shapes", tmp_path / "model")
    return tmp_path / "model"


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_trace_is_no_file_of_the_model(model, tmp_path):
    pipe = tessera.Pipeline.from_pretrained(model)
    before = contents(tmp_path)
    link, twin = tmp_path / "link", tmp_path / "twin"
    for file in [path for path in model.rglob("*") if path.is_file()]:
        link.symlink_to(file)
        os.link(file, twin)
        for name in (file, link, twin):
            for overwrite in (False, True):
                with pytest.raises(tessera.UsageError, match="^trace '.*' lies in the model's own folder"):
                    pipe(**REQUEST, trace=str(name), overwrite=overwrite)
        link.unlink()
        twin.unlink()
    with pytest.raises(tessera.UsageError, match="own folder"):
        pipe(**REQUEST, trace=str(model / "new"))
    assert contents(tmp_path) == before


def test_a_trace_replaces_traces_alone(model, tmp_path):
    pipe = tessera.Pipeline.from_pretrained(model)
    mine = tmp_path / "mine"
    mine.write_text("mine")
    with pytest.raises(tessera.UsageError, match="no trace that Tessera wrote.* give overwrite to replace it"):
        pipe(**REQUEST, trace=str(mine))
    assert mine.read_text() == "mine"
    pipe(**REQUEST, trace=str(mine), overwrite=True)
    pipe(**REQUEST, trace=str(mine))
    with pytest.raises(TypeError, match="^overwrite='x'"):
        pipe(**REQUEST, trace=str(mine), overwrite="x")
