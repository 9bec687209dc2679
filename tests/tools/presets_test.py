#!/usr/bin/env python3
"""A stranger's newer compiler may warn of something new and still builds; continuous integration does not."""

import json
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Warnings(unittest.TestCase):
    def setUp(self):
        presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
        self.presets = {p["name"]: p for p in presets}

    def value(self, name, key):
        preset = self.presets[name]
        found = preset.get("cacheVariables", {}).get(key)
        return found if found or "inherits" not in preset else self.value(preset["inherits"], key)

    def test_they_are_errors_in_ci_only(self):
        strict = {name for name in self.presets if self.value(name, "TESSERA_WERROR") == "ON"}
        self.assertEqual(strict, {"ci"})

    def test_ci_builds_as_everybody_does(self):
        for key in ("CMAKE_BUILD_TYPE", "CMAKE_CXX_FLAGS_RELEASE", "TESSERA_BUILD_BENCH"):
            self.assertEqual(self.value("ci", key), self.value("release", key))

    def test_continuous_integration_tests_the_strict_build(self):
        run = (ROOT / ".ci/run").read_text()
        self.assertRegex(run, r"(?m)^\./scripts/test ci$")
        self.assertFalse(re.search(r"scripts/(build|test) release|build/release", run))


if __name__ == "__main__":
    unittest.main()
