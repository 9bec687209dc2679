#!/usr/bin/env python3
"""What `cmake --install` copies works on its own: the program, its models, and the library for other projects."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE") or pathlib.Path(__file__).parents[2])
BUILD = pathlib.Path(os.environ.get("TESSERA_PROGRAM") or SOURCE / "build/release/tessera").parent

# As the guide has it.
PROJECT = re.search(r"(?s)CMakeLists.txt <<'END'\n(.*?)END\n", (SOURCE / "docs/guides/packages.md").read_text())[1]


def done(*command, **options):
    ran = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=600, **options)
    if ran.returncode:
        raise AssertionError(f"{command}: {ran.returncode}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return ran.stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        done("cmake", "--install", BUILD, "--prefix", cls.folder / "first")
        cls.prefix = cls.folder / "moved"  # nothing knows where it was put
        (cls.folder / "first").rename(cls.prefix)

    def test_the_program_draws_with_the_models_beside_it(self):
        models = self.prefix / "share/tessera/models"
        self.assertEqual({p.name for p in models.iterdir()}, {p.name for p in (SOURCE / "models").iterdir()})
        (models / "shapes").rename(models / "figures")  # a name that the source tree does not have
        try:
            image = self.folder / "circle.png"
            done(self.prefix / "bin/tessera", "generate", "figures", "--class", "red circle", "--steps", "2", "-o", image)
            self.assertEqual(image.read_bytes()[:4], b"\x89PNG")
        finally:
            (models / "figures").rename(models / "shapes")

    def test_manual_and_completions_are_there(self):
        for name in ("man/man1/tessera.1", "man/man1/tessera-generate.1", "bash-completion/completions/tessera",
                     "zsh/site-functions/_tessera", "fish/vendor_completions.d/tessera.fish", "doc/tessera/LICENSE"):
            self.assertGreater((self.prefix / "share" / name).stat().st_size, 100, name)

    def test_another_project_finds_the_library(self):
        project = self.folder / "project"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(PROJECT)
        shutil.copy(SOURCE / "examples/generate.cpp", project)
        done("cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCMAKE_BUILD_TYPE=Release")
        done("cmake", "--build", project / "build")
        done(project / "build/generate", "red circle", project / "circle.png",
             env={**os.environ, "TESSERA_MODELS": str(self.prefix / "share/tessera/models")})
        self.assertEqual((project / "circle.png").read_bytes()[:4], b"\x89PNG")

    def test_another_version_is_not_taken(self):
        project = self.folder / "later"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(PROJECT.replace("Tessera 0.1", "Tessera 0.2"))
        refused = subprocess.run(["cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}"],
                                 capture_output=True, text=True, timeout=600)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("0.1.0", refused.stderr)

    def test_nothing_installed_names_the_build(self):
        for path in (self.prefix / "lib").rglob("*.cmake"):
            self.assertNotIn(str(SOURCE), path.read_text(), path)


if __name__ == "__main__":
    unittest.main()
