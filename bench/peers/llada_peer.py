"""Compares a forward pass of LLaDA-MoE at full width (random weights, bf16, logits of every position) in
two PyTorch implementations with Tessera's.

eager: like the published code (q, k and v apart, a mask per expert, each adding into the sum;
fused scaled_dot_product_attention). best: fused q, k, v and gate, up, rows grouped once, oneDNN's packed
weights in every product, the weighted sum in one go.

    TESSERA_BENCH=build/release/bench python bench/peers/llada_peer.py [threads] [tokens,...] [layers] [ids]
"""
import sys

import torch
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention, silu

from alternate import compare, program
from dit_moe_peer import Packed, weight

D, HEADS, EXPERTS, SLOTS, WIDTH = 2048, 16, 64, 8, 1024


def rotary(tokens):
    angle = torch.arange(tokens)[:, None] * 10000.0 ** (-torch.arange(64) / 64)[None]
    angle = torch.cat([angle, angle], -1)
    return angle.cos().bfloat16(), angle.sin().bfloat16()


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Block:
    def __init__(self, tokens):
        self.ones, self.head_ones = torch.ones(D).bfloat16(), torch.ones(D // HEADS).bfloat16()
        self.qkv, self.out = weight(3 * D, D), weight(D, D)
        self.gate = weight(EXPERTS, D)
        self.up = [weight(2 * WIDTH, D) for _ in range(EXPERTS)]
        self.down = [weight(D, WIDTH) for _ in range(EXPERTS)]
        rows = max(1, tokens * SLOTS // EXPERTS)
        self.qkv_packed, self.out_packed = Packed(self.qkv, None, tokens), Packed(self.out, None, tokens)
        self.up_packed = [Packed(w, None, rows) for w in self.up]
        self.down_packed = [Packed(w, None, rows) for w in self.down]

    def attention(self, x, cos, sin, best):
        if best:
            q, k, v = self.qkv_packed(x).chunk(3, dim=-1)
        else:
            q, k, v = (linear(x, w) for w in self.qkv.chunk(3))
        q, k, v = (t.view(1, len(x), HEADS, -1).transpose(1, 2) for t in (q, k, v))
        q, k = (rotate(rms_norm(t, (D // HEADS,), self.head_ones, 1e-5), cos, sin) for t in (q, k))
        y = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        return self.out_packed(y) if best else linear(y, self.out)

    def route(self, x):
        return torch.topk(linear(x, self.gate).float().softmax(-1), SLOTS, dim=-1)

    def moe_eager(self, x):
        weights, ids = self.route(x)
        y = torch.zeros_like(x)
        mask = torch.nn.functional.one_hot(ids, EXPERTS).permute(2, 1, 0)
        for e in range(EXPERTS):
            slot, token = torch.where(mask[e])
            if not len(token):
                continue
            gate, up = (linear(x[token], w) for w in self.up[e].chunk(2))
            y.index_add_(0, token, (linear(silu(gate) * up, self.down[e]) * weights[token, slot, None]).bfloat16())
        return y

    def moe_best(self, x):
        weights, ids = self.route(x)
        flat = ids.view(-1)
        order = flat.argsort()
        rows, out, begin = x[order // SLOTS], torch.empty(len(flat), D).bfloat16(), 0
        for e, count in enumerate(flat.bincount(minlength=EXPERTS).tolist()):
            if count:
                gate, up = self.up_packed[e](rows[begin:begin + count]).chunk(2, dim=-1)
                out[order[begin:begin + count]] = self.down_packed[e](silu(gate).mul_(up))
                begin += count
        return torch.bmm(weights.bfloat16().unsqueeze(1), out.view(-1, SLOTS, D)).squeeze(1)

    def __call__(self, x, cos, sin, best):
        x = x + self.attention(rms_norm(x, (D,), self.ones, 1e-5), cos, sin, best)
        return x + (self.moe_best if best else self.moe_eager)(rms_norm(x, (D,), self.ones, 1e-5))


def variants(tokens, layers, ids):
    blocks = [Block(tokens) for _ in range(layers)]
    table, head, ones = torch.randn(ids, D).bfloat16(), weight(ids, D), torch.ones(D).bfloat16()
    head_packed = Packed(head, None, tokens)
    text = torch.arange(tokens) * 977 % ids
    cos, sin = rotary(tokens)

    def run(best):
        x = embedding(text, table)
        for b in blocks:
            x = b(x, cos, sin, best)
        x = rms_norm(x, (D,), ones, 1e-5)
        return head_packed(x) if best else linear(x, head)

    gap = (run(True) - run(False)).float().norm() / run(False).float().norm()
    assert gap < 0.05, f"the two ways differ by {gap}"
    return {"eager": lambda: run(False), "best": lambda: run(True)}


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    layers = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    ids = int(sys.argv[4]) if len(sys.argv) > 4 else 157184
    torch.set_num_threads(threads)
    with torch.inference_mode():
        for tokens in map(int, sys.argv[2].split(",") if len(sys.argv) > 2 else (64, 128)):
            compare(program("llada_bench"), threads, f"{tokens}x{layers}x{ids}",
                    variants(tokens, layers, ids), rounds=3)


if __name__ == "__main__":
    main()
