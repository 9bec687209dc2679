#!/usr/bin/env python3
"""Writes a folder of LLaDA2.0-mini's widths with random weights and LAYERS layers (published: 20); the first is dense.

    python3 bench/models/random_llada2.py FOLDER LAYERS
"""

import array
import json
import pathlib
import random
import struct
import sys

# Tensors are multiplied by these powers of two, so that a block of 24 words and 8 masks uses 84 experts of a layer, as
# in Table 1 of "dynamic expert sharing" for the trained model. Otherwise tokens become similar and use 40.
SCALES = {"attention.dense.weight": -1}
HIDDEN, HEADS, KV_HEADS, EXPERTS, WIDTH, VOCABULARY = 2048, 16, 4, 256, 512, 157184


def shapes(layers):
    """Returns {name: shape} of all tensors."""
    all_of = {"model.word_embeddings.weight": [VOCABULARY, HIDDEN], "lm_head.weight": [VOCABULARY, HIDDEN],
              "model.norm.weight": [HIDDEN]}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        head = HIDDEN // HEADS
        all_of |= {at + "input_layernorm.weight": [HIDDEN], at + "post_attention_layernorm.weight": [HIDDEN],
                   at + "attention.query_key_value.weight": [(HEADS + 2 * KV_HEADS) * head, HIDDEN],
                   at + "attention.dense.weight": [HIDDEN, HIDDEN],
                   at + "attention.query_layernorm.weight": [head], at + "attention.key_layernorm.weight": [head]}
        mlps = {"mlp.": 5120}
        if layer > 0:
            mlps = {"mlp.shared_experts.": WIDTH} | {f"mlp.experts.{e}.": WIDTH for e in range(EXPERTS)}
            all_of |= {at + "mlp.gate.weight": [EXPERTS, HIDDEN], at + "mlp.gate.expert_bias": [EXPERTS]}
        for name, width in mlps.items():
            all_of |= {at + name + "gate_proj.weight": [width, HIDDEN], at + name + "up_proj.weight": [width, HIDDEN],
                       at + name + "down_proj.weight": [HIDDEN, width]}
    return all_of


def config(layers):
    return {
        "model_type": "llada2_moe", "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": 5120,
        "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "head_dim": HIDDEN // HEADS, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 600000,
        "partial_rotary_factor": 0.5, "use_qkv_bias": False, "use_bias": False, "use_qk_norm": True,
        "num_experts": EXPERTS, "num_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4,
        "moe_intermediate_size": WIDTH, "first_k_dense_replace": 1, "norm_topk_prob": True,
        "score_function": "sigmoid", "moe_router_enable_expert_bias": True, "routed_scaling_factor": 2.5,
        "tie_word_embeddings": False, "block_length": 32, "mask_token_id": 156895, "eos_token_id": 156892}


def scaled(pool, power):
    """Multiplies bf16 numbers by a power of two."""
    words = array.array("H", pool)
    return array.array("H", (w + power * 128 for w in words)).tobytes() if power else pool


def write(folder, config, shapes, scales=None):
    """Writes the configuration and reproducible bf16 weights; scales: {suffix of names: power of two}."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    draw = random.Random(0)
    # bf16 of magnitudes from 1/128 to 1/32, of either sign; tensors start at different offsets.
    pool = b"".join(struct.pack("<H", draw.getrandbits(1) << 15 | (120 + draw.getrandbits(1)) << 7 | draw.getrandbits(7))
                    for _ in range(1 << 21))
    powers = scales or {}
    pools = {power: scaled(pool, power) for power in {0, *powers.values()}}
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            power = next((powers[ending] for ending in powers if name.endswith(ending)), 0)
            if len(entry["shape"]) == 1:  # norms are 1 and no expert is favoured, so tokens use all experts
                one = struct.pack("<H", 0x3f80)
                out.write((scaled(one, power) if "norm" in name else bytes(2)) * entry["shape"][0])
                continue
            while begin < end:
                start = 2 * draw.randrange(1 << 19)
                part = pools[power][start:start + min(end - begin, 2 << 20)]
                out.write(part)
                begin += len(part)


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]), config(int(sys.argv[2])), shapes(int(sys.argv[2])), SCALES)
