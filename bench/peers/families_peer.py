"""Compares a forward pass of the transformers of seven families at full width with few blocks (random
weights, bf16, one row) in PyTorch, like diffusers, with Tessera's.

eager: unmodified modules, fused scaled_dot_product_attention. compiled: torch.compile, on a CPU with
frozen weights packed by oneDNN (a minute or two to compile each). compiled_graphed: compiled as a CUDA graph.
openvino: the same modules in OpenVINO (CPU).

    TESSERA_BENCH=build/release/bench python bench/peers/families_peer.py [threads] [shapes] [compile]
                                                                          [openvino] [--device cuda]

Shapes are words like pixart:1024,flux:4096; all families at both sizes without them.
"""
import sys

import torch
from torch import nn
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention, silu

from alternate import by_openvino, compare, finish, graphed, program, take_device

SIZES = {  # heads, head width, text tokens, text width, blocks
    "pixart": (16, 72, 300, 1152, 3),
    "sd3": (24, 64, 333, 1536, 3),
    "flux": (24, 128, 512, 3072, (1, 2)),
    "hunyuan": (16, 88, 333, 1024, 4),
    "cogvideox": (30, 64, 226, 1920, 3),
    "klein": (24, 128, 512, 3072, (1, 2)),
    "z_image": (30, 128, 512, 3840, (1, 2)),
}
ROTARY = ("flux", "hunyuan", "klein", "z_image")


def norm(x):
    return layer_norm(x, x.shape[-1:], eps=1e-6)


def modulate(x, shift, scale):
    return norm(x) * (1 + scale) + shift


class FeedForward(nn.Module):
    def __init__(self, d, wide):
        super().__init__()
        self.up, self.down = nn.Linear(d, wide), nn.Linear(wide, d)

    def forward(self, x):
        return self.down(gelu(self.up(x), approximate="tanh"))


class Heads(nn.Module):
    """Queries, keys and values, normalised by head depending on `kind`."""

    def __init__(self, heads, dim, kind="", keys=0, bias=True):
        super().__init__()
        d = heads * dim
        self.heads, self.kind = heads, kind
        self.q, self.k, self.v = (nn.Linear(n, d, bias=bias) for n in (d, keys or d, keys or d))
        if kind:
            make = nn.LayerNorm if kind == "layer" else nn.RMSNorm
            self.norm_q, self.norm_k = make(dim, eps=1e-6), make(dim, eps=1e-6)

    def forward(self, x, other=None):
        split = lambda y: y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        other = x if other is None else other
        q, k, v = split(self.q(x)), split(self.k(other)), split(self.v(other))
        return (self.norm_q(q), self.norm_k(k), v) if self.kind else (q, k, v)


def attend(q, k, v):
    return scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def rotate(x, angles):
    cos, sin = angles
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([-odd, even], -1).flatten(-2)
    return (x.float() * cos + turned * sin).to(x.dtype)


class Pixart(nn.Module):
    def __init__(self, heads, dim, text):
        super().__init__()
        d = heads * dim
        self.table = nn.Parameter(torch.randn(6, d) / d**0.5)
        self.self, self.out = Heads(heads, dim), nn.Linear(d, d)
        self.cross, self.cross_out = Heads(heads, dim, keys=text), nn.Linear(d, d)
        self.ff = FeedForward(d, 4 * d)

    def forward(self, x, c, m, angles):
        m = (self.table[None] + m.unflatten(-1, (6, -1))).chunk(6, dim=1)
        x = x + m[2] * self.out(attend(*self.self(modulate(x, m[0], m[1]))))
        x = x + self.cross_out(attend(*self.cross(x, c)))
        return x + m[5] * self.ff(modulate(x, m[3], m[4])), c


class Joint(nn.Module):
    """A block of SD3, or a double block of FLUX."""

    def __init__(self, heads, dim, kind, last=False):
        super().__init__()
        d = heads * dim
        self.last, self.kind = last, kind
        self.x, self.c = Heads(heads, dim, kind), Heads(heads, dim, kind)
        self.x_ada, self.c_ada = nn.Linear(d, 6 * d), nn.Linear(d, (2 if last else 6) * d)
        self.x_out, self.x_ff = nn.Linear(d, d), FeedForward(d, 4 * d)
        if not last:
            self.c_out, self.c_ff = nn.Linear(d, d), FeedForward(d, 4 * d)

    def forward(self, x, c, t, angles):
        m = self.x_ada(silu(t)).unsqueeze(1).chunk(6, dim=-1)
        n = self.c_ada(silu(t)).unsqueeze(1).chunk(2 if self.last else 6, dim=-1)
        q, k, v = (torch.cat(p, 2) for p in zip(self.c(modulate(c, n[0], n[1])), self.x(modulate(x, m[0], m[1]))))
        if angles is not None:
            q, k = rotate(q, angles), rotate(k, angles)
        y = attend(q, k, v)
        text = c.shape[1]
        x = x + m[2] * self.x_out(y[:, text:])
        x = x + m[5] * self.x_ff(modulate(x, m[3], m[4]))
        if not self.last:
            c = c + n[2] * self.c_out(y[:, :text])
            c = c + n[5] * self.c_ff(modulate(c, n[3], n[4]))
        return x, c


class Single(nn.Module):
    """A single block of FLUX: attention and feed-forward in parallel."""

    def __init__(self, heads, dim):
        super().__init__()
        d = heads * dim
        self.heads, self.ada = Heads(heads, dim, "rms"), nn.Linear(d, 3 * d)
        self.up, self.out = nn.Linear(d, 4 * d), nn.Linear(5 * d, d)

    def forward(self, x, c, t, angles):
        text = c.shape[1]
        all = torch.cat([c, x], 1)
        shift, scale, gate = self.ada(silu(t)).unsqueeze(1).chunk(3, dim=-1)
        y = modulate(all, shift, scale)
        q, k, v = self.heads(y)
        y = torch.cat([attend(rotate(q, angles), rotate(k, angles), v), gelu(self.up(y), approximate="tanh")], 2)
        all = all + gate * self.out(y)
        return all[:, text:], all[:, :text]


class SwiGLU(nn.Module):
    def __init__(self, d, wide):
        super().__init__()
        self.wide, self.down = nn.Linear(d, 2 * wide, bias=False), nn.Linear(wide, d, bias=False)

    def forward(self, x):
        gate, up = self.wide(x).chunk(2, -1)
        return self.down(silu(gate) * up)


class KleinJoint(nn.Module):
    """A double block of FLUX.2: its modulation is given, and nothing has a bias."""

    def __init__(self, heads, dim):
        super().__init__()
        d = heads * dim
        self.x, self.c = (Heads(heads, dim, "rms", bias=False) for _ in range(2))
        self.x_out, self.c_out = (nn.Linear(d, d, bias=False) for _ in range(2))
        self.x_ff, self.c_ff = SwiGLU(d, 3 * d), SwiGLU(d, 3 * d)

    def forward(self, x, c, m, n, angles):
        q, k, v = (torch.cat(p, 2) for p in zip(self.c(modulate(c, n[0], n[1])), self.x(modulate(x, m[0], m[1]))))
        y, text = attend(rotate(q, angles), rotate(k, angles), v), c.shape[1]
        x, c = x + m[2] * self.x_out(y[:, text:]), c + n[2] * self.c_out(y[:, :text])
        return x + m[5] * self.x_ff(modulate(x, m[3], m[4])), c + n[5] * self.c_ff(modulate(c, n[3], n[4]))


class KleinSingle(nn.Module):
    """A single block of FLUX.2: one product before, one behind."""

    def __init__(self, heads, dim):
        super().__init__()
        self.heads, self.d = heads, heads * dim
        self.wide, self.out = nn.Linear(self.d, 9 * self.d, bias=False), nn.Linear(4 * self.d, self.d, bias=False)
        self.norm_q, self.norm_k = nn.RMSNorm(dim, eps=1e-6), nn.RMSNorm(dim, eps=1e-6)

    def forward(self, x, m, angles):
        d = self.d
        q, k, v, gate, up = self.wide(modulate(x, m[0], m[1])).split([d, d, d, 3 * d, 3 * d], -1)
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (q, k, v))
        y = attend(rotate(self.norm_q(q), angles), rotate(self.norm_k(k), angles), v)
        return x + m[2] * self.out(torch.cat([y, silu(gate) * up], -1))


class Klein(nn.Module):
    """Blocks of FLUX.2 and the modulation that they share."""

    def __init__(self, heads, dim, depth):
        super().__init__()
        d = heads * dim
        self.x_ada, self.c_ada, self.ada = (nn.Linear(d, n * d, bias=False) for n in (6, 6, 3))
        self.doubles = nn.ModuleList(KleinJoint(heads, dim) for _ in range(depth[0]))
        self.singles = nn.ModuleList(KleinSingle(heads, dim) for _ in range(depth[1]))

    def forward(self, x, c, t, angles):
        m, n, s = (ada(silu(t)).unsqueeze(1).chunk(k, -1) for ada, k in ((self.x_ada, 6), (self.c_ada, 6), (self.ada, 3)))
        for block in self.doubles:
            x, c = block(x, c, m, n, angles)
        all = torch.cat([c, x], 1)
        for block in self.singles:
            all = block(all, s, angles)
        return all[:, c.shape[1]:], c


class ZImageBlock(nn.Module):
    def __init__(self, heads, dim, refines):
        super().__init__()
        d = heads * dim
        self.refines, self.ada = refines, nn.Linear(256, 4 * d)
        self.heads, self.out = Heads(heads, dim, "rms", bias=False), nn.Linear(d, d, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(d, eps=1e-5) for _ in range(4))
        self.ff = SwiGLU(d, d // 3 * 8)

    def forward(self, x, c, t, angles):
        text = 0 if self.refines else c.shape[1]
        y = x if self.refines else torch.cat([c, x], 1)
        angles = tuple(a[-y.shape[1]:] for a in angles)
        a, b, e, f = self.ada(t[:, :256]).unsqueeze(1).chunk(4, -1)
        q, k, v = self.heads(self.norms[0](y) * (1 + a))
        y = y + b.tanh() * self.norms[1](self.out(attend(rotate(q, angles), rotate(k, angles), v)))
        y = y + f.tanh() * self.norms[3](self.ff(self.norms[2](y) * (1 + e)))
        return y[:, text:], c if self.refines else y[:, :text]


class Hunyuan(nn.Module):
    def __init__(self, heads, dim, text, skip):
        super().__init__()
        d = heads * dim
        self.ada, self.norms = nn.Linear(d, d), nn.ModuleList([nn.LayerNorm(d, eps=1e-6) for _ in range(3)])
        self.self, self.out = Heads(heads, dim, "layer"), nn.Linear(d, d)
        self.cross, self.cross_out = Heads(heads, dim, "layer", keys=text), nn.Linear(d, d)
        self.ff = FeedForward(d, int(d * 4.3637))
        if skip:
            self.skip_norm, self.skip = nn.LayerNorm(2 * d, eps=1e-6), nn.Linear(2 * d, d)

    def forward(self, x, c, t, angles, before=None):
        if before is not None:
            x = self.skip(self.skip_norm(torch.cat([x, before], -1)))
        q, k, v = self.self(self.norms[0](x) + self.ada(silu(t))[:, None])
        x = x + self.out(attend(rotate(q, angles), rotate(k, angles), v))
        q, k, v = self.cross(self.norms[1](x), c)
        x = x + self.cross_out(attend(rotate(q, angles), k, v))
        return x + self.ff(self.norms[2](x)), c


class CogVideoX(nn.Module):
    def __init__(self, heads, dim):
        super().__init__()
        d = heads * dim
        self.ada1, self.ada2 = nn.Linear(512, 6 * d), nn.Linear(512, 6 * d)
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.heads, self.out, self.ff = Heads(heads, dim, "layer"), nn.Linear(d, d), FeedForward(d, 4 * d)

    def forward(self, x, c, t, angles):
        text, t = c.shape[1], silu(t[:, :512])

        def both(ada, f, x, c):
            m = ada(t).unsqueeze(1).chunk(6, dim=-1)
            told = f(c) * (1 + m[4]) + m[3]
            return torch.cat([told, f(x) * (1 + m[1]) + m[0]], 1), m[5], m[2]

        y, n, m = both(self.ada1, self.norm1, x, c)
        y = self.out(attend(*self.heads(y)))
        x, c = x + m * y[:, text:], c + n * y[:, :text]
        y, n, m = both(self.ada2, self.norm2, x, c)
        y = self.ff(y)
        return x + m * y[:, text:], c + n * y[:, :text]


class Stack(nn.Module):
    """All blocks, without the first and the last product."""

    def __init__(self, family):
        super().__init__()
        heads, dim, self.text, width, depth = SIZES[family]
        self.family, d = family, heads * dim
        self.channels = {"sd3": 64, "flux": 64, "cogvideox": 64, "klein": 128, "z_image": 64}.get(family, 16)
        self.first, self.last = nn.Linear(self.channels, d), nn.Linear(d, self.channels)
        self.ada, self.one = nn.Linear(d, 2 * d), nn.Linear(d, 6 * d) if family == "pixart" else None
        if family == "flux":
            self.blocks = nn.ModuleList([Joint(heads, dim, "rms") for _ in range(depth[0])]
                                        + [Single(heads, dim) for _ in range(depth[1])])
        elif family == "klein":
            self.blocks = nn.ModuleList([Klein(heads, dim, depth)])
        elif family == "z_image":
            self.blocks = nn.ModuleList([ZImageBlock(heads, dim, i < depth[0]) for i in range(sum(depth))])
        else:
            make = {"pixart": lambda i: Pixart(heads, dim, width),
                    "sd3": lambda i: Joint(heads, dim, "", i + 1 == depth),
                    "hunyuan": lambda i: Hunyuan(heads, dim, width, i > depth // 2),
                    "cogvideox": lambda i: CogVideoX(heads, dim)}[family]
            self.blocks = nn.ModuleList([make(i) for i in range(depth)])
        self.width, self.dim = width, dim

    def inputs(self, tokens):
        rows = self.text * (self.family != "hunyuan") + tokens
        angles = (torch.randn(rows, self.dim), torch.randn(rows, self.dim))
        d = self.last.in_features
        return (torch.randn(1, tokens, self.channels).bfloat16(), torch.randn(1, self.text, self.width).bfloat16(),
                torch.randn(1, d).bfloat16(), angles if self.family in ROTARY else None)

    def forward(self, x, c, t, angles):
        x, before = self.first(x), []
        at = self.one(silu(t)) if self.one is not None else t
        for i, block in enumerate(self.blocks):
            if self.family == "hunyuan" and hasattr(block, "skip"):
                x, c = block(x, c, at, angles, before[len(self.blocks) - 1 - i])
            else:
                x, c = block(x, c, at, angles)
            before.append(x)
        shift, scale = self.ada(silu(t)).unsqueeze(1).chunk(2, dim=-1)
        return self.last(modulate(x, shift, scale))


class WithAngles(nn.Module):
    """A stack with constant rotary angles, like the steps of an image."""

    def __init__(self, stack, angles):
        super().__init__()
        self.stack, self.angles = stack, angles

    def forward(self, x, c, t):
        return self.stack(x, c, t, self.angles)


def variants(family, tokens, chosen, device, threads):
    stack = Stack(family).bfloat16().eval()
    inputs = stack.inputs(tokens)
    ways = {"eager": lambda: stack(*inputs)}
    if "openvino" in chosen:
        ways["openvino"] = by_openvino(WithAngles(stack, inputs[3]), inputs[:3], threads)
    if "compile" in chosen:
        torch._inductor.config.freezing = device == "cpu"
        torch._dynamo.reset()
        fast = torch.compile(stack)
        ways["compiled"] = lambda: fast(*inputs)
        if device == "cuda":
            ways["compiled_graphed"] = graphed(ways["compiled"])
    return ways


def main():
    device, words = take_device(sys.argv[1:])
    chosen = {"compile", "openvino"} & set(words)
    words = [word for word in words if word not in chosen]
    threads = int(words[0]) if words else 1
    torch.set_num_threads(threads)
    torch.set_default_device(device)
    shapes = words[1].split(",") if len(words) > 1 and words[1] else [
        f"{family}:{tokens}" for family in SIZES for tokens in (1024, 4096)]
    with torch.inference_mode():
        for shape in shapes:
            family, tokens = shape.split(":")
            compare(program("families_bench"), threads, shape,
                    variants(family, int(tokens), chosen, device, threads), rounds=2, device=device)
    finish()


if __name__ == "__main__":
    main()
