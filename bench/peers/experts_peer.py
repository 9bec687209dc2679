"""Compares Mixture-of-Experts layers in PyTorch with Tessera's experts.

loop: like published code (a mask per expert); sorted: rows grouped by expert, one product a
segment; packed: sorted, with oneDNN's packed weights (CPU); grouped: gather, grouped_mm, SwiGLU,
grouped_mm, combine, without waiting for the GPU; compiled: grouped through torch.compile;
compiled_graphed: compiled as a CUDA graph, like Tessera's.

    TESSERA_BENCH=build/release/bench python bench/peers/experts_peer.py [threads] [shapes] [--device cuda]

Shapes are words like 256x2048x1024x64x8 (tokens, hidden, inner, experts, slots). On a GPU the defaults
are Mixtral, LLaDA-MoE and DiT-MoE-XL; a last line holds the geometric means.
"""
import math
import statistics
import sys

import torch

import alternate
from alternate import compare, finish, program, take_device

SHAPES = [(64, 2048, 1024, 64, 8), (256, 2048, 1024, 64, 8), (256, 384, 1536, 8, 2),
          (512, 768, 3072, 8, 2)]
GPU_LAYERS = [(4096, 14336, 8, 2), (2048, 1024, 64, 8), (1152, 4608, 8, 2)]
GPU_SHAPES = [(tokens, *layer) for layer in GPU_LAYERS for tokens in (256, 1024, 4096, 16384)]
grouped_mm = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm


class Layer:
    def __init__(self, tokens, hidden, inner, experts, slots, device):
        self.x = torch.randn(tokens, hidden).bfloat16()
        self.ids = torch.rand(tokens, experts).argsort(1)[:, :slots].contiguous()
        self.weights = torch.full((tokens, slots), 1 / slots).bfloat16()
        scale = hidden ** -0.5
        self.ups = torch.randn(experts, 2 * inner, hidden, dtype=torch.bfloat16) * scale
        self.downs = torch.randn(experts, hidden, inner, dtype=torch.bfloat16) * scale
        self.up, self.down = list(self.ups), list(self.downs)
        self.inner, self.experts, self.slots = inner, experts, slots
        self.device = device
        if device == "cpu":
            rows = max(1, tokens * slots // experts)
            reorder = torch.ops.mkldnn._reorder_linear_weight
            self.packed_up = [reorder(w.contiguous(), rows) for w in self.up]
            self.packed_down = [reorder(w.contiguous(), rows) for w in self.down]

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

    def combine(self, out, order):
        back = torch.empty_like(out)
        back[order] = out
        return (back.view(*self.ids.shape, -1) * self.weights[..., None]).sum(1)

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
        return self.combine(out, order)

    def sorted(self):
        return self.segments(self.up, self.down, torch.nn.functional.linear)

    def packed(self):
        return self.segments(
            self.packed_up, self.packed_down,
            lambda x, w: torch.ops.mkldnn._linear_pointwise(x.contiguous(), w, None, "none", [],
                                                            ""))

    def grouped(self):
        ids = self.ids.flatten()
        order = ids.argsort(stable=True)
        every = torch.arange(self.experts, device=ids.device)
        ends = (ids[None] == every[:, None]).sum(1).cumsum(0).to(torch.int32)
        rows = self.x[order // self.slots]
        gate, value = grouped_mm(rows, self.ups.transpose(-2, -1), offs=ends).chunk(2, dim=-1)
        inside = torch.nn.functional.silu(gate) * value
        return self.combine(grouped_mm(inside, self.downs.transpose(-2, -1), offs=ends), order)

    def variants(self):
        ways = {"loop": self.loop, "sorted": self.sorted}
        if self.device == "cpu":
            return {**ways, "packed": self.packed, "grouped": self.grouped}
        torch._dynamo.reset()
        fast = torch.compile(self.grouped)
        return {**ways, "grouped": self.grouped, "compiled": fast, "compiled_graphed": alternate.graphed(fast)}

    def check(self):
        right, got = self.loop().float(), self.grouped().float()
        gap = ((got - right).norm() / right.norm()).item()
        assert gap < 0.02, f"grouped products differ from the loop by {gap}"


def geometric_means(lines):
    """Geometric means of all ratios present for every shape."""
    lines = [line for line in lines if "error" not in line] or [{}]
    names = [n for n in lines[0] if n.endswith("_over_tessera") and all(n in line for line in lines)]
    return {n: round(math.exp(statistics.mean(math.log(line[n]) for line in lines)), 3) for n in names}


def main():
    device, words = take_device(sys.argv[1:])
    threads = int(words[0]) if words else 1
    shapes = SHAPES if device == "cpu" else GPU_SHAPES
    if len(words) > 1:
        shapes = [tuple(map(int, word.split("x"))) for word in words[1].split(",")]
    torch.set_default_device(device)
    lines = []
    with torch.inference_mode():
        for shape in shapes:
            layer = Layer(*shape, device)
            layer.check()
            lines.append(compare(program("experts_bench"), threads, "x".join(map(str, shape)),
                                 layer.variants(), device=device))
    alternate.print_json({"shape": "geometric mean", **geometric_means(lines)})
    finish()


if __name__ == "__main__":
    main()
