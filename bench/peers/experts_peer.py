"""A Mixture-of-Experts layer in PyTorch, three ways, beside Tessera's experts.

loop: as published code writes it (a mask per expert); sorted: rows grouped by expert, one product a
segment; packed: sorted, with oneDNN's packed weights.

    TESSERA_BENCH=build/release/bench python bench/peers/experts_peer.py [threads]
"""
import sys

import torch

from alternate import compare, program

SHAPES = [(64, 2048, 1024, 64, 8), (256, 2048, 1024, 64, 8), (256, 384, 1536, 8, 2),
          (512, 768, 3072, 8, 2)]


class Layer:
    def __init__(self, tokens, hidden, inner, experts, slots):
        self.x = torch.randn(tokens, hidden).bfloat16()
        self.ids = torch.stack([torch.randperm(experts)[:slots] for _ in range(tokens)])
        self.weights = torch.full((tokens, slots), 1 / slots).bfloat16()
        scale = hidden ** -0.5
        self.up = [(torch.randn(2 * inner, hidden) * scale).bfloat16() for _ in range(experts)]
        self.down = [(torch.randn(hidden, inner) * scale).bfloat16() for _ in range(experts)]
        self.inner, self.experts, self.slots = inner, experts, slots
        rows = max(1, tokens * slots // experts)
        reorder = torch.ops.mkldnn._reorder_linear_weight
        self.packed_up = [reorder(w, rows) for w in self.up]
        self.packed_down = [reorder(w, rows) for w in self.down]

    def expert(self, rows, up, down, linear):
        gate, value = linear(rows, up).chunk(2, dim=-1)
        return linear(torch.nn.functional.silu(gate) * value, down)

    def loop(self):
        y = torch.zeros_like(self.x)
        for e in range(self.experts):
            token, slot = torch.where(self.ids == e)
            if len(token):
                linear = torch.nn.functional.linear
                out = self.expert(self.x[token], self.up[e], self.down[e], linear)
                y[token] += out * self.weights[token, slot, None]
        return y

    def segments(self, ups, downs, linear):
        order = self.ids.flatten().argsort(stable=True)
        counts = torch.bincount(self.ids.flatten(), minlength=self.experts).tolist()
        rows = self.x[order // self.slots]
        out = torch.empty_like(rows)
        begin = 0
        for e, count in enumerate(counts):
            if count:
                out[begin:begin + count] = self.expert(rows[begin:begin + count], ups[e], downs[e],
                                                       linear)
                begin += count
        back = torch.empty_like(out)
        back[order] = out
        return (back.view(*self.ids.shape, -1) * self.weights[..., None]).sum(1)

    def sorted(self):
        return self.segments(self.up, self.down, torch.nn.functional.linear)

    def packed(self):
        return self.segments(
            self.packed_up, self.packed_down,
            lambda x, w: torch.ops.mkldnn._linear_pointwise(x.contiguous(), w, None, "none", [],
                                                            ""))


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    with torch.inference_mode():
        for shape in SHAPES:
            layer = Layer(*shape)
            compare(program("experts_bench"), threads, "x".join(map(str, shape)),
                    {"loop": layer.loop, "sorted": layer.sorted, "packed": layer.packed})


if __name__ == "__main__":
    main()
