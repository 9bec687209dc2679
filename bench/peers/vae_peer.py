"""Compares decoding an image with the sizes of Stable Diffusion's VAE and random weights in PyTorch with
Tessera's decoder: default (f32, channels first) and best (bf16, channels last); compiled: best through
torch.compile; compiled_graphed: compiled as a CUDA graph; openvino: the same decoder in OpenVINO (CPU).

    TESSERA_BENCH=build/release/bench python bench/peers/vae_peer.py [threads] [shape] [compile] [openvino] [--device cuda]
"""
import sys

import torch
from torch import nn
from torch.nn.functional import interpolate, scaled_dot_product_attention, silu

from alternate import by_openvino, compare, finish, graphed, program, take_device


class Resnet(nn.Module):
    def __init__(self, inside, out):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, inside, 1e-6), nn.GroupNorm(32, out, 1e-6)
        self.conv1 = nn.Conv2d(inside, out, 3, padding=1)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.short = nn.Conv2d(inside, out, 1) if inside != out else nn.Identity()

    def forward(self, x):
        h = self.conv1(silu(self.norm1(x)))
        return self.short(x) + self.conv2(silu(self.norm2(h)))


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(32, width, 1e-6)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        n, c, height, width = x.shape
        h = self.norm(x).reshape(n, c, height * width).transpose(1, 2)
        q, k, v = (f(h).unsqueeze(1) for f in (self.q, self.k, self.v))
        h = self.out(scaled_dot_product_attention(q, k, v).squeeze(1))
        return x + h.transpose(1, 2).reshape(x.shape)


class Up(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return self.conv(interpolate(x, scale_factor=2.0, mode="nearest"))


def decoder():
    widths = [512, 512, 256, 128]
    layers = [nn.Conv2d(4, 4, 1), nn.Conv2d(4, 512, 3, padding=1),
              Resnet(512, 512), Attention(512), Resnet(512, 512)]
    before = 512
    for i, width in enumerate(widths):
        layers += [Resnet(before, width), Resnet(width, width), Resnet(width, width)]
        layers += [Up(width)] if i < 3 else []
        before = width
    layers += [nn.GroupNorm(32, 128, 1e-6), nn.SiLU(), nn.Conv2d(128, 3, 3, padding=1)]
    return nn.Sequential(*layers).eval()


def variants(shape, compiled, device, openvino_threads):
    height, width = (int(side) // 8 for side in shape.split("x"))
    plain, latent = decoder(), torch.randn(1, 4, height, width)
    half = decoder().bfloat16().to(memory_format=torch.channels_last)
    last = latent.bfloat16().contiguous(memory_format=torch.channels_last)
    ways = {"best": lambda: half(last), "default": lambda: plain(latent)}
    if compiled:
        fast = torch.compile(half)
        ways["compiled"] = lambda: fast(last)
        if device == "cuda":
            ways["compiled_graphed"] = graphed(ways["compiled"])
    if openvino_threads:
        ways["openvino"] = by_openvino(plain, [latent], openvino_threads)
    return ways


def main():
    device, words = take_device(sys.argv[1:])
    compiled, openvino = "compile" in words, "openvino" in words
    words = [word for word in words if word not in ("compile", "openvino")]
    threads = int(words[0]) if words else 1
    shape = words[1] if len(words) > 1 else "512x512"
    torch.set_num_threads(threads)
    torch.set_default_device(device)
    with torch.inference_mode():
        compare(program("vae_bench"), threads, shape + "-bf16", variants(shape, compiled, device, threads if openvino else 0),
                rounds=1, times=1 if device == "cpu" else 3, device=device)
    finish()


if __name__ == "__main__":
    main()
