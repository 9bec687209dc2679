"""PixArt's transformer (Chen et al. 2023) under the parameter names of diffusers, and the encoder of a T5 under those of
transformers."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from dit_moe import positions
from mmdit import FeedForward, Two, modulate

T5_CONFIG = {
    "architectures": ["T5EncoderModel"],
    "model_type": "t5",
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_layers": 3,
    "num_heads": 4,
    "feed_forward_proj": "gated-gelu",
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "layer_norm_epsilon": 1e-6,
    "is_encoder_decoder": False,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
CONFIG = {
    "_class_name": "PixArtTransformer2DModel",
    "sample_size": 16,
    "patch_size": 2,
    "interpolation_scale": 1,
    "in_channels": 4,
    "out_channels": 4,
    "num_layers": 8,
    "num_attention_heads": 4,
    "attention_head_dim": 32,
    "cross_attention_dim": 128,
    "caption_channels": T5_CONFIG["d_model"],
    "attention_bias": True,
    "norm_type": "ada_norm_single",
    "norm_elementwise_affine": False,
    "use_additional_conditions": False,
}


class Norm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


def linear(i, o, deviation):
    layer = nn.Linear(i, o, bias=False)
    nn.init.normal_(layer.weight, std=deviation)
    return layer


def t5_buckets(length):
    """[query, key] -> the bucket of key - query, of 32 up to a distance of 128."""
    far = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    side, far = 16 * (far > 0), far.abs()
    beyond = 8 + (torch.log(far.clamp(min=1) / 8) / math.log(128 / 8) * 8).long()
    return side + torch.where(far < 8, far, beyond.clamp(max=15))


class T5Layer(nn.Module):
    def __init__(self, c, first):
        super().__init__()
        d, inner, wide = c["d_model"], c["num_heads"] * c["d_kv"], c["d_ff"]
        attend, feed = nn.Module(), nn.Module()
        attend.SelfAttention, attend.layer_norm = nn.Module(), Norm(d)
        parts = attend.SelfAttention
        parts.q = linear(d, inner, (d * c["d_kv"]) ** -0.5)
        parts.k, parts.v, parts.o = linear(d, inner, d**-0.5), linear(d, inner, d**-0.5), linear(inner, d, inner**-0.5)
        if first:
            parts.relative_attention_bias = nn.Embedding(c["relative_attention_num_buckets"], c["num_heads"])
        feed.DenseReluDense, feed.layer_norm = nn.Module(), Norm(d)
        feed.DenseReluDense.wi_0, feed.DenseReluDense.wi_1 = linear(d, wide, d**-0.5), linear(d, wide, d**-0.5)
        feed.DenseReluDense.wo = linear(wide, d, wide**-0.5)
        self.heads, self.layer = c["num_heads"], nn.ModuleList([attend, feed])

    def forward(self, x, bias):
        attend, feed = self.layer
        h, parts = attend.layer_norm(x), attend.SelfAttention
        q, k, v = (f(h).unflatten(2, (self.heads, -1)).transpose(1, 2) for f in (parts.q, parts.k, parts.v))
        x = x + parts.o(F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1).transpose(1, 2).flatten(2))
        h, parts = feed.layer_norm(x), feed.DenseReluDense
        return x + parts.wo(F.gelu(parts.wi_0(h), approximate="tanh") * parts.wi_1(h))


class T5(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.config = c = dict(T5_CONFIG, vocab_size=vocabulary)
        self.shared, self.encoder = nn.Embedding(vocabulary, c["d_model"]), nn.Module()
        self.encoder.block = nn.ModuleList([T5Layer(c, i == 0) for i in range(c["num_layers"])])
        self.encoder.final_layer_norm = Norm(c["d_model"])

    def forward(self, ids, mask):
        """ids [n, t], mask of them [n, t] -> [n, t, width]."""
        table = self.encoder.block[0].layer[0].SelfAttention.relative_attention_bias
        bias = table(t5_buckets(ids.shape[1])).permute(2, 0, 1) + unseen(mask)
        x = self.shared(ids)
        for block in self.encoder.block:
            x = block(x, bias)
        return self.encoder.final_layer_norm(x)


def unseen(mask):
    """Added to scores, so that nobody attends to tokens that are none."""
    return torch.zeros(mask.shape).masked_fill(~mask, -1e9)[:, None, None]


class Attention(nn.Module):
    def __init__(self, d, dim):
        super().__init__()
        self.heads = d // dim
        self.to_q, self.to_k, self.to_v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.to_out = nn.ModuleList([nn.Linear(d, d)])

    def forward(self, x, to, mask=None):
        q, k, v = (f(h).unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for f, h in ((self.to_q, x), (self.to_k, to), (self.to_v, to)))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.to_out[0](y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, d, dim):
        super().__init__()
        self.attn1, self.attn2, self.ff = Attention(d, dim), Attention(d, dim), FeedForward(d)
        self.scale_shift_table = nn.Parameter(torch.randn(6, d) / d**0.5)

    def forward(self, x, text, condition, mask):
        a, b, g, e, f, h = (self.scale_shift_table + condition).unsqueeze(2).unbind(1)
        y = modulate(x, a, b)
        x = x + g * self.attn1(y, y)
        x = x + self.attn2(x, text, mask)
        return x + h * self.ff(modulate(x, e, f))


class PixArt(nn.Module):
    def __init__(self, c=None):
        super().__init__()
        self.config = c = c or CONFIG
        d, p = c["cross_attention_dim"], c["patch_size"]
        self.side = c["sample_size"] // p
        self.pos_embed, self.adaln_single = nn.Module(), nn.Module()
        self.pos_embed.proj = nn.Conv2d(c["in_channels"], d, p, stride=p)
        self.register_buffer("places", positions(self.side, d, 0, 1 / c["interpolation_scale"]), persistent=False)
        self.adaln_single.emb, self.adaln_single.linear = nn.Module(), nn.Linear(d, 6 * d)
        self.adaln_single.emb.timestep_embedder = Two(256, d)
        self.caption_projection = nn.ModuleDict(
            {"linear_1": nn.Linear(c["caption_channels"], d), "linear_2": nn.Linear(d, d)})
        self.transformer_blocks = nn.ModuleList([Block(d, c["attention_head_dim"]) for _ in range(c["num_layers"])])
        self.scale_shift_table = nn.Parameter(torch.randn(2, d) / d**0.5)
        self.proj_out = nn.Linear(d, p * p * c["out_channels"])
        for layer in (self.adaln_single.linear, self.proj_out):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x, t, text, mask):
        """x [n, 4, 16, 16], t [n] in (0, 1], text [n, tokens, width] and its mask -> velocity like x."""
        half = 128
        waves = 1000 * t[:, None] * torch.exp(-math.log(10000) * torch.arange(half) / half)
        time = self.adaln_single.emb.timestep_embedder(torch.cat([waves.cos(), waves.sin()], dim=1))
        condition = self.adaln_single.linear(F.silu(time)).unflatten(1, (6, -1))
        first, second = self.caption_projection.values()
        text, seen = second(F.gelu(first(text), approximate="tanh")), unseen(mask)
        h = self.pos_embed.proj(x).flatten(2).transpose(1, 2) + self.places
        for block in self.transformer_blocks:
            h = block(h, text, condition, seen)
        shift, scale = (self.scale_shift_table + time[:, None]).unsqueeze(2).unbind(1)
        h = self.proj_out(modulate(h, shift, scale))
        p, s = self.config["patch_size"], self.side
        return h.view(len(x), s, s, p, p, -1).permute(0, 5, 1, 3, 2, 4).reshape(len(x), -1, s * p, s * p)
