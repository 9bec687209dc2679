"""A DiffusionGemma of random weights, with the tokenizer and chat template of the golden case."""

import json
import pathlib
import random
import shutil
import struct
import tempfile

from serving import SOURCE

TEXT = SOURCE / "tests/data/moe/diffusion_gemma_text/model"
NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "pre_feedforward_layernorm_2",
         "post_feedforward_layernorm", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2")


def layer_shapes(c, is_global):
    d, width, experts, inner = c["hidden_size"], c["intermediate_size"], c["num_experts"], c["moe_intermediate_size"]
    size = c["global_head_dim"] if is_global else c["head_dim"]
    heads, kv = c["num_attention_heads"], c["num_global_key_value_heads" if is_global else "num_key_value_heads"]
    shapes = {f"{name}.weight": [d] for name in NORMS}
    shapes |= {"self_attn.q_proj.weight": [heads * size, d], "self_attn.k_proj.weight": [kv * size, d],
               "self_attn.o_proj.weight": [d, heads * size], "self_attn.q_norm.weight": [size], "self_attn.k_norm.weight": [size],
               "mlp.gate_proj.weight": [width, d], "mlp.up_proj.weight": [width, d], "mlp.down_proj.weight": [d, width],
               "router.proj.weight": [experts, d], "router.scale": [d], "router.per_expert_scale": [experts],
               "experts.gate_up_proj": [experts, 2 * inner, d], "experts.down_proj": [experts, d, inner], "layer_scalar": [1]}
    if not is_global:
        shapes["self_attn.v_proj.weight"] = [kv * size, d]
    return shapes


def all_shapes(c):
    d, width = c["hidden_size"], c["intermediate_size"]
    at = "model.decoder."
    shapes = {f"{at}embed_tokens.weight": [c["vocab_size"], d], f"{at}norm.weight": [d], f"{at}self_conditioning.pre_norm.weight": [d],
              f"{at}self_conditioning.gate_proj.weight": [width, d], f"{at}self_conditioning.up_proj.weight": [width, d],
              f"{at}self_conditioning.down_proj.weight": [d, width]}
    for i, kind in enumerate(c["layer_types"]):
        shapes |= {f"{at}layers.{i}.{name}": shape for name, shape in layer_shapes(c, kind == "full_attention").items()}
        shapes[f"model.encoder.language_model.layers.{i}.layer_scalar"] = [1]
    return shapes


def bf16(values):
    raw, short = struct.pack(f"<{len(values)}f", *values), bytearray(2 * len(values))
    short[0::2], short[1::2] = raw[2::4], raw[3::4]
    return bytes(short)


def write(folder, seed=0, generation=()):
    """The folder, a pathlib.Path that does not exist; `generation` changes generation_config.json, which names no end."""
    shutil.copytree(TEXT, folder)
    config = json.loads((folder / "config.json").read_text())
    text = config["text_config"]
    text |= {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]}
    (folder / "config.json").write_text(json.dumps(config))
    settings = json.loads((folder / "generation_config.json").read_text())
    del settings["eos_token_id"]
    settings |= {"max_denoising_steps": 6, "max_new_tokens": 40, **dict(generation)}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    draw, header, body = random.Random(seed), {}, b""
    for name, shape in all_shapes(text).items():
        count = 1
        for size in shape:
            count *= size
        middle, spread = (0, shape[-1] ** -0.5) if len(shape) > 1 else (1, 0.05)
        begin = len(body)
        body += bf16([draw.gauss(middle, spread) for _ in range(count)])
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, len(body)]}
    described = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(described)) + described + body)
    return pathlib.Path(folder)


def written_for(test):
    """The folder of a small model, until the tests of a class end."""
    holder = tempfile.TemporaryDirectory()
    test.addClassCleanup(holder.cleanup)
    return write(pathlib.Path(holder.name) / "canvas")
