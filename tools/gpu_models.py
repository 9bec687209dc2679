#!/usr/bin/env python3
"""Runs whole models on a GPU and on the CPU and compares: the models of tests/data and models/.

  gpu_models.py PROGRAM [--device cuda] [--jobs N]

Prints a JSON line for each: the relative difference (L2) of the results, the seconds of both, and
whether the difference is within the tolerance. Ends with status 1 if a model fails.
"""

import argparse
import concurrent.futures
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time

import tensors

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests/data"
MOST = {"f32": 1e-3, "bf16": 5e-2}  # L2; texts of language models must be equal


def images(name, model, *what):
    return [{"name": f"{name} {dtype}", "dtype": dtype,
             "run": ["generate", model, *what, "--dtype", dtype, "--seed", "1", "--latents-only",
                     "--progress", "none", "--save-latents", "{out}"]} for dtype in ("f32", "bf16")]


def component(name, folder, which, file, prefix):
    """Returns jobs for a forward pass on the golden inputs of a component."""
    return [{"name": f"{name} {which} {dtype}", "dtype": dtype, "inputs": (DATA / folder / file, prefix),
             "run": ["forward", DATA / folder / "model", "--component", which, "--dtype", dtype,
                     "--inputs", "{in}", "--outputs", "{out}"]} for dtype in ("f32", "bf16")]


def words(name, model, *what):
    return [{"name": name, "words": True,
             "run": ["complete", model, *what, "--max-tokens", "16", "--dtype", "f32", "--json"]}]


def jobs():
    moe, diffusers = DATA / "moe", DATA / "diffusers"
    found = []
    for folder in ("dit_moe_flash", "dit_moe_timm"):
        found += images(folder, moe / folder / "model", "--class", "1,3", "--steps", "4")
    found += images("shapes", "shapes", "--class", "5", "--steps", "10")
    for plan in ("data=2", "expert=2", "distrifusion=2", "expert=2,schedule=displaced"):
        found += images(f"dit_moe_flash, {plan}", moe / "dit_moe_flash/model", "--class", "1,3", "--steps", "4",
                          "--guidance", "1.5", "--ranks", "2", "--plan", plan)
    found += images("scenes", "scenes", "--prompt", "a red circle", "--steps", "10")
    found += images("CogVideoX", diffusers / "cogvideox_2b/model", "--prompt", "a cat", "--steps", "2")
    for name, folder in ("FLUX", "flux_dev"), ("PixArt", "pixart_alpha"), ("CogVideoX", "cogvideox_2b"):
        found += component(name, f"diffusers/{folder}", "transformer", "io_transformer.safetensors", "fwd0.in.")
    for folder in ("llada_moe", "llada2"):
        found += words(folder, moe / folder / "model", "--prompt-ids", "5,17,3,8", "--block", "8")
    found += words("tasks-a", "tasks-a", "--prompt", "12+3=")
    return found


def numbers(path):
    """Returns all floats of a file's floating-point tensors, in the order of the names."""
    return [v for name, (dtype, _, data) in sorted(tensors.read(path).items()) if dtype in ("F32", "BF16", "F16")
            for v in tensors.values(dtype, data, name)]


def distance(there, here):
    if len(there) != len(here) or not here:
        return math.inf
    gap = math.sqrt(sum((a - b) ** 2 for a, b in zip(there, here)) / (sum(b * b for b in here) or 1e-30))
    return math.inf if math.isnan(gap) else gap


def run(program, job, device, folder):
    """Returns (result, seconds) of a job on a device. Raises RuntimeError with the program's output."""
    out, given = folder / f"{device}.safetensors", folder / "in.safetensors"
    if "inputs" in job:
        path, prefix = job["inputs"]
        tensors.write(given, {name[len(prefix):]: value for name, value in tensors.read(path).items()
                              if name.startswith(prefix)})
    command = [str(word).format(out=out, **{"in": given}) for word in job["run"]]
    start = time.perf_counter()
    done = subprocess.run([program, *command, "--device", device], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip() or f"status {done.returncode}").splitlines()[-1])
    if job.get("words"):
        return [one["ids"] for one in json.loads(done.stdout)["completions"]], round(seconds, 2)
    return numbers(out), round(seconds, 2)


def compare(program, job, device):
    line = {"model": job["name"]}
    try:
        with tempfile.TemporaryDirectory() as folder:
            there, line["gpu_s"] = run(program, job, device, pathlib.Path(folder))
            here, line["cpu_s"] = run(program, job, "cpu", pathlib.Path(folder))
        if job.get("words"):
            line["same_words"] = line["good"] = there == here
        else:
            line["l2"], line["most"] = float(f"{distance(there, here):.3g}"), MOST[job["dtype"]]
            line["good"] = line["l2"] <= line["most"]
    except (RuntimeError, SystemExit, KeyError, ValueError, OSError) as error:
        line.update(good=False, error=str(error)[:300])
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--jobs", type=int, default=4, help="models that run at the same time")
    args = parser.parse_args()
    good = True
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for line in pool.map(lambda job: compare(args.program, job, args.device), jobs()):
            good &= line["good"]
            print(json.dumps(line), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
