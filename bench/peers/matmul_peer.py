"""Compares PyTorch's bf16 Linear, eager and with packed weights, with Tessera's products.

    pip install -r bench/peers/requirements.txt
    TESSERA_BENCH=build/release/bench python bench/peers/matmul_peer.py [threads]
"""
import sys

import torch

from alternate import compare, program

SHAPES = [(256, 384, 384), (256, 1536, 384), (256, 1152, 1152), (256, 4608, 1152),
          (1024, 1152, 1152), (1024, 4608, 1152), (1024, 3072, 3072)]


def variants(m, n, k):
    x = torch.randn(m, k).bfloat16()
    linear = torch.nn.Linear(k, n).bfloat16().eval()
    x32, linear32 = x.float(), torch.nn.Linear(k, n).eval()
    result = {"eager": lambda: linear(x), "eager_f32": lambda: linear32(x32)}
    if torch.backends.mkldnn.is_available():
        packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), m)
        bias = linear.bias.detach()
        pointwise = torch.ops.mkldnn._linear_pointwise
        result["packed"] = lambda: pointwise(x, packed, bias, "none", [], "")
    return result


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    with torch.inference_mode():
        for m, n, k in SHAPES:
            compare(program("matmul_bench"), threads, f"{m}x{n}x{k}", variants(m, n, k))


if __name__ == "__main__":
    main()
