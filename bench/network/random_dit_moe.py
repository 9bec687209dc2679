"""Writes a DiT-MoE of a published size with random weights, for timing.

python3 bench/network/random_dit_moe.py s|b DIR
"""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from dit_moe_layout import shapes_of  # noqa: E402

SIZES = {"s": (384, 6), "b": (768, 12)}


def config_of(size):
    hidden, heads = SIZES[size]
    return {"model_type": "dit_moe", "hidden_size": hidden, "depth": 12, "num_heads": heads,
            "patch_size": 2, "in_channels": 4, "input_size": 32, "mlp_ratio": 4, "num_experts": 8,
            "num_experts_per_tok": 2, "n_shared_experts": 2, "norm_topk_prob": False,
            "learn_sigma": True, "num_classes": 1000, "attention": "timm", "qk_norm": False,
            "frequency_embedding_size": 256}


def bf16(values):
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SIZES:
        sys.exit(__doc__)
    folder = Path(sys.argv[2])
    (folder / "transformer").mkdir(parents=True, exist_ok=True)
    config = config_of(sys.argv[1])
    shapes = shapes_of(config)
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = np.random.default_rng(0)
    with open(folder / "transformer" / "model.safetensors", "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            # Positions are far apart, so that tokens choose different experts, as in a trained model.
            scale = np.float32(1.0 if name == "pos_embed" else 0.02)
            out.write(bf16(generator.standard_normal(shape, np.float32) * scale).tobytes())
    (folder / "transformer" / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "scheduler").mkdir(exist_ok=True)
    (folder / "scheduler" / "scheduler_config.json").write_text('{"_class_name": "RectifiedFlow"}\n')
    (folder / "model_index.json").write_text(json.dumps(
        {"_class_name": "DiTMoEPipeline", "transformer": ["tessera", "DiTMoE"],
         "scheduler": ["tessera", "RectifiedFlow"]}, indent=1))


if __name__ == "__main__":
    main()
