#!/usr/bin/env python3
"""Compiles the hot CUDA kernels for sm_90a and finds spilled registers, stack frames, and serialised
products.

Reports a missing nvcc and succeeds.
"""

import argparse
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys

HOT = ("attention", "attention_sm90", "biased_attention", "conv", "conv_sm90", "elementwise", "experts", "experts_sm90", "few_rows", "group_norm", "matmul", "matmul_sm90", "norm", "rope", "routing",
       "selection", "sampling", "fused/cuda/kernel")
# Bytes of stack that a kernel may have: copies of a group of tiles, by the scheduler alone.
STACK = {"moe_layer_kernel": 256}
FLAGS = ["-std=c++20", "-O3", "--expt-relaxed-constexpr", "-arch=sm_90a", "-cubin", "-Xptxas", "-v"]
SERIAL = re.compile(r"wgmma\.mma_async instructions are serialized due to ([^']*) '(\S+)'")
FRAME = re.compile(r"Function properties for (\S+)\s+(\d+) bytes stack frame, "
                   r"(\d+) bytes spill stores, (\d+) bytes spill loads"
                   r"(?:\s+ptxas info\s*: Used (\d+) registers)?")


def find_nvcc():
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def short_name(mangled):
    """Returns the kernel of a mangled name with the template arguments."""
    plain = subprocess.run(["c++filt", mangled], capture_output=True, text=True,
                           check=False).stdout.strip() if shutil.which("c++filt") else mangled
    plain = plain.replace("(anonymous namespace)::", "").replace("tessera::kernels::", "")
    plain = re.sub(r"\([\w:]+\)(?=\d)", "", plain)  # casts of parameters
    return re.sub(r"^void |cuda::|tensor::", "", plain).split("(")[0]


def kernels(report):
    """Returns (name, registers, stack, spilled bytes) of each kernel in the output of ptxas -v."""
    return [(name, int(used or 0), int(stack), int(stores) + int(loads))
            for name, stack, stores, loads, used in FRAME.findall(report)]


def compile_one(nvcc, root, name):
    folder = root / ("src" if "/" in name else "src/kernels/cuda")
    source = folder / f"{name}.cu"
    done = subprocess.run([nvcc, *FLAGS, f"-I{root / 'src'}", f"-I{root / 'include'}", "-o",
                           "/dev/null", source], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--report", type=pathlib.Path,
                        help="read what ptxas -v said from a file instead of compiling")
    parser.add_argument("-j", type=int, default=2)
    args = parser.parse_args()
    if args.report:
        reports = [(0, args.report.read_text(encoding="utf-8"))]
    elif not (nvcc := find_nvcc()):
        print("check_ptxas: there is no nvcc here; nothing was checked")
        return 0
    else:
        with concurrent.futures.ThreadPoolExecutor(args.j) as pool:
            reports = list(pool.map(lambda name: compile_one(nvcc, args.root, name), HOT))
    found, bad = [], 0
    for status, text in reports:
        if status:
            print(f"check_ptxas: nvcc failed:\n{text}")
            return 1
        found += kernels(text)
        for why, name in SERIAL.findall(text):
            print(f"check_ptxas: {short_name(name)} multiplies one by one: {why}")
            bad += 1
    for name, registers, stack, spilled in found:
        wrong = stack > STACK.get(short_name(name).split("<")[0].split("::")[-1], 0) or spilled
        bad += bool(wrong)
        print(f"{registers:4} registers, {stack} stack, {spilled} spilled"
              f"{'  <- ' if wrong else '  '}{short_name(name)}")
    if not found:
        print("check_ptxas: no kernels found; is this what ptxas -v says?")
        return 1
    print(f"check_ptxas: {len(found)} kernels, {bad} with a stack frame or spills, "
          f"or products in line")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
