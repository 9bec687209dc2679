"""Counts the kernels of a step in diffusers, and the host's time for one, for src/planner/published_case.cpp.

python3 bench/evaluation/pytorch_kernels.py [flux pixart sd3 hunyuan cogvideox]

Needs PyTorch and diffusers 0.30.3, which the published rows ran. Kernels are counted without elements at 1024 x 1024 pixels
(CogVideoX: 49 frames of 480 x 720); views launch none, and attention is one. The host's time is that of models with the same
layers and two heads of 16 channels on one CPU core, kernels of a few elements included and launches not.
"""

import collections
import sys
import time

import torch
from diffusers import (CogVideoXTransformer3DModel, FluxTransformer2DModel, HunyuanDiT2DModel, PixArtTransformer2DModel,
                       SD3Transformer2DModel)
from torch.utils._python_dispatch import TorchDispatchMode

VIEWS = {"view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze", "squeeze", "split",
         "split_with_sizes", "chunk", "unbind", "detach", "alias", "as_strided", "reshape", "_reshape_alias", "empty",
         "empty_like", "empty_strided", "new_empty", "lift_fresh"}


class Kernels(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.counts = collections.Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        self.counts[name] += name not in VIEWS
        return function(*args, **(kwargs or {}))

    def attention(self, query, *_, **__):
        self.counts["attention"] += 1
        return query.new_empty(query.shape)


def x(*shape, dtype=torch.bfloat16):
    return torch.zeros(shape, dtype=dtype)


def flux(small):
    sizes = {"num_attention_heads": 2, "attention_head_dim": 16, "axes_dims_rope": (4, 6, 6)} if small else {}
    tokens, text = (4, 2) if small else (4096, 512)
    return FluxTransformer2DModel(guidance_embeds=True, **sizes), {
        "hidden_states": x(1, tokens, 64), "encoder_hidden_states": x(1, text, 4096), "pooled_projections": x(1, 768),
        "timestep": x(1), "guidance": x(1), "img_ids": x(1, tokens, 3), "txt_ids": x(1, text, 3)}


def pixart(small):
    side, text, wide = (4, 2, 32) if small else (128, 120, 4096)
    return PixArtTransformer2DModel(
        num_attention_heads=2 if small else 16, attention_head_dim=16 if small else 72, in_channels=4, out_channels=8,
        sample_size=side, cross_attention_dim=32 if small else 1152, caption_channels=wide,
        use_additional_conditions=False), {
            "hidden_states": x(2, 4, side, side), "encoder_hidden_states": x(2, text, wide), "timestep": x(2),
            "encoder_attention_mask": x(2, text), "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}}


def sd3(small):
    side, heads, width = (4, 2, 16) if small else (128, 24, 64)
    text, wide = (2, 32) if small else (333, 4096)
    return SD3Transformer2DModel(
        sample_size=side, num_layers=24, num_attention_heads=heads, attention_head_dim=width, pos_embed_max_size=192,
        joint_attention_dim=wide,
        caption_projection_dim=heads * width, out_channels=16), {
            "hidden_states": x(2, 16, side, side), "encoder_hidden_states": x(2, text, wide), "timestep": x(2),
            "pooled_projections": x(2, 2048)}


def hunyuan(small):
    side, heads, width = (4, 2, 16) if small else (128, 16, 88)
    clip, t5 = (1, 1) if small else (77, 256)
    rope = (x((side // 2) ** 2, width, dtype=torch.float32),) * 2
    return HunyuanDiT2DModel(
        num_attention_heads=heads, attention_head_dim=width, in_channels=4, patch_size=2, sample_size=side,
        hidden_size=heads * width, mlp_ratio=4.3637, num_layers=40, cross_attention_dim=1024, cross_attention_dim_t5=2048,
        text_len=clip, text_len_t5=t5, activation_fn="gelu-approximate"), {
            "hidden_states": x(2, 4, side, side), "timestep": x(2), "encoder_hidden_states": x(2, clip, 1024),
            "text_embedding_mask": x(2, clip), "encoder_hidden_states_t5": x(2, t5, 2048),
            "text_embedding_mask_t5": x(2, t5), "image_meta_size": x(2, 6), "style": x(2, dtype=torch.long),
            "image_rotary_emb": rope}


def cogvideox(small):
    heads, width, size, frames = (2, 16, (4, 4), 1) if small else (48, 64, (60, 90), 13)
    text, wide = (2, 32) if small else (226, 4096)
    rope = (x(frames * size[0] * size[1] // 4, width, dtype=torch.float32),) * 2
    return CogVideoXTransformer3DModel(
        num_attention_heads=heads, attention_head_dim=width, num_layers=42, use_rotary_positional_embeddings=True,
        text_embed_dim=wide, max_text_seq_length=text,
        sample_width=size[1], sample_height=size[0], sample_frames=4 * frames - 3), {
            "hidden_states": x(2, frames, 16, *size), "encoder_hidden_states": x(2, text, wide), "timestep": x(2),
            "image_rotary_emb": rope}


def kernels(make):
    with torch.device("meta"):
        model, inputs = make(False)
    model = model.to("meta").to(torch.bfloat16).eval()
    attention = torch.nn.functional.scaled_dot_product_attention
    with Kernels() as found, torch.device("meta"):
        torch.nn.functional.scaled_dot_product_attention = found.attention
        model(**inputs)
    torch.nn.functional.scaled_dot_product_attention = attention
    return +found.counts


def seconds(make):
    model, inputs = make(True)
    model, best = model.to(torch.bfloat16).eval(), float("inf")
    for _ in range(10):
        begin = time.process_time()
        model(**inputs)
        best = min(best, time.process_time() - begin)
    return best


def main():
    torch.set_num_threads(1)
    models = {"flux": flux, "pixart": pixart, "sd3": sd3, "hunyuan": hunyuan, "cogvideox": cogvideox}
    with torch.no_grad():
        for name in sys.argv[1:] or models:
            found = kernels(models[name])
            host = seconds(models[name]) / found.total() * 1e6
            print(f"{name}: {found.total()} kernels, {host:.1f} us of the host each; {dict(found.most_common(8))}", flush=True)


if __name__ == "__main__":
    main()
