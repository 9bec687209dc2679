#!/usr/bin/env python3
"""A folder of FLUX.2-klein 4B or Z-Image-Turbo at published widths with random weights in bf16: transformer, Qwen3-4B (8 GB), the
decoder of the VAE, and the small tokenizer of the tests. A second folder links the text encoder of the first.

    python3 bench/pipeline/random_image_model.py FOLDER klein|z_image [FOLDER WITH A TEXT ENCODER]
"""

import array
import json
import os
import pathlib
import random
import shutil
import sys

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests/data/diffusers"
SMALL = {"klein": "flux2_klein_base", "z_image": "z_image_turbo"}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 2560,
         "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
         "head_dim": 128, "rope_theta": 1000000, "rms_norm_eps": 1e-6, "hidden_act": "silu", "attention_bias": False}
KLEIN = {"_class_name": "Flux2Transformer2DModel", "num_attention_heads": 24, "attention_head_dim": 128, "num_layers": 5,
         "num_single_layers": 20, "joint_attention_dim": 7680, "in_channels": 128, "guidance_embeds": False}
Z_IMAGE = {"_class_name": "ZImageTransformer2DModel", "axes_lens": [1536, 512, 512]}


def qwen3():
    shapes = {"model.embed_tokens.weight": [151936, 2560], "model.norm.weight": [2560]}
    for i in range(36):
        layer = f"model.layers.{i}."
        for name, shape in {"self_attn.q_proj": [4096, 2560], "self_attn.k_proj": [1024, 2560],
                            "self_attn.v_proj": [1024, 2560], "self_attn.o_proj": [2560, 4096],
                            "self_attn.q_norm": [128], "self_attn.k_norm": [128], "input_layernorm": [2560],
                            "post_attention_layernorm": [2560], "mlp.gate_proj": [9728, 2560],
                            "mlp.up_proj": [9728, 2560], "mlp.down_proj": [2560, 9728]}.items():
            shapes[layer + name + ".weight"] = shape
    return shapes


def klein(d=3072, wide=9216):
    shapes = {"context_embedder": [d, 7680], "x_embedder": [d, 128], "proj_out": [128, d], "norm_out.linear": [2 * d, d],
              "double_stream_modulation_img.linear": [6 * d, d], "double_stream_modulation_txt.linear": [6 * d, d],
              "single_stream_modulation.linear": [3 * d, d], "time_guidance_embed.timestep_embedder.linear_1": [d, 256],
              "time_guidance_embed.timestep_embedder.linear_2": [d, d]}
    for i in range(5):
        block = f"transformer_blocks.{i}."
        for name in ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"):
            shapes[block + "attn." + name] = [d, d]
        for name in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
            shapes[block + "attn." + name] = [128]
        for name in ("ff", "ff_context"):
            shapes[block + name + ".linear_in"], shapes[block + name + ".linear_out"] = [2 * wide, d], [d, wide]
    for i in range(20):
        block = f"single_transformer_blocks.{i}.attn."
        shapes |= {block + "to_qkv_mlp_proj": [3 * d + 2 * wide, d], block + "to_out": [d, d + wide],
                   block + "norm_q": [128], block + "norm_k": [128]}
    return {name + ".weight": shape for name, shape in shapes.items()}


def z_image(d=3840, wide=10240, time=256):
    shapes = {"x_pad_token": [1, d], "cap_pad_token": [1, d], "cap_embedder.0.weight": [2560]}

    def linear(name, out, inner):
        shapes[name + ".weight"], shapes[name + ".bias"] = [out, inner], [out]

    linear("t_embedder.mlp.0", 1024, 256)
    linear("t_embedder.mlp.2", time, 1024)
    linear("cap_embedder.1", d, 2560)
    linear("all_x_embedder.2-1", d, 64)
    linear("all_final_layer.2-1.linear", 64, d)
    linear("all_final_layer.2-1.adaLN_modulation.1", d, time)
    blocks = [f"{kind}.{i}." for kind, count in (("noise_refiner", 2), ("context_refiner", 2), ("layers", 30))
              for i in range(count)]
    for block in blocks:
        for name in ("to_q", "to_k", "to_v", "to_out.0"):
            shapes[block + f"attention.{name}.weight"] = [d, d]
        for name in ("norm_q", "norm_k"):
            shapes[block + f"attention.{name}.weight"] = [128]
        for name in ("attention_norm1", "attention_norm2", "ffn_norm1", "ffn_norm2"):
            shapes[block + name + ".weight"] = [d]
        for name, shape in {"w1": [wide, d], "w2": [d, wide], "w3": [wide, d]}.items():
            shapes[block + f"feed_forward.{name}.weight"] = shape
        if not block.startswith("context"):
            linear(block + "adaLN_modulation.0", 4 * d, time)
    return shapes


def vae(latent, flux2):
    """The decoder alone."""
    shapes = {"bn.running_mean": [4 * latent], "bn.running_var": [4 * latent]} if flux2 else {}

    def layer(name, *shape):
        shapes[name + ".weight"], shapes[name + ".bias"] = list(shape), [shape[0]]

    def resnet(name, into, out):
        layer(name + "norm1", into)
        layer(name + "conv1", out, into, 3, 3)
        layer(name + "norm2", out)
        layer(name + "conv2", out, out, 3, 3)
        if into != out:
            layer(name + "conv_shortcut", out, into, 1, 1)

    if flux2:
        layer("post_quant_conv", latent, latent, 1, 1)
    layer("decoder.conv_in", 512, latent, 3, 3)
    for i in range(2):
        resnet(f"decoder.mid_block.resnets.{i}.", 512, 512)
    attention = "decoder.mid_block.attentions.0."
    layer(attention + "group_norm", 512)
    for name in ("to_q", "to_k", "to_v", "to_out.0"):
        layer(attention + name, 512, 512)
    before = 512
    for i, out in enumerate((512, 512, 256, 128)):
        for j in range(3):
            resnet(f"decoder.up_blocks.{i}.resnets.{j}.", before if j == 0 else out, out)
        if i < 3:
            layer(f"decoder.up_blocks.{i}.upsamplers.0.conv", out, out, 3, 3)
        before = out
    layer("decoder.conv_norm_out", 128)
    layer("decoder.conv_out", 3, 128, 3, 3)
    return shapes


def bf16(values):
    floats = array.array("f", values)
    return array.array("H", (v >> 16 for v in array.array("I", floats.tobytes()))).tobytes()


def write(path, shapes):
    """Weights of one axis are ones; others keep the size of their input. Noise of a prime period, so that no two rows are alike."""
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    draw = random.Random(0)
    noise = [draw.gauss(0, 1) for _ in range(65521)]
    made = {}

    def period(shape, name):
        inner = 1
        for length in shape[1:]:
            inner *= length
        if len(shape) == 1 and not name.endswith(("bias", "mean")):
            inner = 0
        if inner not in made:
            made[inner] = (bf16(v * inner**-0.5 for v in noise) if inner else bf16([1.0] * len(noise))) * 64
        return made[inner]

    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name, entry in header.items():
            (begin, end), part = entry["data_offsets"], period(entry["shape"], name)
            while begin < end:
                out.write(part[:end - begin])
                begin += len(part)


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[2] not in SMALL:
        sys.exit(__doc__)
    folder, which = pathlib.Path(sys.argv[1]), sys.argv[2]
    small = DATA / SMALL[which] / "model"
    config = {"klein": KLEIN, "z_image": Z_IMAGE}[which]
    flux2 = which == "klein"
    for part in ("tokenizer", "scheduler"):
        shutil.copytree(small / part, folder / part)
    for part in ("transformer", "vae"):
        (folder / part).mkdir()
    index = json.loads((small / "model_index.json").read_text())
    if flux2:
        index["is_distilled"] = True
    (folder / "model_index.json").write_text(json.dumps(index, indent=1))
    (folder / "transformer/config.json").write_text(json.dumps(config, indent=1))
    about = json.loads((small / "vae/config.json").read_text())
    about |= {"block_out_channels": [128, 256, 512, 512], "layers_per_block": 2, "norm_num_groups": 32, "sample_size": 1024,
              "latent_channels": 32 if flux2 else 16}
    (folder / "vae/config.json").write_text(json.dumps(about, indent=1))
    write(folder / "transformer/diffusion_pytorch_model.safetensors", klein() if flux2 else z_image())
    write(folder / "vae/diffusion_pytorch_model.safetensors", vae(32 if flux2 else 16, flux2))
    if len(sys.argv) == 4:
        os.symlink(pathlib.Path(sys.argv[3]).resolve() / "text_encoder", folder / "text_encoder")
        return
    (folder / "text_encoder").mkdir()
    (folder / "text_encoder/config.json").write_text(json.dumps(QWEN3, indent=1))
    write(folder / "text_encoder/model.safetensors", qwen3())


if __name__ == "__main__":
    main()
