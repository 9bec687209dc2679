"""Names, shapes and configuration of DiT-MoE, derived from a released state dict."""

import json
import math
import re
import struct

from torch_zip import CheckpointError

# Attention heads of the published sizes S, B, L, XL and G, by hidden size.
HEADS = {384: 6, 768: 12, 1024: 16, 1152: 16, 1408: 16}
FLOATS = ("F32", "F16", "BF16")


def shape_of(state, name, rank):
    if name not in state:
        raise CheckpointError(f"holds no tensor '{name}', so it is no DiT-MoE; names begin with "
                              + ", ".join(repr(n) for n in sorted(state)[:3]))
    shape = state[name].shape
    if len(shape) != rank or 0 in shape:
        raise CheckpointError(f"tensor '{name}' is {list(shape)}; expected {rank} axes")
    return shape


def whole(value, of, what):
    if value % of:
        raise CheckpointError(f"{what} {value} is no multiple of {of}")
    return value // of


def heads_of(state, hidden, given):
    if "blocks.0.attn.q_norm.weight" in state:
        found = whole(hidden, shape_of(state, "blocks.0.attn.q_norm.weight", 1)[0], "the hidden size")
        if given not in (None, found):
            raise CheckpointError(f"has {found} attention heads (its q_norm says so), not {given}")
        return found
    heads = given or HEADS.get(hidden)
    if not heads:
        raise CheckpointError(f"is of no published size (hidden size {hidden}), and the shapes do not "
                              "tell its attention heads; give --num-heads")
    whole(hidden, heads, "the hidden size")
    return heads


def config_of(state, num_heads, num_experts_per_tok):
    """Derives the configuration from the shapes."""
    hidden, channels, patch, _ = shape_of(state, "x_embedder.proj.weight", 4)
    _, tokens, _ = shape_of(state, "pos_embed", 3)
    experts, _ = shape_of(state, "blocks.0.moe.gate.weight", 2)
    if not 1 <= num_experts_per_tok <= experts:
        raise CheckpointError(f"has {experts} experts, so --num-experts-per-tok {num_experts_per_tok} "
                              "cannot be")
    width, _ = shape_of(state, "blocks.0.moe.experts.0.gate_proj.weight", 2)
    shared = "blocks.0.moe.shared_experts.gate_proj.weight"
    outputs = whole(shape_of(state, "final_layer.linear.weight", 2)[0], patch * patch, "the outputs")
    side = math.isqrt(tokens)
    if side * side != tokens or outputs not in (channels, 2 * channels):
        raise CheckpointError(f"has {tokens} positions and {outputs} output channels; expected a square, "
                              f"and {channels} or {2 * channels}")
    ratio = width / hidden
    blocks = {int(m.group(1)) for name in state if (m := re.match(r"blocks\.(\d{1,6})\.", name))}
    return {"model_type": "dit_moe", "hidden_size": hidden, "depth": max(blocks) + 1,
            "num_heads": heads_of(state, hidden, num_heads), "patch_size": patch,
            "in_channels": channels, "input_size": side * patch,
            "mlp_ratio": int(ratio) if ratio == int(ratio) else ratio,
            "num_experts": experts, "num_experts_per_tok": num_experts_per_tok,
            "n_shared_experts": whole(shape_of(state, shared, 2)[0], hidden, "the shared width")
            if shared in state else 0,
            "norm_topk_prob": False, "learn_sigma": outputs == 2 * channels,
            "num_classes": shape_of(state, "y_embedder.embedding_table.weight", 2)[0] - 1,
            "attention": "flash" if "blocks.0.attn.Wqkv.weight" in state else "timm",
            "qk_norm": "blocks.0.attn.q_norm.weight" in state,
            "frequency_embedding_size": shape_of(state, "t_embedder.mlp.0.weight", 2)[1]}


def linear(name, out, width, bias=True):
    return {f"{name}.weight": (out, width), **({f"{name}.bias": (out,)} if bias else {})}


def mlp(name, inner, d):
    return {**linear(f"{name}.gate_proj", inner, d, False), **linear(f"{name}.up_proj", inner, d, False),
            **linear(f"{name}.down_proj", d, inner, False)}


def block_shapes(c, i):
    d, flash = c["hidden_size"], c["attention"] == "flash"
    attn, moe = f"blocks.{i}.attn", f"blocks.{i}.moe"
    shapes = {**linear(f"{attn}.{'Wqkv' if flash else 'qkv'}", 3 * d, d),
              **linear(f"{attn}.{'out_proj' if flash else 'proj'}", d, d),
              **linear(f"blocks.{i}.adaLN_modulation.1", 6 * d, d),
              f"{moe}.gate.weight": (c["num_experts"], d)}
    if c["qk_norm"]:
        for part in ("q_norm", "k_norm"):
            for kind in ("weight", "bias"):
                shapes[f"{attn}.{part}.{kind}"] = (d // c["num_heads"],)
    for e in range(c["num_experts"]):
        shapes.update(mlp(f"{moe}.experts.{e}", round(c["mlp_ratio"] * d), d))
    if c["n_shared_experts"]:
        shapes.update(mlp(f"{moe}.shared_experts", c["n_shared_experts"] * d, d))
    return shapes


def shapes_of(c):
    """Returns {name: shape} of all tensors of a configuration."""
    d, p, channels = c["hidden_size"], c["patch_size"], c["in_channels"]
    out = channels * (2 if c["learn_sigma"] else 1)
    shapes = {"pos_embed": (1, (c["input_size"] // p) ** 2, d),
              "x_embedder.proj.weight": (d, channels, p, p), "x_embedder.proj.bias": (d,),
              "y_embedder.embedding_table.weight": (c["num_classes"] + 1, d),
              **linear("t_embedder.mlp.0", d, c["frequency_embedding_size"]),
              **linear("t_embedder.mlp.2", d, d),
              **linear("final_layer.linear", p * p * out, d),
              **linear("final_layer.adaLN_modulation.1", 2 * d, d)}
    for i in range(c["depth"]):
        shapes.update(block_shapes(c, i))
    return shapes


def check(state, config):
    """Raises CheckpointError naming every tensor outside the configuration."""
    expected = shapes_of(config)
    faults = [("missing", [n for n in expected if n not in state]),
              ("unknown", [n for n in state if n not in expected]),
              ("of another shape", [f"{n} {list(state[n].shape)}, expected {list(expected[n])}"
                                    for n in expected if n in state and state[n].shape != expected[n]]),
              ("of a dtype that is not read", [f"{n} {t.dtype}" for n, t in state.items()
                                               if t.dtype not in FLOATS])]
    text = "; ".join(f"{len(names)} {what}: {', '.join(names)}" for what, names in faults if names)
    if text:
        raise CheckpointError(f"does not fit the layout of DiT-MoE: {text}")


def in_file_order(state):
    """Sorts the widest elements first, so that every tensor is aligned."""
    return sorted(state.items(), key=lambda item: (-item[1].storage.width, item[0]))


def safetensors_header(state):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in in_file_order(state):
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape),
                        "data_offsets": [at, at + tensor.bytes]}
        at += tensor.bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def config_text(config):
    return (json.dumps(config, indent=1) + "\n").encode()
