"""Compares the usual PyTorch loop over experts with fused_bench, in turn.

    TESSERA_BENCH=build/release/bench python bench/peers/fused_peer.py [NAME=VALUE ...]

Takes fused_bench's words. A single process has all experts and the tokens of all ranks, and as many threads as the
ranks have workers in total, so no row is sent. Without PyTorch, the line says so.
"""
import json
import os
import statistics
import subprocess
import sys
import time

DEFAULTS = {"ranks": 8, "workers": 1, "tokens": 1024, "experts": 64, "hidden": 32, "ffn": 16, "top-k": 2,
            "steps": 10, "skew": "uniform", "dtype": "f32"}


def asked(words):
    found = dict(DEFAULTS)
    for word in words:
        name, _, value = word.partition("=")
        if name in found:
            found[name] = type(found[name])(value)
    return found


def layer(torch, is_):
    dtype = torch.bfloat16 if is_["dtype"] == "bf16" else torch.float32
    tokens, experts, k = is_["tokens"] * is_["ranks"], is_["experts"], is_["top-k"]
    share = {"zipf": [1 / (e + 1) for e in range(experts)], "uniform": [1.0] * experts,
             "one": [1.0 if e < k else 0.0 for e in range(experts)]}[is_["skew"]]
    generator = torch.Generator().manual_seed(1)
    ids = torch.multinomial(torch.tensor(share).expand(tokens, experts), k, generator=generator)
    x = torch.randn(tokens, is_["hidden"], generator=generator).to(dtype)
    up, gate = ([torch.randn(is_["ffn"], is_["hidden"], generator=generator).to(dtype) * is_["hidden"] ** -0.5
                 for _ in range(experts)] for _ in range(2))
    down = [torch.randn(is_["hidden"], is_["ffn"], generator=generator).to(dtype) * is_["ffn"] ** -0.5
            for _ in range(experts)]

    def run():
        y = torch.zeros_like(x)
        for e in range(experts):
            token, _ = torch.where(ids == e)
            if len(token):
                rows = x[token]
                inner = torch.nn.functional.silu(rows @ gate[e].T) * (rows @ up[e].T)
                y.index_add_(0, token, (inner @ down[e].T) / k)
        return y
    return run


def main():
    words = [w for w in sys.argv[1:] if not w.startswith(("ways=", "steps=", "trace="))]
    is_ = asked(sys.argv[1:])
    program = os.path.join(os.environ["TESSERA_BENCH"], "fused_bench")
    try:
        import torch
    except ImportError as error:
        print(json.dumps({"bench": "fused", "how": "PyTorch loop", "absent": str(error)}))
        return
    torch.set_num_threads(is_["ranks"] * is_["workers"])
    run = layer(torch, is_)
    ours, theirs = [], []
    with torch.inference_mode():
        run()
        for _ in range(is_["steps"]):
            done = subprocess.run([program, *words, "ways=fused", "steps=3"], capture_output=True, text=True, check=True)
            ours.append(json.loads(done.stdout)["p50"])
            begin = time.perf_counter()
            run()
            theirs.append(time.perf_counter() - begin)
    print(json.dumps({"bench": "fused", "how": "PyTorch loop", **{n.replace("-", "_"): v for n, v in is_.items()},
                      "seconds": round(statistics.mean(theirs), 6), "p50": round(statistics.median(theirs), 6),
                      "fused_p50": round(statistics.median(ours), 6),
                      "over_fused": round(statistics.median(t / o for t, o in zip(theirs, ours)), 3)}))


if __name__ == "__main__":
    main()
