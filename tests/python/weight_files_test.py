"""Files in place of a folder's weights."""

import shutil

import numpy as np
import pytest
import tessera
from conftest import DATA

VIDEO = DATA / "diffusers/cogvideox_2b/model"
ASK = {"prompt": "waves", "width": 48, "height": 32, "num_frames": 9, "num_inference_steps": 1, "output_type": "latent"}


def test_files_give_the_latents_of_the_folder(tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(VIDEO, bare, ignore=shutil.ignore_patterns("*.safetensors"))
    expected = tessera.Pipeline.from_pretrained(VIDEO)(**ASK).frames
    pipe = tessera.Pipeline.from_pretrained(
        bare, transformer=VIDEO / "transformer/diffusion_pytorch_model.safetensors",
        text_encoder=[VIDEO / "text_encoder/model.safetensors"], vae=VIDEO / "vae/diffusion_pytorch_model.safetensors")
    assert np.array_equal(np.asarray(pipe(**ASK).frames), np.asarray(expected))


def test_a_file_for_nothing_is_refused():
    with pytest.raises(tessera.UsageError, match="holds none of"):
        tessera.Pipeline.from_pretrained(VIDEO, text_encoder=VIDEO / "vae/diffusion_pytorch_model.safetensors")
    with pytest.raises(tessera.ModelError, match="nothing.gguf"):
        tessera.Pipeline.from_pretrained(VIDEO, transformer="nothing.gguf")


def test_rules_choose_the_form_of_products(tmp_path):
    plain = np.asarray(tessera.Pipeline.from_pretrained(VIDEO)(**ASK).frames)
    made = tessera.Pipeline.from_pretrained(VIDEO, quantise_rules={"attn": "int8", "mlp": "int4"})(**ASK)
    assert set(made.report["products"]["transformer"]) == {"int8", "int4"}
    same = tessera.Pipeline.from_pretrained(VIDEO, quantise_rules="attn=int8,mlp=int4")(**ASK)
    assert np.array_equal(np.asarray(made.frames), np.asarray(same.frames))
    assert not np.array_equal(np.asarray(made.frames), plain)
    for dtype in ("int8", "int4"):
        report = tessera.Pipeline.from_pretrained(VIDEO, dtype=dtype)(**ASK).report
        assert set(report["products"]["transformer"]) == {"int8", dtype}, "modulations of int4 are in int8"
    with pytest.raises(tessera.UsageError, match="no rule"):
        tessera.Pipeline.from_pretrained(VIDEO, quantise_rules="attn")
    with pytest.raises(tessera.UsageError, match="no GGUF file"):
        tessera.Pipeline.from_pretrained(VIDEO, exact_quants=True)
