#!/usr/bin/env python3
"""Writes tests/data/tiny_vae.json: what an AutoencoderTiny of diffusers computes.

    pip install diffusers==0.42.1 torch
    python3 tools/make_tiny_vae_golden.py tests/data/tiny_vae.json

Weights and inputs are formulas, which tests/models/vae/autoencoder_tiny_test.cpp computes alike.
"""
import json
import math
import sys

import torch
from diffusers import AutoencoderTiny

CONFIG = {"latent_channels": 4, "encoder_block_out_channels": [8, 8, 8], "decoder_block_out_channels": [8, 8, 8],
          "num_encoder_blocks": [1, 2, 1], "num_decoder_blocks": [2, 1, 1], "scaling_factor": 1.5, "shift_factor": 0.25}


def wave(shape, seed, size):
    i = torch.arange(math.prod(shape), dtype=torch.float64)
    return (size * torch.sin(0.37 * (i + 1) + 0.11 * seed)).to(torch.float32).reshape(shape)


def main():
    vae = AutoencoderTiny(**CONFIG).eval()
    weights = {}
    for name, x in vae.state_dict().items():
        size = 0.1 if x.dim() == 1 else 2.5 / math.sqrt(x.shape[1] * 9)
        weights[name] = wave(tuple(x.shape), sum(map(ord, name)), size)
    vae.load_state_dict(weights)
    with torch.no_grad():
        made = vae.decode(wave((1, 4, 3, 5), 1, 4.0)).sample
        latents = vae.encode(wave((1, 3, 12, 20), 2, 0.9)).latents
    print(made.std(), latents.std())
    with open(sys.argv[1], "w") as out:
        json.dump({"config": CONFIG, "image": [float(f"{v:.6g}") for v in made.flatten()],
                   "latents": [float(f"{v:.6g}") for v in latents.flatten()]}, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
