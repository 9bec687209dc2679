"""Compares text encoders of published width with few layers (random weights, bf16, one text) in PyTorch,
like transformers (weights stay in memory), with Tessera's with packed weights kept in memory: medians of
seven turns. openvino: the same modules in OpenVINO.

    TESSERA_BENCH=build/release/bench python bench/peers/text_encoders_peer.py [threads] [encoders] [openvino]

Encoders are words like t5,qwen3:77: a name, and the tokens of the text behind a colon.
"""
import statistics
import sys

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention, silu

from alternate import by_openvino, compare, program

SIZES = {"t5": (4096, 64, 10240, 2, 256), "clip_l": (768, 12, 3072, 6, 77),
         "clip_g": (1280, 20, 5120, 6, 77), "bert": (1024, 16, 4096, 6, 77), "qwen3": (2560, 32, 9728, 3, 512)}


class Attention(nn.Module):
    def __init__(self, d, heads, bias):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=bias) for _ in range(4))

    def forward(self, x, mask, causal, scale):
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale)
        return self.o(y.transpose(1, 2).flatten(2))


class T5Layer(nn.Module):
    def __init__(self, d, heads, wide):
        super().__init__()
        self.attention = Attention(d, heads, False)
        self.norm1, self.norm2 = nn.RMSNorm(d, eps=1e-6), nn.RMSNorm(d, eps=1e-6)
        self.gate, self.up, self.down = (nn.Linear(i, o, bias=False) for i, o in ((d, wide), (d, wide), (wide, d)))

    def forward(self, x, bias):
        x = x + self.attention(self.norm1(x), bias, False, 1.0)
        y = self.norm2(x)
        return x + self.down(gelu(self.gate(y), approximate="tanh") * self.up(y))


class Layer(nn.Module):
    """A layer of CLIP (pre-norm) or BERT (post-norm)."""

    def __init__(self, d, heads, wide, kind):
        super().__init__()
        self.kind, self.attention = kind, Attention(d, heads, True)
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, wide), nn.Linear(wide, d)

    def activate(self, x):
        return x * torch.sigmoid(1.702 * x) if self.kind == "clip_l" else gelu(x)

    def forward(self, x, bias):
        if self.kind == "bert":
            x = self.norm1(x + self.attention(x, None, False, None))
            return self.norm2(x + self.down(self.activate(self.up(x))))
        x = x + self.attention(self.norm1(x), None, True, None)
        return x + self.down(self.activate(self.up(self.norm2(x))))


class Qwen3Layer(nn.Module):
    """Grouped queries, a norm of each head, rotary halves, a causal mask, SwiGLU."""

    def __init__(self, d, heads, wide, tokens, dim=128, key_heads=8):
        super().__init__()
        linear = lambda i, o: nn.Linear(i, o, bias=False)
        self.dim, self.norms = dim, nn.ModuleList(nn.RMSNorm(n, eps=1e-6) for n in (d, d, dim, dim))
        self.q, self.k, self.v = (linear(d, n * dim) for n in (heads, key_heads, key_heads))
        self.o, self.gate, self.up, self.down = linear(heads * dim, d), linear(d, wide), linear(d, wide), linear(wide, d)
        angles = torch.arange(tokens)[:, None] * 1e6 ** (-torch.arange(0, dim, 2) / dim)
        angles = torch.cat([angles, angles], -1)
        self.cos, self.sin = (nn.Parameter(t, requires_grad=False) for t in (angles.cos(), angles.sin()))

    def turned(self, x):
        left, right = x.chunk(2, -1)
        return x * self.cos + torch.cat([-right, left], -1) * self.sin

    def forward(self, x, bias):
        y = self.norms[0](x)
        q, k, v = (f(y).unflatten(-1, (-1, self.dim)) for f in (self.q, self.k, self.v))
        q, k = self.turned(self.norms[2](q).transpose(1, 2)), self.turned(self.norms[3](k).transpose(1, 2))
        y = scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        return x + self.down(silu(self.gate(y)) * self.up(y))


class Encoder(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, bias):
        for layer in self.layers:
            x = layer(x, bias)
        return x


def variants(word, threads, with_openvino):
    name, _, asked = word.partition(":")
    d, heads, wide, layers, tokens = SIZES[name]
    tokens = int(asked or tokens)
    make = {"t5": lambda: T5Layer(d, heads, wide), "qwen3": lambda: Qwen3Layer(d, heads, wide, tokens)}.get(
        name, lambda: Layer(d, heads, wide, name))
    stack = Encoder(make() for _ in range(layers)).bfloat16().eval()
    x, bias = torch.randn(1, tokens, d).bfloat16(), torch.randn(1, heads, tokens, tokens).bfloat16()
    ways = {"eager": lambda: stack(x, bias)}
    if with_openvino:
        ways["openvino"] = by_openvino(stack, (x, bias), threads)
    return ways


def main():
    words = [word for word in sys.argv[1:] if word != "openvino"]
    threads = int(words[0]) if words else 1
    torch.set_num_threads(threads)
    with torch.inference_mode():
        for name in words[1].split(",") if len(words) > 1 else SIZES:
            compare(program("text_encoders_bench"), threads, name, variants(name, threads, "openvino" in sys.argv),
                    rounds=7, of=statistics.median)


if __name__ == "__main__":
    main()
