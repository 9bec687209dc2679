#!/usr/bin/env python3
"""Writes tests/data/features/klein: runs of diffusers' Flux2KleinInpaintPipeline.

    pip install diffusers==0.42.1 transformers torch safetensors pillow
    python3 tools/make_klein_golden.py tests/data/features/klein

The model is tests/data/diffusers/flux2_klein_base, in f32; the image is the model's reference image.
A run holds the latents after each step as tokens [batch, tokens, channels].
"""
import json
import pathlib
import sys

import torch
from diffusers import Flux2KleinInpaintPipeline
from PIL import Image
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "tests/data/diffusers/flux2_klein_base/model"
IMAGE = ROOT / "tests/data/diffusers/flux2_klein_base/reference.png"
MASK = ROOT / "tests/data/features/image/mask_hard.png"
RUNS = [
    {"prompt": "Turn the owl into a cat", "steps": 5, "strength": 0.8, "guidance": 2.5, "seed": 71, "count": 1, "reference": False},
    {"prompt": "a red fox", "steps": 4, "strength": 0.5, "guidance": 1.0, "seed": 72, "count": 2, "reference": True},
]


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    pipe = Flux2KleinInpaintPipeline.from_pretrained(MODEL, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    image, mask = Image.open(IMAGE).convert("RGB"), Image.open(MASK).convert("L")
    tensors = {}
    for i, run in enumerate(RUNS):
        steps = []

        def keep(pipe, step, timestep, seen):
            steps.append(seen["latents"].clone())
            return {}

        pipe(prompt=run["prompt"], image=image, mask_image=mask.resize(image.size), strength=run["strength"],
             image_reference=image if run["reference"] else None, num_inference_steps=run["steps"],
             guidance_scale=run["guidance"], num_images_per_prompt=run["count"], max_sequence_length=32,
             generator=torch.Generator("cpu").manual_seed(run["seed"]), callback_on_step_end=keep, output_type="latent")
        run["steps_run"] = len(steps)
        for n, x in enumerate(steps):
            tensors[f"{i}.latents.{n + 1}"] = x.contiguous()
    save_file(tensors, out / "io.safetensors")
    mask.resize(image.size).save(out / "mask.png")
    (out / "case.json").write_text(json.dumps({"runs": RUNS}, indent=1) + "\n")


main()
