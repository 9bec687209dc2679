"""Compiles the peers' functions for a GPU in parallel, to fill torch.compile's cache: each takes half a
minute, and the peers compile in turn.

    python bench/peers/compile_ahead.py

Prints a JSON line for each; ends with status 1 if one failed.
"""
import concurrent.futures
import importlib
import json
import subprocess
import sys
import time

JOBS = [("families", f"{family}:{tokens}") for tokens in (4096, 1024) for family in ("flux", "sd3", "pixart")] + [
    ("vae", "1024x1024"), ("dit_moe", "xl:1024:6"), ("dit_moe", "xl:4096:6"), ("experts", "1024x2048x1024x64x8")]


def compiled(peer, shape):
    """Returns the peer's call whose first run compiles."""
    module = importlib.import_module(f"{peer}_peer")
    if peer == "families":
        family, tokens = shape.split(":")
        return module.variants(family, int(tokens), {"compile"}, "cuda", 1)["compiled"]
    if peer == "vae":
        return module.variants(shape, True, "cuda")["compiled"]
    if peer == "experts":
        return module.Layer(*map(int, shape.split("x")), "cuda").variants()["compiled"]
    return module.variants(shape, "cuda")["compiled"]


def compile_one(peer, shape):
    import torch

    torch.set_default_device("cuda")
    torch.set_num_threads(1)
    start = time.perf_counter()
    with torch.inference_mode():
        compiled(peer, shape)()
        torch.cuda.synchronize()
    print(json.dumps({"peer": peer, "shape": shape, "seconds": round(time.perf_counter() - start, 1)}), flush=True)


def main():
    if len(sys.argv) == 3:
        compile_one(*sys.argv[1:])
        return 0
    def run(job):
        return subprocess.run([sys.executable, __file__, *job], capture_output=True, text=True, check=False)

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(len(JOBS)) as pool:
        for (peer, shape), done in zip(JOBS, pool.map(run, JOBS)):
            said = done.stdout
            if done.returncode:
                last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
                said = json.dumps({"peer": peer, "shape": shape, "error": last[:300]}) + "\n"
                failed = 1
            print(said, end="", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
