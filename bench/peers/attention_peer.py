"""Compares PyTorch's scaled_dot_product_attention with Tessera's attention in bf16: on a CPU in bf16 and f32,
on a GPU with the default backend, cuDNN and FlashAttention.

    pip install -r bench/peers/requirements.txt
    TESSERA_BENCH=build/release/bench python bench/peers/attention_peer.py [threads] [shapes] [--device cuda]

On a CPU in turn, medians of seven rounds. On a GPU both run ten calls in a CUDA graph, without host time. Both read queries, keys and values as slices of a fused projection, and write [tokens, heads * dim].
Shapes are words like 1024x24x128,4096x24x64 (tokens, heads, head_dim).
"""
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from alternate import compare, finish, graphed, program, take_device

SHAPES = [(64, 12, 32), (256, 6, 64), (1024, 16, 72), (1024, 24, 64), (1024, 24, 128),
          (4096, 16, 72), (4096, 24, 64), (4096, 24, 128), (4096, 1, 512)]
GPU_SHAPES = SHAPES[2:] + [(16384, 24, 128), (16384, 24, 64), (4096, 16, 88), (1024, 64, 64)]


def variants(tokens, heads, dim, device):
    fused = torch.randn(1, tokens, 3, heads, dim)

    def sdpa(x):
        q, k, v = (x[:, :, i].transpose(1, 2) for i in range(3))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return out.transpose(1, 2).reshape(1, tokens, heads * dim)

    def by(backend, x):
        with sdpa_kernel(backend):
            return sdpa(x)

    half = fused.bfloat16()
    if device == "cpu":
        return {"sdpa": lambda: sdpa(half), "sdpa_f32": lambda: sdpa(fused)}
    ways = {"sdpa": lambda: sdpa(half), "cudnn": lambda: by(SDPBackend.CUDNN_ATTENTION, half),
            "flash": lambda: by(SDPBackend.FLASH_ATTENTION, half)}
    return {name: graphed(f, 10) for name, f in ways.items()}


def main():
    device, words = take_device(sys.argv[1:])
    threads = int(words[0]) if words else 1
    shapes = SHAPES if device == "cpu" else GPU_SHAPES
    if len(words) > 1:
        shapes = [tuple(map(int, word.split("x"))) for word in words[1].split(",")]
    torch.set_default_device(device)
    with torch.inference_mode():
        for shape in shapes:
            compare(program("attention_bench"), threads, "x".join(map(str, shape)),
                    variants(*shape, device), rounds=7, times=1, device=device, of=statistics.median)
    finish()


if __name__ == "__main__":
    main()
