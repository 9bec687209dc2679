"""PyTorch's scaled_dot_product_attention in bf16 and f32 beside Tessera's attention in bf16.

    pip install -r bench/peers/requirements.txt
    TESSERA_BENCH=build/release/bench python bench/peers/attention_peer.py [threads]

Both read queries, keys and values as slices of one fused projection, and write [tokens, heads * dim].
"""
import sys

import torch

from alternate import compare, program

SHAPES = [(64, 12, 32), (256, 6, 64), (1024, 16, 72), (1024, 24, 64), (1024, 24, 128),
          (4096, 16, 72), (4096, 24, 64), (4096, 24, 128), (4096, 1, 512)]


def variants(tokens, heads, dim):
    fused = torch.randn(1, tokens, 3, heads, dim)

    def sdpa(x):
        q, k, v = (x[:, :, i].transpose(1, 2) for i in range(3))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return out.transpose(1, 2).reshape(1, tokens, heads * dim)

    half = fused.bfloat16()
    return {"sdpa": lambda: sdpa(half), "sdpa_f32": lambda: sdpa(fused)}


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    with torch.inference_mode():
        for shape in SHAPES:
            compare(program("attention_bench"), threads, "x".join(map(str, shape)), variants(*shape),
                    rounds=2)


if __name__ == "__main__":
    main()
