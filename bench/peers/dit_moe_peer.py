"""Compares a forward pass of DiT-MoE-S/2, B/2 and XL/2 (8 experts, top 2, random weights, bf16, two rows
of 256 tokens) in PyTorch with Tessera's.

eager: like the published code (experts one by one over sorted ids, each adding into the sum;
fused scaled_dot_product_attention). best: gate and up in one product, rows grouped once, the weighted
sum in one go; on a CPU with oneDNN's packed weights in every product, on a GPU with grouped_mm.
compiled (on a GPU): best through torch.compile; compiled_graphed: compiled as a CUDA graph.

    TESSERA_BENCH=build/release/bench python bench/peers/dit_moe_peer.py [threads] [sizes] [--device cuda]

Sizes are words like s, b, xl, or xl:1024:4 for 1024 tokens a row and 4 blocks.
"""
import sys

import torch
from torch.nn.functional import layer_norm, linear, scaled_dot_product_attention, silu

from alternate import compare, finish, graphed, program, take_device

ROWS, EXPERTS, SLOTS = 2, 8, 2
SIZES = {"s": (12, 384, 6), "b": (12, 768, 12), "xl": (28, 1152, 16)}
GPU_SIZES = "xl:1024:6,xl:4096:6"
grouped_mm = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm


def weight(n, k):
    return (torch.rand(n, k) * 2 - 1).mul_(k ** -0.5).bfloat16()


class Packed:
    """A product with weights packed by oneDNN for `rows` rows."""

    def __init__(self, w, bias, rows, post="none"):
        self.w = torch.ops.mkldnn._reorder_linear_weight(w, rows)
        self.bias, self.post = bias, post

    def __call__(self, x):
        return torch.ops.mkldnn._linear_pointwise(x.contiguous(), self.w, self.bias, self.post, [], "")


class Plain:
    def __init__(self, w, bias=None):
        self.w, self.bias = w, bias

    def __call__(self, x):
        return linear(x, self.w, self.bias)


class Block:
    def __init__(self, d, heads, tokens):
        self.tokens = tokens
        zeros = lambda n: torch.zeros(n).bfloat16()
        self.d, self.heads = d, heads
        self.ada = Plain(weight(6 * d, d), zeros(6 * d))
        self.qkv, self.proj = Plain(weight(3 * d, d), zeros(3 * d)), Plain(weight(d, d), zeros(d))
        self.gate = weight(EXPERTS, d)
        mlp = lambda width: (Plain(weight(width, d)), Plain(weight(width, d)), Plain(weight(d, width)))
        self.experts = [mlp(4 * d) for _ in range(EXPERTS)]
        self.shared = mlp(2 * d)

    def stack(self):
        """Stacks all experts in a tensor, for grouped_mm."""
        self.ups = torch.stack([torch.cat([e[0].w, e[1].w]) for e in self.experts]).transpose(-2, -1)
        self.downs = torch.stack([e[2].w for e in self.experts]).transpose(-2, -1)
        self.shared_up = torch.cat([self.shared[0].w, self.shared[1].w])

    def pack(self):
        rows = ROWS * self.tokens
        for name in ("qkv", "proj"):
            plain = getattr(self, name)
            setattr(self, name + "_packed", Packed(plain.w, plain.bias, rows))
        fuse = lambda e, n: (Packed(torch.cat([e[0].w, e[1].w]), None, n), Packed(e[2].w, None, n))
        self.experts_packed = [fuse(e, rows * SLOTS // EXPERTS) for e in self.experts]
        self.shared_packed = fuse(self.shared, rows)

    def attention(self, x, qkv, proj):
        q, k, v = qkv(x).reshape(ROWS, self.tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return proj(scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape))

    def route(self, x):
        scores = linear(x, self.gate).softmax(-1)
        return torch.topk(scores, SLOTS, dim=-1, sorted=False)

    def moe_eager(self, x):
        mlp = lambda e, rows: e[2](silu(e[0](rows)) * e[1](rows))
        flat = x.view(-1, self.d)
        weights, ids = self.route(flat)
        ids, weights = ids.view(-1), weights.view(-1, 1)
        y = torch.zeros_like(flat)
        order = ids.argsort()
        ends = ids.bincount(minlength=EXPERTS).cumsum(0).tolist()
        begin = 0
        for e, end in enumerate(ends):
            if begin == end:
                continue
            tokens = order[begin:end] // SLOTS
            out = mlp(self.experts[e], flat[tokens])
            out.mul_(weights[order[begin:end]])
            y.scatter_reduce_(0, tokens.view(-1, 1).repeat(1, self.d), out, reduce="sum")
            begin = end
        return y.view(x.shape) + mlp(self.shared, x)

    def moe_best(self, x):
        def mlp(e, rows):
            gate, up = e[0](rows).chunk(2, dim=-1)
            return e[1](silu(gate).mul_(up))

        flat = x.view(-1, self.d)
        weights, ids = self.route(flat)
        ids = ids.view(-1)
        order = ids.argsort()
        rows, out, begin = flat[order // SLOTS], torch.empty(len(ids), self.d).bfloat16(), 0
        for e, count in enumerate(ids.bincount(minlength=EXPERTS).tolist()):
            if count:
                out[order[begin:begin + count]] = mlp(self.experts_packed[e], rows[begin:begin + count])
                begin += count
        y = torch.bmm(weights.view(-1, 1, SLOTS), out.view(-1, SLOTS, self.d)).view(x.shape)
        return y + mlp(self.shared_packed, x)

    def moe_grouped(self, x):
        flat = x.view(-1, self.d)
        weights, ids = self.route(flat)
        ids = ids.view(-1)
        order = ids.argsort()
        every = torch.arange(EXPERTS, device=ids.device)
        ends = (ids[None] == every[:, None]).sum(1).cumsum(0).to(torch.int32)
        gate, up = grouped_mm(flat[order // SLOTS], self.ups, offs=ends).chunk(2, dim=-1)
        rows = grouped_mm(silu(gate) * up, self.downs, offs=ends)
        out = torch.empty_like(rows)
        out[order] = rows
        y = torch.bmm(weights.view(-1, 1, SLOTS), out.view(-1, SLOTS, self.d)).view(x.shape)
        gate, up = linear(x, self.shared_up).chunk(2, dim=-1)
        return y + linear(silu(gate) * up, self.shared[2].w)

    def __call__(self, x, c, way):
        m = self.ada(c).unsqueeze(1).chunk(6, dim=-1)
        norm = lambda v, i: layer_norm(v, (self.d,), eps=1e-6) * (1 + m[i + 1]) + m[i]
        qkv, proj = (self.qkv_packed, self.proj_packed) if way == "packed" else (self.qkv, self.proj)
        x = x + m[2] * self.attention(norm(x, 0), qkv, proj)
        moe = {"eager": self.moe_eager, "packed": self.moe_best, "grouped": self.moe_grouped}[way]
        return x + m[5] * moe(norm(x, 3))


def variants(word, device):
    size, tokens, depth = (word.split(":") + ["256", "0"][word.count(":"):])[:3]
    tokens, d, heads = int(tokens), SIZES[size][1], SIZES[size][2]
    best = "packed" if device == "cpu" else "grouped"
    blocks = [Block(d, heads, tokens) for _ in range(int(depth) or SIZES[size][0])]
    for b in blocks:
        b.pack() if best == "packed" else b.stack()
    ends = [weight(d, 16), weight(2 * d, d), weight(32, d)]
    latent, condition = torch.randn(ROWS, tokens, 16).bfloat16(), torch.randn(ROWS, d).bfloat16()

    def run(way):
        x, c = linear(latent, ends[0]), silu(condition)
        for b in blocks:
            x = b(x, c, way)
        shift, scale = linear(c, ends[1]).unsqueeze(1).chunk(2, dim=-1)
        return linear(layer_norm(x, (d,), eps=1e-6) * (1 + scale) + shift, ends[2])

    gap = (run(best) - run("eager")).float().norm() / run("eager").float().norm()
    assert gap < 0.05, f"the two ways differ by {gap}"
    ways = {"eager": lambda: run("eager"), "best": lambda: run(best)}
    if device == "cuda":
        torch._dynamo.reset()
        fast = torch.compile(run)
        ways["compiled"] = lambda: fast(best)
        ways["compiled_graphed"] = graphed(ways["compiled"])
    return ways


def main():
    device, words = take_device(sys.argv[1:])
    threads = int(words[0]) if words else 1
    torch.set_num_threads(threads)
    torch.set_default_device(device)
    sizes = words[1] if len(words) > 1 else "s,b" if device == "cpu" else GPU_SIZES
    with torch.inference_mode():
        for size in sizes.split(","):
            compare(program("dit_moe_bench"), threads, size, variants(size, device), rounds=2, device=device)
    finish()


if __name__ == "__main__":
    main()
