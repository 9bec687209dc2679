"""One component on arrays."""

import numpy as np
import pytest
import tessera
from conftest import DATA, program, read_safetensors

GOLDEN = DATA / "moe/dit_moe_flash"


def golden():
    """Inputs and result of a pass that was made with PyTorch."""
    tensors = read_safetensors(GOLDEN / "io.safetensors")
    inputs = {name: tensors[f"forward.0.{name}"] for name in ("x", "t", "y")}
    return inputs, tensors["forward.0.out"]


def test_a_golden_pass():
    inputs, wanted = golden()
    made = tessera.forward(GOLDEN / "model", "transformer", inputs, trace=True)
    np.testing.assert_allclose(made["out"], wanted, rtol=1e-4, atol=1e-4)
    assert made["block.0"].dtype == np.float32
    model = tessera.Model.from_pretrained(GOLDEN / "model", dtype="f32")
    np.testing.assert_array_equal(model.forward("transformer", inputs)["out"], made["out"])


def test_the_bits_of_the_command_line(tmp_path):
    golden_layer = DATA / "moe/moe_layer_e8"
    form = "gate=uniform,top_k=2,experts=gelu_tanh,renormalise=1,capacity=33"
    x = read_safetensors(golden_layer / "io.safetensors")["x.129"]
    for plan in ("", "expert=4"):
        made = tessera.forward(golden_layer / "model", "moe_layer", {"x": x}, moe=form, plan=plan)
        (tmp_path / "x.safetensors").write_bytes(safetensors("x", x))
        program("forward", golden_layer / "model", "--component", "moe_layer", "--moe", form,
                "--inputs", tmp_path / "x.safetensors", "--outputs", tmp_path / "out.safetensors")
        wanted = read_safetensors(tmp_path / "out.safetensors")
        assert sorted(made) == sorted(wanted)
        for name, array in wanted.items():
            np.testing.assert_array_equal(made[name], array)


def safetensors(name, array):
    """A file of one float32 tensor."""
    header = (f'{{"{name}":{{"dtype":"F32","shape":{list(array.shape)},'
              f'"data_offsets":[0,{array.nbytes}]}}}}').encode()
    return len(header).to_bytes(8, "little") + header + array.tobytes()


class Lent:
    """An array that counts how often it is lent by DLPack, and cannot be read otherwise."""

    def __init__(self, array):
        self.array, self.times = array, 0

    def __dlpack__(self, **options):
        self.times += 1
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_arrays_that_are_not_dense_or_not_of_numpy():
    inputs, _ = golden()
    model = tessera.Model.from_pretrained(GOLDEN / "model", dtype="f32")
    wanted = model.forward("transformer", inputs)["out"]
    x = inputs["x"]
    spread = np.empty((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)[..., ::2]
    spread[...] = x
    lent = Lent(np.ascontiguousarray(x))
    fixed = x.copy()
    fixed.flags.writeable = False
    for other in (spread, np.asfortranarray(x), lent, fixed):
        made = model.forward("transformer", {**inputs, "x": other})
        np.testing.assert_array_equal(made["out"], wanted)
    assert lent.times > 0
    model.forward("transformer", {**inputs, "x": x.astype(np.float16)})


@pytest.mark.parametrize("x, kind, says", [
    (np.zeros(4), TypeError, "'x': no model takes its dtype"),
    (np.zeros(4, bool), TypeError, "'x'"),
    (np.zeros(4, np.complex64), TypeError, "'x'"),
    (np.array(["text"]), TypeError, "'x'"),
    ([1.0, 2.0], TypeError, "'x' is no array"),
    (None, TypeError, "'x' is no array"),
    (np.zeros((1, 2, 3), np.float32), ValueError, "x")])
def test_wrong_arrays(x, kind, says):
    inputs, _ = golden()
    with pytest.raises(kind, match=says):
        tessera.forward(GOLDEN / "model", "transformer", {**inputs, "x": x})


def test_wrong_requests():
    inputs, _ = golden()
    with pytest.raises(ValueError, match="engine"):
        tessera.forward(GOLDEN / "model", "engine", inputs)
    with pytest.raises(TypeError, match="strings"):
        tessera.forward(GOLDEN / "model", "transformer", {7: inputs["x"]})
    with pytest.raises(ValueError):
        tessera.forward(GOLDEN / "model", "transformer", {})
    with pytest.raises(ValueError):
        tessera.forward(GOLDEN / "model", "vae.decode", inputs)
    with pytest.raises(TypeError):
        tessera.forward(GOLDEN / "model", "transformer", inputs, speed=3)


def test_a_vae_in_tiles():
    model = tessera.Model.from_pretrained("shapes", dtype="f32")
    latents = np.random.default_rng(0).standard_normal((1, 4, 16, 32), np.float32)
    whole = model.forward("vae.decode", {"sample": latents})["out"]
    tiled = model.forward("vae.decode", {"sample": latents}, vae_tiling=64)["out"]
    assert whole.shape == tiled.shape and not np.array_equal(whole, tiled)
    chunked = model.forward("vae.decode", {"sample": latents}, vae_chunk=24)["out"]
    assert np.array_equal(whole, chunked)
    with pytest.raises(ValueError, match="^vae_chunk 999: an image here has 128 lines"):
        model.forward("vae.decode", {"sample": latents}, vae_chunk=999)
