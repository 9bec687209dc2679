"""Writes a FLUX with random weights and the embeddings of a prompt, for timing; needs only Python.

python3 bench/network/random_flux.py small|large DIR

DIR/embeddings.safetensors holds the embeddings of a prompt of 64 tokens.
"""

import array
import json
import random
import sys
from pathlib import Path

# Heads of 64 channels, double and single blocks. large: 1.2 GB, half of it in double blocks.
SIZES = {"small": (6, 4, 8), "large": (16, 8, 19)}
WIDE, POOLED, TOKENS = 1024, 256, 64  # channels of the text and of the pooled text; tokens


def shapes_of(hidden, doubles, singles):
    """Returns {name: shape}, in the order of the blocks."""
    shapes = {}

    def linear(name, out, inner):
        shapes[name + ".weight"], shapes[name + ".bias"] = [out, inner], [out]

    linear("x_embedder", hidden, 64)
    linear("context_embedder", hidden, WIDE)
    for part, inner in (("timestep", 256), ("guidance", 256), ("text", POOLED)):
        linear(f"time_text_embed.{part}_embedder.linear_1", hidden, inner)
        linear(f"time_text_embed.{part}_embedder.linear_2", hidden, hidden)
    for b in range(doubles):
        block = f"transformer_blocks.{b}."
        for layer in ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"):
            linear(block + "attn." + layer, hidden, hidden)
        for norm in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
            shapes[block + f"attn.{norm}.weight"] = [64]
        for stream in ("", "_context"):
            linear(block + f"norm1{stream}.linear", 6 * hidden, hidden)
            linear(block + f"ff{stream}.net.0.proj", 4 * hidden, hidden)
            linear(block + f"ff{stream}.net.2", hidden, 4 * hidden)
    for b in range(singles):
        block = f"single_transformer_blocks.{b}."
        for layer in ("to_q", "to_k", "to_v"):
            linear(block + "attn." + layer, hidden, hidden)
        for norm in ("norm_q", "norm_k"):
            shapes[block + f"attn.{norm}.weight"] = [64]
        linear(block + "norm.linear", 3 * hidden, hidden)
        linear(block + "proj_mlp", 4 * hidden, hidden)
        linear(block + "proj_out", hidden, 5 * hidden)
    linear("norm_out.linear", 2 * hidden, hidden)
    linear("proj_out", 64, hidden)
    return shapes


def noise(scale):
    """Returns a period of bf16 values; the length is prime, so that all rows differ."""
    draw = random.Random(0)
    values = array.array("f", (draw.gauss(0, scale) for _ in range(65521)))
    return array.array("H", (v >> 16 for v in array.array("I", values.tobytes()))).tobytes()


def write(path, shapes, scale):
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    period = noise(scale) * 64
    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for entry in header.values():
            begin, end = entry["data_offsets"]
            while begin < end:
                part = period[:end - begin]
                out.write(part)
                begin += len(part)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SIZES:
        sys.exit(__doc__)
    heads, doubles, singles = SIZES[sys.argv[1]]
    folder = Path(sys.argv[2])
    files = {
        "model_index.json": {"_class_name": "FluxPipeline", "transformer": ["diffusers", "FluxTransformer2DModel"],
                             "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]},
        "scheduler/scheduler_config.json": {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3.0,
                                            "num_train_timesteps": 1000},
        "transformer/config.json": {"_class_name": "FluxTransformer2DModel", "attention_head_dim": 64,
                                    "num_attention_heads": heads, "num_layers": doubles, "num_single_layers": singles,
                                    "in_channels": 64, "joint_attention_dim": WIDE, "pooled_projection_dim": POOLED,
                                    "axes_dims_rope": [16, 24, 24], "guidance_embeds": True, "patch_size": 1},
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")
    write(folder / "transformer/diffusion_pytorch_model.safetensors", shapes_of(64 * heads, doubles, singles), 0.02)
    write(folder / "embeddings.safetensors", {"prompt_embeds": [1, TOKENS, WIDE], "pooled_prompt_embeds": [1, POOLED]}, 1)


if __name__ == "__main__":
    main()
