#!/usr/bin/env python3
"""Writes tests/data/features/flux_edit: FLUX.1-Fill and FLUX.1-Kontext as diffusers computes them.

    pip install diffusers==0.42.1 transformers torch pillow
    python3 tools/make_flux_edit_golden.py tests/data

The networks are that of diffusers/flux_dev; Fill's first layer is widened by a formula, which
tests/whole/golden/flux_edit_golden_test.cpp computes alike.
"""
import json
import pathlib
import sys

import torch
from diffusers import (AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxFillPipeline, FluxKontextPipeline,
                       FluxTransformer2DModel)
from PIL import Image
from safetensors.torch import load_file, save_file

FILL = [{"strength": 1.0, "count": 1, "seed": 5, "steps": 4, "width": 64, "height": 96, "guidance": 30.0},
        {"strength": 0.7, "count": 2, "seed": 6, "steps": 4, "width": 96, "height": 64, "guidance": 12.0}]
KONTEXT = [{"count": 1, "seed": 7, "steps": 3, "width": 64, "height": 64, "guidance": 2.5, "image": True},
           {"count": 1, "seed": 8, "steps": 2, "width": 96, "height": 64, "guidance": 3.5, "image": False}]


def widened(weight):
    """[hidden, 64] with 320 columns more."""
    i = torch.arange(weight.shape[0], dtype=torch.float64)[:, None]
    j = torch.arange(320, dtype=torch.float64)[None, :]
    return torch.cat([weight, (0.1 * torch.sin(0.7 * i + 1.3 * j)).to(weight.dtype)], dim=1)


def fill_network(network):
    fill = FluxTransformer2DModel.from_config({**network.config, "in_channels": 384, "out_channels": 64})
    weights = dict(network.state_dict())
    weights["x_embedder.weight"] = widened(weights["x_embedder.weight"])
    fill.load_state_dict(weights)
    return fill.eval()


def run(pipe, arguments, io, prefix, **more):
    latents = []

    def keep(_pipe, step, _time, tensors):
        latents.append(tensors["latents"].clone())
        return {}

    pipe(num_inference_steps=arguments["steps"], guidance_scale=arguments["guidance"], width=arguments["width"],
         height=arguments["height"], num_images_per_prompt=arguments["count"], output_type="latent",
         generator=torch.Generator().manual_seed(arguments["seed"]), callback_on_step_end=keep,
         callback_on_step_end_tensor_inputs=["latents"], **more)
    arguments["steps_run"] = len(latents)
    io[prefix] = latents[-1].half()  # for a small file: 3e-4


def main():
    data = pathlib.Path(sys.argv[1])
    model, images, out = data / "diffusers/flux_dev/model", data / "features/image", data / "features/flux_edit"
    out.mkdir(exist_ok=True)
    network = FluxTransformer2DModel.from_pretrained(model / "transformer", torch_dtype=torch.float32).eval()
    vae = AutoencoderKL.from_pretrained(model / "vae", torch_dtype=torch.float32).eval()
    scheduler = FlowMatchEulerDiscreteScheduler.from_pretrained(model / "scheduler")
    parts = dict(scheduler=scheduler, vae=vae, text_encoder=None, text_encoder_2=None, tokenizer=None, tokenizer_2=None)
    text = {k: v for k, v in load_file(images / "text_flux_dev.safetensors").items()}
    image, mask = Image.open(images / "image.png").convert("RGB"), Image.open(images / "mask_hard.png")
    io = {}
    with torch.no_grad():
        fill = FluxFillPipeline(transformer=fill_network(network), **parts)
        for i, one in enumerate(FILL):
            run(fill, one, io, f"fill.{i}", image=image, mask_image=mask, strength=one["strength"], **text)
        kontext = FluxKontextPipeline(transformer=network, **parts)
        for i, one in enumerate(KONTEXT):
            run(kontext, one, io, f"kontext.{i}", image=image if one["image"] else None,
                max_area=one["width"] * one["height"], **text)
    save_file(io, out / "io.safetensors")
    (out / "case.json").write_text(json.dumps({"fill": FILL, "kontext": KONTEXT}, indent=1) + "\n")


if __name__ == "__main__":
    main()
