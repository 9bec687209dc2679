#!/usr/bin/env python3
"""The wheel of scripts/wheel: what it brings along for old C libraries, and (TESSERA_WHEEL=long) the wheel itself."""

import ctypes
import os
import pathlib
import re
import subprocess
import tempfile
import unittest
import zipfile

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE") or pathlib.Path(__file__).parents[2])
LINES = """
import tessera
pipe = tessera.Pipeline.from_pretrained("shapes")
pipe(class_labels="red circle").images[0].save("circle.png")
try:  # errors cross the module
    tessera.Pipeline.from_pretrained("absent")
except tessera.ModelError as error:
    print(type(error).__name__)
"""


def ran(*command, **options):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=3000, **options)


def output(*command, **options):
    result = ran(*command, **options)
    if result.returncode:
        raise AssertionError(f"{command}: {result.returncode}\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result.stdout


class Folder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)


class Compatibility(Folder):
    def test_two_names_and_no_more(self):
        library = self.folder / "names.so"
        output("c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC",
               SOURCE / "python/portable/glibc_2_31.cpp", "-o", library)
        listed = output("nm", "-D", "--defined-only", library)
        self.assertEqual({line.split()[-1] for line in listed.splitlines()},
                         {"__libc_single_threaded", "arc4random"})
        loaded = ctypes.CDLL(str(library))
        self.assertGreater(len({loaded.arc4random() for _ in range(8)}), 6)

    def test_another_machine_is_refused(self):
        other = self.folder / "uname"
        other.write_text("#!/bin/sh\necho aarch64\n")
        other.chmod(0o755)
        refused = ran(SOURCE / "scripts/wheel", env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"})
        self.assertEqual(refused.returncode, 1)
        self.assertEqual(refused.stderr, "wheel: it is made on x86-64 alone; this machine is aarch64\n")


@unittest.skipUnless(os.environ.get("TESSERA_WHEEL") == "long", "it is built with TESSERA_WHEEL=long (minutes, and a network)")
class Wheel(Folder):
    def test_it_needs_no_newer_library_and_draws(self):
        wheel = SOURCE / output(SOURCE / "scripts/wheel").splitlines()[-1]
        self.assertRegex(wheel.name, r"^tessera-[0-9.]+-cp3\d+-(cp3\d+|abi3)-manylinux_2_31_x86_64\.whl$")
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(self.folder / "packed")
        libraries = list((self.folder / "packed").rglob("*.so*"))
        self.assertGreaterEqual(len(libraries), 8)
        for library in libraries:
            needed = re.findall(r"\((GLIBC|GLIBCXX)_([0-9.]+)\)", output("objdump", "-T", library))
            for name, version in needed:
                limit = {"GLIBC": (2, 31), "GLIBCXX": (3, 4, 28)}[name]
                self.assertLessEqual(tuple(map(int, version.split("."))), limit, f"{library.name}: {name}_{version}")
        # Symbols of the C library have a version; others are Python's, zlib's or those of the libraries in the wheel.
        found = {line.split()[-1].split("@")[0] for library in libraries
                 for line in output("nm", "-D", "--defined-only", library).splitlines()}
        module = next(library for library in libraries if library.name.startswith("_core"))
        missing = [line.split()[-1] for line in output("nm", "-D", "-u", module).splitlines() if " U " in line]
        self.assertEqual([name for name in missing if "@" not in name and not re.match("_?Py", name)
                          and name not in found | {"crc32"}], [])
        python = self.folder / "venv/bin/python"
        output("python3", "-m", "venv", self.folder / "venv")
        output(python, "-m", "pip", "install", "-q", wheel, "pillow")
        self.assertEqual(output(python, "-c", LINES, cwd=self.folder), "ModelNotFoundError\n")
        self.assertGreater((self.folder / "circle.png").stat().st_size, 1000)


if __name__ == "__main__":
    unittest.main()
