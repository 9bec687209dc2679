#!/usr/bin/env python3
"""Writes a folder of LLaDA-MoE-7B-A1B's widths with random weights and LAYERS layers (published: 16).

    python3 bench/models/random_llada_moe.py FOLDER LAYERS
"""

import pathlib
import sys

from random_llada2 import VOCABULARY, write

HIDDEN, HEADS, EXPERTS, SLOTS, WIDTH = 2048, 16, 64, 8, 1024
# Tensors are multiplied by these powers of two: embeddings outweigh the common part from attention, and attention
# focuses on few tokens, so that words, and masks, use all experts.
SCALES = {"embed_tokens.weight": 5, "q_norm.weight": 1, "k_norm.weight": 1}


def shapes(layers):
    """Returns {name: shape} of all tensors."""
    all_of = {"model.embed_tokens.weight": [VOCABULARY, HIDDEN], "lm_head.weight": [VOCABULARY, HIDDEN],
              "model.norm.weight": [HIDDEN]}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        all_of |= {at + "input_layernorm.weight": [HIDDEN], at + "post_attention_layernorm.weight": [HIDDEN],
                   at + "self_attn.q_norm.weight": [HIDDEN // HEADS], at + "self_attn.k_norm.weight": [HIDDEN // HEADS],
                   at + "mlp.gate.weight": [EXPERTS, HIDDEN]}
        all_of |= {f"{at}self_attn.{name}_proj.weight": [HIDDEN, HIDDEN] for name in "qkvo"}
        for expert in range(EXPERTS):
            name = f"{at}mlp.experts.{expert}."
            all_of |= {name + "gate_proj.weight": [WIDTH, HIDDEN], name + "up_proj.weight": [WIDTH, HIDDEN],
                       name + "down_proj.weight": [HIDDEN, WIDTH]}
    return all_of


def config(layers):
    return {"model_type": "llada", "architectures": ["LLaDAMoEModelLM"], "vocab_size": VOCABULARY,
            "hidden_size": HIDDEN, "num_hidden_layers": layers, "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS, "expert_intermediate_size": WIDTH, "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5, "rope_theta": 50000.0, "num_experts": EXPERTS, "num_experts_per_tok": SLOTS,
            "qk_layernorm": True, "moe_layer_freq": [1] * layers, "tie_word_embeddings": False,
            "mask_token_id": 156895, "eos_token_id": 156892}


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]), config(int(sys.argv[2])), shapes(int(sys.argv[2])), SCALES)
