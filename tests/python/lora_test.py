"""Adapters of pipelines, by diffusers' names."""

import numpy as np
import pytest
import tessera
from conftest import DATA

ADAPTER = DATA / "features/lora/adapters/scenes.safetensors"
CAPTION = "a red circle left of a blue square"


def test_adapters_have_the_bits_of_the_command_line(latents_of):
    pipe = tessera.Pipeline.from_pretrained("scenes")

    def made():
        return pipe(CAPTION, num_inference_steps=3, output_type="latent").latents

    def asked(*words):
        return latents_of("scenes", "--prompt", CAPTION, "--steps", "3", *words)

    plain = made()
    pipe.load_lora_weights(ADAPTER, adapter_name="ink")
    np.testing.assert_array_equal(made(), asked("--lora", ADAPTER))
    pipe.set_adapters("ink", 0.3)
    np.testing.assert_array_equal(made(), asked("--lora", f"{ADAPTER}:0.3"))
    pipe.load_lora_weights(str(ADAPTER), adapter_name="more")
    pipe.set_adapters(["ink", "more"], [0.3, -0.5])
    np.testing.assert_array_equal(made(), asked("--lora", f"{ADAPTER}:0.3", "--lora", f"{ADAPTER}:-0.5"))
    pipe.set_adapters("more")
    np.testing.assert_array_equal(made(), asked("--lora", ADAPTER))
    pipe.set_adapters([], [])
    np.testing.assert_array_equal(made(), plain)
    pipe.unload_lora_weights()
    np.testing.assert_array_equal(made(), plain)


def test_adapters_that_are_refused():
    pipe = tessera.Pipeline.from_pretrained("scenes")
    pipe.load_lora_weights(DATA / "features/lora/adapters/flux_xlabs.safetensors")
    with pytest.raises(tessera.ModelError, match="FLUX"):
        pipe(CAPTION, num_inference_steps=2)
    with pytest.raises(tessera.UsageError, match="default_0"):
        pipe.load_lora_weights(ADAPTER, adapter_name="default_0")
    with pytest.raises(tessera.UsageError, match="none of default_0"):
        pipe.set_adapters("ink")
    with pytest.raises(tessera.UsageError, match="2 for 1"):
        pipe.set_adapters("default_0", [1, 2])
