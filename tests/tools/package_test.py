#!/usr/bin/env python3
"""What Debian packages say and hold."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE") or pathlib.Path(__file__).parents[2])
BUILD = pathlib.Path(os.environ.get("TESSERA_PROGRAM") or SOURCE / "build/release/tessera").parent


def output(*command, **options):
    ran = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=600, **options)
    if ran.returncode:
        raise AssertionError(f"{command}: {ran.returncode}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return ran.stdout


@unittest.skipUnless(shutil.which("dpkg-shlibdeps"), "there is no dpkg-dev here, which cpack asks for what a package needs")
class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        output("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", holder.name)
        cls.packages = {p.name.split("_")[0]: p for p in pathlib.Path(holder.name).glob("*.deb")}

    def field(self, package, name):
        return output("dpkg-deb", "-f", self.packages[package], name).strip()

    def files(self, package):
        return {line.split()[5][1:] for line in output("dpkg-deb", "-c", self.packages[package]).splitlines()}

    def test_there_are_three(self):
        self.assertEqual(set(self.packages), {"tessera", "libtessera0.1", "libtessera-dev"})

    def test_they_need_what_they_load(self):
        for package in ("tessera", "libtessera0.1"):
            for library in ("libc6", "libicu", "libpng16-16"):
                self.assertIn(library, self.field(package, "Depends"))
        self.assertRegex(self.field("tessera", "Recommends"), r"openmpi-bin, libavformat\d+, libavcodec\d+")
        self.assertEqual(self.field("libtessera-dev", "Depends"), f"libtessera0.1 (= {self.field('tessera', 'Version')})")

    def test_files_are_where_debian_has_them(self):
        program = self.files("tessera")
        for path in ("/usr/bin/tessera", "/usr/share/man/man1/tessera-generate.1", "/usr/share/tessera/models/shapes/model_index.json",
                     "/usr/share/bash-completion/completions/tessera", "/usr/share/doc/tessera/LICENSE"):
            self.assertIn(path, program)
        self.assertFalse([path for path in program if "include" in path or path.endswith(".so")])
        self.assertTrue([path for path in self.files("libtessera0.1") if path.endswith("/libtessera.so.0.1")])
        development = self.files("libtessera-dev")
        for header in (SOURCE / "include/tessera").iterdir():
            self.assertIn(f"/usr/include/tessera/{header.name}", development)
        self.assertTrue([path for path in development if path.endswith("/libtessera.so")])


if __name__ == "__main__":
    unittest.main()
