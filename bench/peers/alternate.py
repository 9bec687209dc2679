"""Runs a benchmark of Tessera and PyTorch functions in turn: both meet the same machine."""
import json
import os
import subprocess
import time

import torch


def clock(threads):
    """CPU time of this thread where one thread works: other programs cannot disturb it."""
    return time.thread_time if threads == 1 else time.perf_counter


def torch_seconds(f, threads, times=3):
    now = clock(threads)
    best = float("inf")
    for _ in range(times):
        start = now()
        f()
        best = min(best, now() - start)
    return best


def tessera_line(program, threads, shape):
    out = subprocess.run([program, str(threads), shape], check=True, capture_output=True, text=True)
    return json.loads(out.stdout.strip().splitlines()[-1])


def compare(program, threads, shape, variants, rounds=3, times=3):
    """Prints a JSON line: milliseconds of Tessera and of each PyTorch variant, and their ratios."""
    torch.set_num_threads(threads)
    ours, theirs = float("inf"), {name: float("inf") for name in variants}
    for f in variants.values():
        f()
    for _ in range(rounds):
        ours = min(ours, tessera_line(program, threads, shape)["ms"])
        for name, f in variants.items():
            theirs[name] = min(theirs[name], torch_seconds(f, threads, times) * 1e3)
    line = {"shape": shape, "threads": threads, "torch": torch.__version__, "tessera_ms": ours}
    for name, ms in theirs.items():
        line[name + "_ms"] = round(ms, 4)
        line[name + "_over_tessera"] = round(ms / ours, 2)
    print(json.dumps(line), flush=True)


def program(name):
    return os.path.join(os.environ.get("TESSERA_BENCH", "build/release/bench"), name)
