"""SD3's MM-DiT (Esser et al. 2024) under the parameter names of diffusers."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from dit_moe import positions

CONFIG = {
    "_class_name": "SD3Transformer2DModel",
    "sample_size": 16,
    "patch_size": 2,
    "in_channels": 4,
    "out_channels": 4,
    "num_layers": 8,
    "num_attention_heads": 4,
    "attention_head_dim": 32,
    "caption_projection_dim": 128,
    "joint_attention_dim": 128,
    "pooled_projection_dim": 128,
    "pos_embed_max_size": 16,
    "dual_attention_layers": [],
    "qk_norm": "rms_norm",
}
EMPTY = 256  # tokens of zeros that the pipeline puts where a T5 is missing


class RmsNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class FeedForward(nn.Module):
    def __init__(self, d):
        super().__init__()
        first = nn.Module()
        first.proj = nn.Linear(d, 4 * d)
        self.net = nn.ModuleList([first, nn.Identity(), nn.Linear(4 * d, d)])

    def forward(self, x):
        return self.net[2](F.gelu(self.net[0].proj(x), approximate="tanh"))


class Modulation(nn.Module):
    def __init__(self, d, parts):
        super().__init__()
        self.parts, self.linear = parts, nn.Linear(d, parts * d)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, c):
        return self.linear(F.silu(c))[:, None].chunk(self.parts, dim=-1)


def modulate(x, shift, scale):
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift


class Attention(nn.Module):
    """One attention over text and image, with weights of its own for each."""

    def __init__(self, d, dim, last):
        super().__init__()
        self.heads = d // dim
        for name in ("to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj"):
            setattr(self, name, nn.Linear(d, d))
        for name in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
            setattr(self, name, RmsNorm(dim))
        self.to_out = nn.ModuleList([nn.Linear(d, d)])
        if not last:
            self.to_add_out = nn.Linear(d, d)

    def split(self, x):
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, x, c, mask):
        text = c.shape[1]
        q = torch.cat([self.norm_added_q(self.split(self.add_q_proj(c))), self.norm_q(self.split(self.to_q(x)))], 2)
        k = torch.cat([self.norm_added_k(self.split(self.add_k_proj(c))), self.norm_k(self.split(self.to_k(x)))], 2)
        v = torch.cat([self.split(self.add_v_proj(c)), self.split(self.to_v(x))], 2)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        told = self.to_add_out(y[:, :text]) if hasattr(self, "to_add_out") else None
        return self.to_out[0](y[:, text:]), told


class Block(nn.Module):
    def __init__(self, d, dim, last):
        super().__init__()
        self.last = last
        self.attn, self.ff = Attention(d, dim, last), FeedForward(d)
        self.norm1, self.norm1_context = Modulation(d, 6), Modulation(d, 2 if last else 6)
        if not last:
            self.ff_context = FeedForward(d)

    def forward(self, x, c, condition, mask):
        a, b, g, e, f, h = self.norm1(condition)
        m = self.norm1_context(condition)
        told = modulate(c, m[1], m[0]) if self.last else modulate(c, m[0], m[1])
        y, told = self.attn(modulate(x, a, b), told, mask)
        x = x + g * y
        x = x + h * self.ff(modulate(x, e, f))
        if not self.last:
            c = c + m[2] * told
            c = c + m[5] * self.ff_context(modulate(c, m[3], m[4]))
        return x, c


class Two(nn.Module):
    def __init__(self, i, d):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(i, d), nn.Linear(d, d)

    def forward(self, x):
        return self.linear_2(F.silu(self.linear_1(x)))


class MMDiT(nn.Module):
    def __init__(self, c=None, empty=EMPTY):
        super().__init__()
        self.config, self.empty = c or CONFIG, empty
        c = self.config
        d, p = c["caption_projection_dim"], c["patch_size"]
        self.side, most = c["sample_size"] // p, c["pos_embed_max_size"]
        self.pos_embed = nn.Module()
        self.pos_embed.proj = nn.Conv2d(c["in_channels"], d, p, stride=p)
        self.pos_embed.register_buffer("pos_embed", positions(most, d))
        self.time_text_embed = nn.ModuleDict(
            {"timestep_embedder": Two(256, d), "text_embedder": Two(c["pooled_projection_dim"], d)})
        self.context_embedder = nn.Linear(c["joint_attention_dim"], d)
        layers = c["num_layers"]
        self.transformer_blocks = nn.ModuleList(
            [Block(d, c["attention_head_dim"], i + 1 == layers) for i in range(layers)])
        self.norm_out = Modulation(d, 2)
        self.proj_out = nn.Linear(d, p * p * c["out_channels"])
        nn.init.zeros_(self.proj_out.weight)
        nn.init.zeros_(self.proj_out.bias)
        from_ = (most - self.side) // 2
        middle = torch.arange(most * most).view(most, most)[from_ : from_ + self.side, from_ : from_ + self.side]
        self.register_buffer("middle", middle.flatten(), persistent=False)

    def forward(self, x, t, text, pooled):
        """x [n, 4, 16, 16], t [n] in (0, 1], text [n, tokens, width], pooled [n, width] -> velocity like x.

        The zeros behind the text are alike in every layer: one stands for all of them, as often as they are many.
        """
        half = 128
        waves = 1000 * t[:, None] * torch.exp(-math.log(10000) * torch.arange(half) / half)
        condition = self.time_text_embed["timestep_embedder"](torch.cat([waves.cos(), waves.sin()], dim=1))
        condition = condition + self.time_text_embed["text_embedder"](pooled)
        c = self.context_embedder(F.pad(text, (0, 0, 0, 1)))
        h = self.pos_embed.proj(x).flatten(2).transpose(1, 2) + self.pos_embed.pos_embed[:, self.middle]
        mask = torch.zeros(c.shape[1] + h.shape[1], dtype=h.dtype)
        mask[text.shape[1]] = math.log(self.empty)
        mask = mask.expand(len(x), 1, len(mask), len(mask))
        for block in self.transformer_blocks:
            h, c = block(h, c, condition, mask)
        scale, shift = self.norm_out(condition)
        h = self.proj_out(modulate(h, shift, scale))
        p, s = self.config["patch_size"], self.side
        return h.view(len(x), s, s, p, p, -1).permute(0, 5, 1, 3, 2, 4).reshape(len(x), -1, s * p, s * p)
