#!/usr/bin/env python3
"""Writes a DiffusionGemma 26B-A4B folder of the published widths with random weights and LAYERS layers (published: 30):
bf16 (50.5 GB), or quantised like `tessera quantise` with experts in int4 (and dense weights in int8).

    python3 bench/models/random_diffusion_gemma.py FOLDER LAYERS [bf16 | int4 | int4+int8]
"""

import json
import os
import pathlib
import random
import struct
import sys

HIDDEN, HEADS, DENSE, WIDTH, EXPERTS, VOCABULARY = 2816, 16, 2112, 704, 128, 262144
KV, SIZE, GLOBAL_KV, GLOBAL_SIZE = 8, 256, 2, 512
NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "pre_feedforward_layernorm_2",
         "post_feedforward_layernorm", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2")


def kinds(layers):
    return ["full_attention" if layer % 6 == 5 or layer == layers - 1 else "sliding_attention" for layer in range(layers)]


def config(layers, form):
    text = {"model_type": "diffusion_gemma_text", "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": DENSE,
            "moe_intermediate_size": WIDTH, "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": KV,
            "head_dim": SIZE, "num_global_key_value_heads": GLOBAL_KV, "global_head_dim": GLOBAL_SIZE, "num_experts": EXPERTS,
            "top_k_experts": 8, "sliding_window": 1024, "layer_types": kinds(layers), "final_logit_softcapping": 30.0,
            "rms_norm_eps": 1e-6, "max_position_embeddings": 262144, "use_bidirectional_attention": "vision"}
    made = {"model_type": "diffusion_gemma", "architectures": ["DiffusionGemmaForBlockDiffusion"], "text_config": text,
            "canvas_length": 256, "tie_word_embeddings": True, "image_token_id": 258880}
    if form != "bf16":
        made["quantization_config"] = {"quant_method": "tessera", "experts": "int4", **({"dense": "int8"} if "int8" in form else {}),
                                       "order": "panels"}
    return made


def matrices(layers):
    """Returns {name: (rows, columns)} of routed and of dense matrices."""
    routed, dense = {}, {}
    for layer, kind in enumerate(kinds(layers)):
        at = f"model.decoder.layers.{layer}."
        kv, size = (GLOBAL_KV, GLOBAL_SIZE) if kind == "full_attention" else (KV, SIZE)
        dense |= {at + "self_attn.q_proj.weight": (HEADS * size, HIDDEN), at + "self_attn.k_proj.weight": (kv * size, HIDDEN),
                  at + "self_attn.o_proj.weight": (HIDDEN, HEADS * size)}
        if kind != "full_attention":
            dense[at + "self_attn.v_proj.weight"] = (kv * size, HIDDEN)
        for part, width, into in [("mlp.", DENSE, dense)] + [(f"experts.{e}.", WIDTH, routed) for e in range(EXPERTS)]:
            into |= {at + part + "gate_proj.weight": (width, HIDDEN), at + part + "up_proj.weight": (width, HIDDEN),
                     at + part + "down_proj.weight": (HIDDEN, width)}
    at = "model.decoder.self_conditioning."
    dense |= {at + "gate_proj.weight": (DENSE, HIDDEN), at + "up_proj.weight": (DENSE, HIDDEN), at + "down_proj.weight": (HIDDEN, DENSE)}
    return routed, dense


def vectors(layers):
    """Returns {name: (elements, value)} of norms and scales."""
    made = {"model.decoder.norm.weight": (HIDDEN, 1), "model.decoder.self_conditioning.pre_norm.weight": (HIDDEN, 1)}
    for layer, kind in enumerate(kinds(layers)):
        at = f"model.decoder.layers.{layer}."
        size = GLOBAL_SIZE if kind == "full_attention" else SIZE
        made |= {f"{at}{name}.weight": (HIDDEN, 1) for name in NORMS}
        made |= {at + "self_attn.q_norm.weight": (size, size**-0.25), at + "self_attn.k_norm.weight": (size, size**-0.25),
                 at + "router.scale": (HIDDEN, 1), at + "router.per_expert_scale": (EXPERTS, 1), at + "layer_scalar": (1, 1),
                 f"model.encoder.language_model.layers.{layer}.layer_scalar": (1, 1)}
    return made


def bf16(value):
    return struct.pack("<f", value)[2:]


SCALE = bf16(HIDDEN**-0.5 / 4)  # of a group in int4


def panels(name, rows, columns, step):
    """Shape of a matrix in the order of the kernels (docs/adr/0012), where it fills panels."""
    half = "gate_proj" in name or "up_proj" in name
    return [rows // (16 if half else 32), columns // 64, step // (2 if half else 1)]


def entries(layers, form):
    """[(name, dtype, shape, bytes, filler)]: a filler is bytes to repeat, None for random ones, "U4" for steps of int4."""
    routed, dense = matrices(layers)
    made, scales = [], []
    for name, (rows, columns) in [*dense.items(), *routed.items()]:
        if form != "bf16" and name in routed:
            made.append((name, "U8", panels(name, rows, columns, 1152), rows * columns // 16 * 9, "U4"))
        elif "int8" in form:
            made.append((name, "I8", panels(name, rows, columns, 2048), rows * columns, None))
            scales.append((name + "_scale", "F32", [rows], 4 * rows, struct.pack("<f", columns**-0.5 / 64)))
        else:
            made.append((name, "BF16", [rows, columns], 2 * rows * columns, None))
    made.append(("model.decoder.embed_tokens.weight", "BF16", [VOCABULARY, HIDDEN], 2 * VOCABULARY * HIDDEN, None))
    for layer in range(layers):
        made.append((f"model.decoder.layers.{layer}.router.proj.weight", "BF16", [EXPERTS, HIDDEN], 2 * EXPERTS * HIDDEN, None))
    for name, (count, value) in vectors(layers).items():
        made.append((name, "BF16", [count], 2 * count, bf16(value)))
    return made + scales


def pools():
    """Returns 4 MB of bf16 numbers of magnitudes from 1/128 to 1/32, and as many random bytes."""
    draw = random.Random(0)
    number = lambda: draw.getrandbits(1) << 15 | (120 + draw.getrandbits(1)) << 7 | draw.getrandbits(7)
    steps = b"".join(os.urandom(1024) + 64 * SCALE for _ in range(1 << 12))
    return {"BF16": b"".join(struct.pack("<H", number()) for _ in range(1 << 21)), "U4": steps, "I8": os.urandom(1 << 22)}


def write(folder, layers, form):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config(layers, form), indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"max_new_tokens": 256, "eos_token_id": [1, 106, 50]}))
    header, at, all_of = {}, 0, entries(layers, form)
    for name, dtype, shape, size, _ in all_of:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)  # tensors are mapped at multiples of 64
    draw, pool = random.Random(0), pools()
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, dtype, _, size, filler in all_of:
            if filler and filler != "U4":
                out.write(filler * (size // len(filler)))
                continue
            while size > 0:
                start = 1152 * draw.randrange(900)
                part = pool[filler or dtype][start:start + min(size, 3 << 20)]
                out.write(part)
                size -= len(part)


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "bf16")
