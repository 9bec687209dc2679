"""Times dense products of cuBLAS with the operations of MoE layers: the roof of grouped products.

    python bench/peers/roof_peer.py SHAPES      shapes like 256x2048x1024x64x8,...: tokens, hidden, inner, experts, slots
"""
import json
import statistics
import sys

import torch


def milliseconds(run):
    for _ in range(3):
        run()
    times = []
    for _ in range(9):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def main():
    with torch.inference_mode():
        for word in sys.argv[1].split(","):
            tokens, hidden, inner, _, slots = map(int, word.split("x"))
            new = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
            x, up, down, middle = (new(tokens * slots, hidden), new(2 * inner, hidden), new(hidden, inner),
                                   new(tokens * slots, inner))
            linear = torch.nn.functional.linear
            ms = milliseconds(lambda: (linear(x, up), linear(middle, down)))
            flops = 6 * tokens * slots * hidden * inner
            print(json.dumps({"bench": "roof of cuBLAS", "shape": word, "ms": round(ms, 4),
                              "gflops": round(flops / ms / 1e6, 1)}), flush=True)


if __name__ == "__main__":
    main()
