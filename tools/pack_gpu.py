#!/usr/bin/env python3
"""Packs the programs of check_gpu.py for a GPU machine that cannot build them.

  pack_gpu.py build/release FOLDER    -> FOLDER/programs.tar.xz, unpacked there at first use

The archive includes the required shared libraries. Video libraries are replaced by empty ones,
because no GPU code calls them. The C and C++ libraries come from the other machine.
"""

import argparse
import json
import lzma
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

PROGRAMS = ("tessera", "tests/tessera_gpu_test", "bench/attention_bench", "bench/experts_bench", "bench/one_launch_bench",
            "bench/families_bench", "bench/dit_moe_bench", "bench/vae_bench")
EMPTY = re.compile(r"lib(?:avformat|avcodec|avutil|swscale)\.so")
THEIRS = re.compile(r"(?:lib(?:c|m|dl|rt|pthread|stdc\+\+|gcc_s|resolv)|ld-linux.*)\.so")
ARCHIVE = "programs.tar.xz"
# A dictionary larger than the data, because the programs are linked from the same libraries.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 256 << 20}]
# Wraps a program, so that only the program uses the packed libraries.
WRAPPER = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH="$here/{lib}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" exec "$here/{real}" "$@"
"""


def said(*command):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout


def needed(binary):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", said("readelf", "-d", binary))


def places(program):
    """Returns {name: path} of all shared libraries of a program."""
    return dict(re.findall(r"^\s*(\S+) => (/\S+)", said("ldd", program), re.M))


def libraries(programs):
    """Returns ({name: path} to pack, names of empty libraries), without dependencies of the empty ones."""
    carried, empty, seen = {}, set(), set()
    found = {name: path for program in programs for name, path in places(program).items()}
    todo = [name for program in programs for name in needed(program)]
    while todo:
        name = todo.pop()
        if name in seen or THEIRS.match(name):
            continue
        seen.add(name)
        if EMPTY.match(name):
            empty.add(name)
        else:
            carried[name] = found[name]
            todo += needed(found[name])
    return carried, empty


def symbols(programs, library):
    """Returns {version or "": names} of symbols that programs import from a library."""
    wanted = {}
    names = set(re.findall(r"\S+", said("nm", "-D", "--defined-only", "--format=just-symbols", library)))
    for program in programs:
        for name in re.findall(r"\s[Uw]\s(\S+)", said("nm", "-D", "--undefined-only", "--with-symbol-versions", program)):
            plain, _, version = name.replace("@@", "@").partition("@")
            if any(n.replace("@@", "@") == f"{plain}@{version}" or n == plain for n in names):
                wanted.setdefault(version, set()).add(plain)
    return wanted


def make_empty(name, path, programs, folder):
    """Makes a library of the same name in which every imported function aborts."""
    wanted = symbols(programs, path)
    source, script = folder / "empty.c", folder / "empty.map"
    functions = sorted({f for names in wanted.values() for f in names})
    source.write_text("".join(f"void f{i}(void) __asm__(\"{f}\"); void f{i}(void) {{ __builtin_trap(); }}\n"
                              for i, f in enumerate(functions)))
    script.write_text("".join(f"{version} {{ global: {' '.join(f'{n};' for n in sorted(names))} }};\n"
                              for version, names in wanted.items() if version))
    versions = [f"-Wl,--version-script={script}"] if any(wanted) else []
    said("gcc", "-shared", "-fPIC", "-o", folder / name, source, f"-Wl,-soname,{name}", *versions)
    return folder / name


def test_file(program):
    """Returns the ctest file with each test of the program and its label."""
    lines, suite = [], ""
    for line in said(program, "--gtest_list_tests").splitlines():
        if line.startswith(" "):
            test = suite + line.split("#")[0].strip()
            lines.append(f'add_test("gpu.{test}" "{program.name}" "--gtest_filter={test}")\n'
                         f'set_tests_properties("gpu.{test}" PROPERTIES LABELS gpu)\n')
        elif line.endswith("."):
            suite = line
    return "".join(lines)


def texts(names, build):
    """Returns {path: text} of the small files in a packed folder."""
    found = {"packed.json": json.dumps({"source": str(pathlib.Path(__file__).resolve().parent.parent)}),
             "CTestTestfile.cmake": 'subdirs("tests")\n',
             "tests/CTestTestfile.cmake": "".join(test_file(build / name) for name in names if name.startswith("tests/"))}
    for name in names:
        up = "../" * name.count("/")
        found[name] = WRAPPER.format(lib=f"{up}lib", real=f"{up}real/{pathlib.Path(name).name}")
    return found


def pack(build, folder, names=PROGRAMS):
    folder.mkdir(parents=True, exist_ok=True)
    programs = [build / name for name in names]
    carried, empty = libraries(programs)
    all_places = {name: path for program in programs for name, path in places(program).items()}
    with tempfile.TemporaryDirectory() as scratch, lzma.open(folder / ARCHIVE, "wb", filters=FILTERS) as packed, \
            tarfile.open(fileobj=packed, mode="w") as archive:
        scratch = pathlib.Path(scratch)
        for program in programs:
            stripped = scratch / program.name
            said("strip", "-o", stripped, program)
            archive.add(stripped, f"real/{program.name}")
        for name, path in sorted(carried.items()):
            archive.add(os.path.realpath(path), f"lib/{name}")
        for name in sorted(empty):
            archive.add(make_empty(name, all_places[name], programs, scratch), f"lib/{name}")
        for name, text in texts(names, build).items():
            (scratch / "text").write_text(text)
            (scratch / "text").chmod(0o755)
            archive.add(scratch / "text", name)
    return folder / ARCHIVE


def unpack(programs, root):
    """Unpacks an archive beside itself, and links paths of the packing machine to `root`."""
    if not (programs / ARCHIVE).is_file():
        return
    if not (programs / "packed.json").is_file():
        with tarfile.open(programs / ARCHIVE) as archive:
            archive.extractall(programs)
    source = pathlib.Path(json.loads((programs / "packed.json").read_text())["source"])
    if not source.exists():
        source.parent.mkdir(parents=True, exist_ok=True)
        source.symlink_to(root)


def cublas_folders():
    """Returns PyTorch's cuBLASLt folders, for a machine without cuBLASLt in the toolkit."""
    return [str(path.parent) for place in sys.path if place
            for path in sorted(pathlib.Path(place).glob("nvidia/*/lib/libcublasLt.so.*"))]


def environment(programs, root):
    """Returns the environment of the stages."""
    unpack(programs, root)
    paths = [p for p in [os.environ.get("LD_LIBRARY_PATH", "")] if p] + cublas_folders()
    added = {"LD_LIBRARY_PATH": ":".join(paths)} if paths else {}
    return {**os.environ, **added, "TESSERA_BENCH": str(programs / "bench"), "PYTHONUNBUFFERED": "1"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    archive = pack(args.build.absolute(), args.folder)
    print(f"pack_gpu: {archive}: {archive.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
