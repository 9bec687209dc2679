#!/usr/bin/env python3
"""Checks the machine code of CUDA kernels for optimisations that ptxas may silently undo.

- In a program without sm_90a, has_warpgroups() is false and warpgroup kernels trap.
- Attention's exponentials are between the wait for scores and the wait for the product with values.
- Kernels that move elements have no 64-bit division, and read 16-byte words if possible.
- The code size of heavily unrolled kernels does not grow: attention and products stay below the 128 KB
  of the instruction cache, convolutions do not.
- The fused kernel has the products of its tiles, a copy engine for their weights, a fence before each
  flag, and no stale L1 cache.

Reports a missing nvcc and succeeds; without nvdisasm (from the toolkit, or NVIDIA's package
nvidia-cuda-nvdisasm) only the first check runs.
"""

import argparse
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from check_ptxas import find_nvcc, short_name

FLAGS = ["-std=c++20", "-O3", "--expt-relaxed-constexpr"]
KERNELS = re.compile(r"\.section\s+\.text\.(\S+?),")
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,6})\*/\s+(?:@!?U?P\d+\s+)?([^;]*?)\s*;")
# Bytes of a kernel's code.
MOST_BYTES = {"attention_sm90_kernel": 64 * 1024, "matmul_sm90_kernel": 84 * 1024,
              "conv_sm90_kernel": 256 * 1024, "conv_images_sm90_kernel": 84 * 1024,
              "expert_products_sm90_kernel": 84 * 1024}
# These have no 64-bit division, a call of some hundred instructions, and use words for eight elements.
WORDS = ("rope_kernel", "copy_kernel", "move_rows_kernel", "convert_kernel", "prepare_kernel")
# Instructions of the fused kernel by tiles; each store of a flag or bell follows a fence, and loads drop the L1 cache.
FUSED_NEEDS = {"FetchedProducts": (r"HGMMA", r"FENCE\.VIEW\.ASYNC", r"UTMALDG", r"SYNCS\.PHASECHK"),
               "GroupProducts": (r"HGMMA", r"FENCE\.VIEW\.ASYNC"), "WarpProducts": (r"HMMA",),
               "PlainProducts": (r"FFMA",)}
FLAG_STORE, FLAG_LOAD = re.compile(r"STG?\.E\.64\.STRONG\.SYS"), re.compile(r"LDG?\.E\.64\.STRONG\.SYS")
# Keys of a block by the width of a head, as in Sm90Tile.
KEYS = {64: 128, 80: 128, 128: 128, 256: 64}


def find_nvdisasm():
    """Finds nvdisasm on the path, in the toolkit, or in the Python package."""
    if found := shutil.which("nvdisasm") or shutil.which("nvdisasm", path="/usr/local/cuda/bin"):
        return found
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations if spec else []:
        for path in pathlib.Path(folder).glob("*/bin/nvdisasm"):
            return str(path)
    return None


def kernels(listing):
    """Parses the output of nvdisasm -c to {name: [(address, instruction)]}."""
    parts = KERNELS.split(listing)
    return {short_name(name): [(int(at, 16), what) for at, what in INSTRUCTION.findall(body)]
            for name, body in zip(parts[1::2], parts[2::2])}


def wrong_order(name, code):
    """Returns the problem of the order of attention's instructions, or None."""
    width = int(re.search(r"<(\d+)", name).group(1))
    least = KEYS[width] // 2 + 2 - (4 if 64 < width <= 128 else 0)  # two rows a lane, their rescaling, minus polynomials
    waits = [i for i, (_, what) in enumerate(code) if what.startswith("WARPGROUP.DEPBAR")]
    for first, second in zip(waits, waits[1:]):
        if code[first][1].endswith("0x1") and code[second][1].endswith("0x0"):
            beside = sum(what.startswith("MUFU.EX2") for _, what in code[first:second])
            if beside >= least:
                return None
            return f"{beside} exponentials run beside the product with values, not {least}"
    return "no wait for scores comes before one for the product with values"


def fused_fault(name, code):
    """Returns the problem of a fused kernel's products, flags and fences, or None."""
    words = [what for _, what in code]
    tiles = re.search(r"(\w+Products)<", name)
    for needed in FUSED_NEEDS.get(tiles.group(1), ()) if tiles else ():
        if not any(re.match(needed, what) for what in words):
            return f"has no {needed}"
    stores = [i for i, what in enumerate(words) if FLAG_STORE.match(what)]
    if not stores or not any(FLAG_LOAD.match(what) for what in words):
        return "has no flags"
    for i in stores:
        if not any(what.startswith("MEMBAR") and "SYS" in what for what in words[max(0, i - 24):i]):
            return "stores a flag without a fence before"
    if not any(what.startswith("CCTL.IVALL") for what in words):
        return "keeps old rows in the L1 cache"
    return None


def faults(listing):
    """Returns (number of checked kernels, problems)."""
    found, wrong = kernels(listing), []
    for name, code in found.items():
        size = (code[-1][0] + 16 if code else 0)
        most = MOST_BYTES.get(name.split("<")[0])
        if most and size > most:
            wrong.append(f"{name}: {size} bytes of code, at most {most} were meant")
        if name.startswith("attention_sm90_kernel") and (order := wrong_order(name, code)):
            wrong.append(f"{name}: {order}")
        if "moe_layer_kernel" in name and (fault := fused_fault(name, code)):
            wrong.append(f"{name}: {fault}")
        if name.split("<")[0] in WORDS:
            if any(re.search(r"CALL.*[su]64", what) for _, what in code):
                wrong.append(f"{name}: divides 64 bits")
            eights = re.search(r"\b8>|uint4>", name)
            if eights and not any(re.match(r"LDG\.E\S*\.128", what) for _, what in code):
                wrong.append(f"{name}: reads no words of 16 bytes")
    return found, wrong


def nvcc(compiler, root, name, *options):
    source = root / ("src" if "/" in name else "src/kernels/cuda") / f"{name}.cu"
    done = subprocess.run([compiler, *FLAGS, *options, f"-I{root / 'src'}", f"-I{root / 'include'}",
                           source], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"check_sass: nvcc failed:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def wrong_forms(compiler, root):
    """Returns the problems of programs for other architectures."""
    wrong = []
    for arch, warpgroups in (("sm_90a", True), ("sm_90", False), ("sm_80", False)):
        said = nvcc(compiler, root, "warpgroups", f"-arch={arch}", "-cubin", "-Xptxas", "-v", "-o",
                    "/dev/null")
        if warpgroups != bool(re.search(r"[1-9]\d* bytes smem", said)):
            wrong.append(f"a program for {arch} says the opposite of what it has")
    with tempfile.TemporaryDirectory() as folder:
        ptx = pathlib.Path(folder) / "code.ptx"
        for name in ("attention_sm90", "matmul_sm90", "experts_sm90", "conv", "conv_sm90"):
            nvcc(compiler, root, name, "-arch=compute_90", "-ptx", "-o", ptx)
            bodies = re.split(r"\.entry ", ptx.read_text(encoding="utf-8"))[1:]
            of_groups = [body for body in bodies if "sm90_kernel" in body.split("(")[0]]
            if not of_groups or not all(re.search(r"\btrap;", body) for body in of_groups):
                wrong.append(f"{name}.cu: without sm_90a a kernel of warpgroups does nothing")
    return wrong


def listings(compiler, disassembler, root):
    with tempfile.TemporaryDirectory() as folder:
        cubin = pathlib.Path(folder) / "code.cubin"
        for name in ("attention_sm90", "matmul_sm90", "rope", "copy", "conv", "conv_sm90", "experts_sm90",
                     "fused/cuda/kernel"):
            nvcc(compiler, root, name, "-arch=sm_90a", "-cubin", "-o", cubin)
            yield subprocess.run([disassembler, "-c", cubin], capture_output=True, text=True,
                                 check=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--listing", type=pathlib.Path,
                        help="read what nvdisasm -c said from a file instead of compiling")
    parser.add_argument("--forms", action="store_true",
                        help="only what programs for other architectures say and do")
    args = parser.parse_args()
    wrong, texts = [], []
    if args.listing:
        texts = [args.listing.read_text(encoding="utf-8")]
    elif not (compiler := find_nvcc()):
        print("check_sass: there is no nvcc here; nothing was checked")
        return 0
    else:
        wrong = wrong_forms(compiler, args.root)
        if args.forms:
            pass
        elif disassembler := find_nvdisasm():
            texts = listings(compiler, disassembler, args.root)
        else:
            print("check_sass: there is no nvdisasm here; the order and size of code were not checked")
    for text in texts:
        found, more = faults(text)
        if not found:
            more = ["no kernels found; is this what nvdisasm -c says?"]
        for name, code in found.items():
            print(f"{len(code) * 16:7} bytes  {name}")
        wrong += more
    for line in wrong:
        print(f"check_sass: {line}")
    print(f"check_sass: {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
