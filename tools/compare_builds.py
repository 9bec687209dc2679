#!/usr/bin/env python3
"""Runs the same commands with two builds and reports differences of images, texts, tensors and reports.

python3 tools/compare_builds.py OLD NEW [--only WORD] [--data FOLDER] [--renamed OLD=NEW ...]

OLD and NEW are two `tessera` programs for the same instruction set. Files, standard output, and
reports except for times must be identical bit by bit. Memory (peak_bytes) is compared and reported
separately, because a change may be intended.
"""

import argparse
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"

DIT_PLANS = [
    "", "data=2", "expert=2", "expert=4", "distrifusion=2", "data=2,distrifusion=2",
    "expert=2,placement=strided", "expert=2,schedule=displaced,warmup=2",
    "expert=4,schedule=interweaved,sync=deep",
    "expert=2,schedule=interweaved,conditional=low,stride=2",
    "expert=2,schedule=staggered-batch,warmup=2", "expert=3,schedule=adaptive,sync-every=3",
    "distrifusion=3,expert=3,schedule=displaced", "schedule=interweaved,scores=latest",
    "pipefusion=2,patches=3", "patches=4,cut=bands", "ulysses=3,vae=3", "cfg=2,vae=+2", "distrifusion=2,shards=4",
    "shard=3", "cfg=2,shard=2",
]
TOKEN_PLANS = ["", "expert=2", "expert=3", "tensor=2"]
TOKEN_RULES = [
    [], ["--select", "des-vote:0.4"], ["--select", "des-max:0.25,scope=batch"],
    ["--select", "mc:0.6"], ["--select", "naee:0.6"], ["--cache", "dual"],
    ["--cache", "prefix", "--decode", "factor:1.5"], ["--temperature", "0.7", "--seed", "3"],
]
CANVAS_RULES = [
    [], ["--select", "des-vote:0.5,over=open"], ["--select", "des-max:0.25,scope=batch"], ["--seed", "3", "--block", "16"],
    ["--decode", "canvas:max_denoising_steps=3,entropy_bound=1", "--stop-at-eos", "none"], ["--n", "2"],
]
SMALL = ["--width", "128", "--height", "128"]
IMAGES = {"pixart_alpha": SMALL, "pixart_sigma": SMALL, "flux_dev": SMALL, "flux_schnell": SMALL, "sd3": SMALL,
            "sd35": SMALL, "hunyuandit": SMALL, "hunyuandit_v11": SMALL,
            "cogvideox_2b": [*SMALL, "--frames", "9"], "cogvideox_5b": [*SMALL, "--frames", "9"]}


AXES = ("data", "cfg", "pipefusion", "ring", "ulysses", "distrifusion", "shard", "tensor")


def ranks(plan):
    """Returns the number of ranks of a plan: expert=N alone implies data=N."""
    sizes = {k: int(v) for k, v in re.findall(r"([a-z]+)=(\d+)", plan)}
    own = math.prod(sizes.get(axis, 1) for axis in AXES)
    return max(own, sizes.get("expert", 1))


def planned(plan):
    return ["--plan", plan, "--ranks", str(ranks(plan))] if plan else []


def commands():
    """Yields (name, arguments); OUT stands for the folder of the run."""
    files = ["--report", "OUT/report.json", "--progress", "none"]
    for plan in DIT_PLANS:
        yield f"shapes {plan}", ["generate", "shapes", "--class", "0,3,7", "--steps", "5", "--seed", "5",
                                 "-o", "OUT", "--trace", "OUT/trace.safetensors", *files, *planned(plan)]
    for dtype in ["f32", "int8"]:
        yield f"shapes {dtype}", ["generate", "shapes", "--class", "2", "--steps", "4", "--dtype", dtype,
                                  "-o", "OUT/x.png", *files]
    yield "shapes scores", ["generate", "shapes", "--class", "1", "--steps", "6", "--compare-steps",
                            "-o", "OUT/x.png", *files, *planned("expert=2,schedule=displaced")]
    yield "scenes", ["generate", "scenes", "--prompt", "a red circle above a blue square", "--steps", "4",
                     "-o", "OUT/x.png", *files]
    yield "scenes data", ["generate", "scenes", "--prompt", "a green square", "--count", "2", "--steps", "3",
                          "-o", "OUT", *files, *planned("data=2")]
    for model, plan in [("dit_moe_flash", ""), ("dit_moe_timm", "expert=2")]:
        yield f"{model} {plan}", ["generate", f"DATA/moe/{model}/model", "--class", "1", "--steps", "4",
                                  "--latents-only", "--save-latents", "OUT/l.safetensors", *files,
                                  *planned(plan)]
    for model, size in IMAGES.items():
        folder = f"DATA/diffusers/{model}/model"
        yield f"{model} inspect", ["inspect", folder, "--json"]
        yield f"{model} generate", ["generate", folder, "--prompt", "a cat on a mat", "--steps", "2", "-o", "OUT",
                                    "--trace", "OUT/trace.safetensors", *size, *files]
        yield f"{model} data=2", ["generate", folder, "--prompt", "a cat", "--count", "2", "--steps", "2",
                                  "-o", "OUT", *size, *files, *planned("data=2")]
    yield "pixart_alpha distrifusion=2", [
        "generate", "DATA/diffusers/pixart_alpha/model", "--prompt", "a cat", "--steps", "4", "-o", "OUT", *SMALL, *files,
        *planned("distrifusion=2")]
    yield "sd3 distrifusion=2", [
        "generate", "DATA/diffusers/sd3/model", "--prompt", "a cat", "--steps", "4", "-o", "OUT", *SMALL, *files,
        *planned("distrifusion=2")]
    for model in ["tasks-a", "tasks-b"]:
        for plan in TOKEN_PLANS:
            for rule in TOKEN_RULES if plan in ("", "expert=2") else TOKEN_RULES[:2]:
                yield f"{model} {plan} {' '.join(rule)}", [
                    "complete", model, "--prompt", "sort hello=", "--prompt", "add 123+456=",
                    "--max-tokens", "32", "--json", "--report", "OUT/report.json", *rule, *planned(plan)]
        yield f"{model} inspect", ["inspect", model, "--json"]
    for plan in TOKEN_PLANS:
        for rule in CANVAS_RULES if plan in ("", "expert=2") else CANVAS_RULES[:2]:
            yield f"tasks-c {plan} {' '.join(rule)}", [
                "complete", "tasks-c", "--prompt", "sort hello=", "--prompt", "rev stone=", "--json", "--report", "OUT/report.json",
                *rule, *planned(plan)]
    yield "tasks-c inspect", ["inspect", "tasks-c", "--json"]
    for plan in ["", "expert=4", "distrifusion=2", "expert=2,schedule=displaced"]:
        yield f"inspect shapes {plan}", ["inspect", "shapes", "--json", *planned(plan)]


def without_times(value):
    """Splits a report into reproducible values and memory, without times."""
    if isinstance(value, list):
        return [without_times(v) for v in value]
    if not isinstance(value, dict):
        return value
    times = ("seconds", "resident", "overlap", "bandwidth", "waited", "per_second")
    return {k: without_times(v) for k, v in value.items() if not any(t in k for t in times)}


def flat(value, path=""):
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in flat(item, f"{path}.{key}").items()}
    if isinstance(value, list):
        return {k: v for i, item in enumerate(value) for k, v in flat(item, f"{path}[{i}]").items()}
    return {path: value}


def run(program, arguments, out, models):
    """Runs a command; returns status, output and files."""
    placed = [a.replace("OUT", str(out)).replace("DATA", str(models)) for a in arguments]
    threads = [] if arguments[0] == "inspect" else ["--threads", "1"]
    done = subprocess.run([program, *placed, *threads], capture_output=True, text=True, cwd=ROOT)
    left = {"status": done.returncode, "errors": done.stderr.replace(str(out), "OUT")}
    texts = {"stdout": done.stdout.replace(str(out), "OUT")}
    texts |= {str(p.relative_to(out)): p for p in sorted(out.rglob("*")) if p.is_file()}
    for name, text in texts.items():
        content = text.read_bytes() if isinstance(text, pathlib.Path) else text.encode()
        try:
            parsed = [json.loads(line) for line in content.decode().splitlines()]
        except ValueError:
            try:
                parsed = json.loads(content)
            except ValueError:
                left[name] = content
                continue
        left |= {f"{name}{k}": v for k, v in flat(without_times(parsed)).items()}
    return left


def same(a, b):
    """True if equal, up to the order of summation for means over ranks."""
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-12)
    return a == b


def differences(old, new):
    """Returns the names of differing values: (those that must be equal, memory)."""
    names = [n for n in {**old, **new} if not same(old.get(n), new.get(n))]
    memory = [n for n in names if "bytes" in n and ("peak" in n or "kept_row" in n)]
    return [n for n in names if n not in memory], memory


def renamed(left, pairs):
    """Renames the results of an older build to today's names."""
    for old, new in pairs:
        left = {re.sub(old, new, name): value for name, value in left.items()}
    return left


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--only", default="", help="commands whose name holds this word")
    parser.add_argument("--data", type=pathlib.Path, default=DATA,
                        help="folder of diffusers/MODEL/model and moe/MODEL/model")
    parser.add_argument("--renamed", nargs="+", default=[], metavar="OLD=NEW",
                        help="keys that OLD called otherwise: a regular expression and what stands for it")
    options = parser.parse_args()
    pairs = [tuple(pair.split("=", 1)) for pair in options.renamed]
    programs = [str(pathlib.Path(p).resolve()) for p in (options.old, options.new)]
    count = bad = 0
    for name, arguments in commands():
        if options.only not in name:
            continue
        folder = pathlib.Path(arguments[1].replace("DATA", str(options.data)))
        if "DATA" in arguments[1] and not (folder / "scheduler").exists() and not (folder / "config.json").exists():
            print(f"absent   {name}: {folder}")
            continue
        results = []
        for program in programs:
            with tempfile.TemporaryDirectory() as out:
                results.append(run(program, arguments, pathlib.Path(out), options.data.resolve()))
        must, memory = differences(renamed(results[0], pairs), results[1])
        count += 1
        bad += bool(must)
        state = "DIFFERS" if must else "equal"
        if results[0]["status"] != 0:
            state += f" (status {results[0]['status']}: {results[0]['errors'].strip()[:100]})"
        print(f"{state:8} {name}")
        for n in must[:5] + memory[:3]:
            old, new = (r.get(n) if not isinstance(r.get(n), bytes) else f"{len(r[n])} bytes" for r in results)
            print(f"         {'memory ' if n in memory else ''}{n}: {old} -> {new}")
        sys.stdout.flush()
    print(f"compare_builds: {count} commands, {bad} differ")
    return 1 if bad or not count else 0


if __name__ == "__main__":
    sys.exit(main())
