#!/usr/bin/env python3
"""Runs everything that needs a GPU, and writes a page with the results.

  check_gpu.py                                 builds, then all stages -> build/gpu/gpu.md
  check_gpu.py --stages tests,memcheck         only these stages; --list names all
  check_gpu.py --stages fused                  an MoE layer in one launch, within 8 minutes
  check_gpu.py --programs FOLDER               with programs of pack_gpu.py instead of a build
  check_gpu.py --from a/gpu.json --stages none the page of results from several calls

Each stage has a time limit (--minutes limits all together); a failed stage does not stop the next.
Ends with status 1 if a stage failed. The page is written after each stage.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import gpu_page
import pack_gpu

ROOT = pathlib.Path(__file__).resolve().parent.parent
BENCHES = ("attention_bench", "experts_bench", "families_bench", "dit_moe_bench", "vae_bench", "one_launch_bench")
# Tests for the checkers: small problems of every kernel, without tests that launch thousands; for memory
# also two whole models, for races and barriers only Tessera's own kernels.
LONG = "-CudaElementwise.EveryOp*:CudaMatmul.EveryEpilogue*:CudaNorm.EqualsTheReference*:*Plan.*"
CHECKED = f"Cuda*:TransformersOnGpu.DitMoe:EncodersOnGpu.VaeDecodesAndEncodes{LONG}"
RACED = f"Cuda*{LONG}:CudaMatmul.*"
# An MoE layer in one launch: rows and sums, memory, times beside separate launches and PyTorch.
FUSED = ("one_launch_tests", "one_launch_memcheck", "one_launch", "one_launch_peer", "one_launch_roof")
FUSED_MINUTES = 8
FUSED_SHAPES = ",".join(f"{tokens}x{layer}" for tokens in (256, 16384) for layer in ("2048x2048x64x2", "1152x4608x8x2", "2048x512x256x8", "2816x704x128x8"))
SHARDS = 4  # processes for a checker's tests


@dataclasses.dataclass
class Stage:
    name: str
    seconds: int
    command: list
    shards: int = 1  # parallel processes that share the tests of a program


def sanitizer(tool, test, tests, seconds):
    checker = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    return Stage(tool, seconds, ["env", "TESSERA_SMALL_PROBLEMS=1", checker, "--tool", tool, "--target-processes",
                                 "all", "--error-exitcode", "9", test, "--gtest_brief=1", f"--gtest_filter={tests}"], SHARDS)


def stages(programs, python, build):
    """Returns the stages in order: the most informative first."""
    test, tessera = programs / "tests/tessera_gpu_test", programs / "tessera"
    peer = lambda name, *words: [python, ROOT / f"bench/peers/{name}_peer.py", "1", *words, "--device", "cuda"]
    models = "pixart:1024,sd3:1024,flux:1024,pixart:4096,sd3:4096,flux:4096"
    found = []
    if build:
        found.append(Stage("build", 2400, [ROOT / "scripts/build", "release", "--", "tessera", "tessera_gpu_test",
                                           *BENCHES]))
    return found + [
        Stage("tests", 240, ["ctest", "--test-dir", programs, "-L", "gpu", "-j", str(min(8, os.cpu_count() or 1)),
                             "--output-on-failure", "--timeout", "120"]),
        Stage("models", 240, [python, ROOT / "tools/gpu_models.py", tessera]),
        Stage("kernels", 120, [tessera, "bench", "kernels", "--device", "cuda"]),
        sanitizer("memcheck", test, CHECKED, 180),
        Stage("compile", 240, [python, ROOT / "bench/peers/compile_ahead.py"]),
        Stage("attention", 120, peer("attention")),
        Stage("experts", 300, peer("experts")),
        Stage("families", 420, peer("families", models, "compile")),
        Stage("dit_moe", 240, peer("dit_moe")),
        Stage("vae", 180, peer("vae", "1024x1024", "compile")),
        sanitizer("racecheck", test, RACED, 180),
        sanitizer("synccheck", test, RACED, 120),
        Stage("one_launch_tests", 90, [test, "--gtest_filter=*DeviceOperator*:DeviceGolden.*:RanksOfOneGpu.*"]),
        sanitizer("one_launch_memcheck", test, "*DeviceOperator*:-*RandomLayers*", 90),
        Stage("one_launch", 150, [programs / "bench/one_launch_bench", "1", "--device", "cuda"]),
        Stage("one_launch_peer", 90, peer("experts", FUSED_SHAPES)),
        Stage("one_launch_roof", 60, [python, ROOT / "bench/peers/roof_peer.py", FUSED_SHAPES]),
    ]


def chosen(found, words):
    if words == "all":
        return found
    wanted = [] if words == "none" else list(FUSED) if words == "fused" else words.split(",")
    known = [stage.name for stage in found]
    for word in wanted:
        if word not in known:
            sys.exit(f"check_gpu: no stage '{word}'; there are {', '.join(known)}")
    return [stage for stage in found if stage.name in wanted]


def run_stage(stage, limit, environment):
    """Runs a stage; returns output and status for gpu_page."""
    command = list(map(str, stage.command))
    result = {"command": shlex.join(command), "limit_s": round(limit), "before": gpu_page.clocks()}
    start = time.monotonic()
    processes, said = [], [tempfile.TemporaryFile("w+", errors="replace") for _ in range(stage.shards)]
    try:
        for shard, output in enumerate(said):  # files, because a full pipe would block a process
            own = {"GTEST_TOTAL_SHARDS": str(stage.shards), "GTEST_SHARD_INDEX": str(shard)} if stage.shards > 1 else {}
            processes.append(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT,
                                              env={**environment, **own}, start_new_session=True, cwd=ROOT))
    except OSError as error:
        return {**result, "status": "cannot start", "output": str(error), "seconds": 0}
    statuses, stopped = [], False
    for process in processes:
        try:
            process.wait(timeout=max(0.1, start + limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            stopped = True
        statuses.append(process.returncode)
    outputs = []
    for output in said:
        with output:
            output.seek(0)
            outputs.append(output.read())
    failed = [status for status in statuses if status]
    result["status"] = (f"stopped at its limit of {limit:.0f} s" if stopped else
                        f"failed (status {failed[0]})" if failed else "passed")
    return {**result, "output": "".join(outputs), "seconds": round(time.monotonic() - start, 1),
            "after": gpu_page.clocks()}


def write(out, results):
    out.parent.mkdir(parents=True, exist_ok=True)
    for path, text in ((out.with_suffix(".json"), json.dumps(results, indent=1) + "\n"),
                       (out, gpu_page.page(results))):
        beside = path.with_name(path.name + ".new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)


def earlier(paths):
    """Merges results of earlier calls: the last result of a stage counts."""
    together = {"machine": {}, "stages": {}}
    for path in paths:
        results = json.loads(path.read_text(encoding="utf-8"))
        together["machine"].update(results["machine"])
        together["stages"].update(results["stages"])
    return together


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/gpu/gpu.md")
    parser.add_argument("--stages", default="all", help="names with commas; all (default) or none")
    parser.add_argument("--list", action="store_true", help="name the stages and their limits")
    parser.add_argument("--programs", type=pathlib.Path, help="built already: a build folder or a packed one")
    parser.add_argument("--minutes", type=float, help="for all stages together; 8 for fused, or 60")
    parser.add_argument("--from", dest="before", type=pathlib.Path, action="append", default=[],
                        help="results of an earlier call (its .json)")
    parser.add_argument("--python", default=sys.executable, help="the one that has PyTorch")
    return parser.parse_args()


def main():
    args = arguments()
    build = args.programs is None
    programs = (args.programs or ROOT / "build/release").absolute()
    found = stages(programs, args.python, build)
    if args.list:
        print("\n".join(f"{stage.name}: {stage.seconds} s" for stage in found))
        return 0
    wanted = chosen(found, args.stages)
    end = time.monotonic() + 60 * (args.minutes or (FUSED_MINUTES if args.stages == "fused" else 60))
    environment = pack_gpu.environment(programs, ROOT)
    results = earlier(args.before)
    if wanted:
        results["machine"].update(gpu_page.machine(args.python),
                                  date=datetime.date.today().isoformat())
    write(args.out, results)
    for stage in wanted:
        left = end - time.monotonic()
        if left < 1:
            results["stages"][stage.name] = {"command": shlex.join(map(str, stage.command)), "seconds": 0,
                                             "status": "not run: no time left", "output": ""}
        else:
            results["stages"][stage.name] = run_stage(stage, min(left, stage.seconds), environment)
        one = results["stages"][stage.name]
        print(f"check_gpu: {stage.name}: {one['status']} ({one['seconds']} s)", flush=True)
        write(args.out, results)
    failed = [n for n, one in results["stages"].items() if one["status"] != "passed"]
    print(f"check_gpu: {args.out}: {len(results['stages']) - len(failed)} stages passed"
          + (f"; not so: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
