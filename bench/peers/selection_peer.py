"""Compares des-vote selection of experts (weights D) in PyTorch as separate ops with Tessera's single call.

    TESSERA_BENCH=build/release/bench python bench/peers/selection_peer.py [threads]
"""
import sys

import torch

from alternate import compare, program

BETA = 0.4


def select(logits, k):
    scores = logits.softmax(-1)
    weights, ids = scores.topk(k, dim=-1)
    votes = torch.zeros_like(scores).scatter_(1, ids, weights).sum(0)
    core = votes.topk(int(BETA * logits.shape[1])).indices
    closed = torch.full_like(votes, float("-inf"))
    closed[core] = 0
    chosen = (logits + closed).topk(k, dim=-1).indices
    inside = scores.gather(1, chosen)
    return chosen, inside * (weights.sum(-1, keepdim=True) / inside.sum(-1, keepdim=True))


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    with torch.inference_mode():
        for tokens, experts, k in [(32, 64, 8), (64, 64, 8), (128, 64, 8), (32, 256, 8)]:
            logits = torch.randn(tokens, experts)
            compare(program("selection_bench"), threads, f"{tokens}x{experts}x{k}",
                    {"separate": lambda: select(logits, k)}, times=200)


if __name__ == "__main__":
    main()
