#!/usr/bin/env python3
"""The Dockerfile is as the tree is, and what is wrong with one is found."""

import os
import pathlib
import sys
import unittest

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE") or pathlib.Path(__file__).parents[2])
sys.path.insert(0, str(SOURCE / "tools"))
import check_dockerfile  # noqa: E402

TEXT = (SOURCE / "Dockerfile").read_text()


class Dockerfile(unittest.TestCase):
    def test_ours(self):
        self.assertEqual(check_dockerfile.offences(SOURCE), [])
        names = [name for _, name, _, _ in check_dockerfile.instructions(TEXT)]
        self.assertEqual(names.count("FROM"), 2)
        self.assertIn("USER", names)

    def test_what_is_wrong_is_found(self):
        for before, after, says in (
                ("FROM debian:12-slim AS build", "FROM debian:latest AS build", "debian:latest: expected debian:12"),
                ("FROM debian:12-slim\n", "FROM debian:13-slim\n", "debian:13-slim: expected debian:12"),
                ("FROM debian:12-slim AS build", "WORKDIR /x\nFROM debian:12-slim AS build", "first instruction"),
                ("COPY . /tessera", "COPY source /tessera", "no source to copy"),
                ("COPY . /tessera", "COPY build /tessera", "no build to copy"),
                ("COPY . /tessera", "COPPY . /tessera", "COPPY is no instruction"),
                ("WORKDIR /tessera", "WORKDIR tessera", "expected a path from /"),
                ("./scripts/package", "./scripts/pack", "no program scripts/pack"),
                ("./scripts/package", "./README.md", "no program README.md"),
                ("mkdir /packages &&", "mkdir '/packages &&", "cannot read this command"),
                ("from=build,", "from=builder,", "no stage builder"),
                ("apt-get update && ", "", "wants apt-get update"),
                ("&& rm -rf /var/lib/apt/lists/*", "", "rm -rf /var/lib/apt/lists"),
                ("install -y ", "install ", "apt-get install -y"),
                ("--no-install-recommends ", "", "--no-install-recommends"),
                ("/packages/*.deb &&", "/packages/*.deb libfoo-dev &&", "no package libfoo-dev"),
                ("--uid 10001", "--uid 10002", "10001: expected the number of a user"),
                ("USER 10001", "USER 0", "not 0"),
                ("USER 10001\n", "", "runs as root"),
                ('ENTRYPOINT ["tessera"]', "ENTRYPOINT tessera", "a list of words"),
                ('CMD ["--help"]', 'CMD ["--help"', "a list of words")):
            self.assertEqual(TEXT.count(before), 1, before)
            found = check_dockerfile.offences(SOURCE, TEXT.replace(before, after))
            self.assertTrue(any(says in one for one in found), f"{after}: {found}")

    def test_packages_of_the_script_are_taken(self):
        text = TEXT.replace("/packages/*.deb &&", "/packages/*.deb curl chromium &&")
        self.assertEqual(check_dockerfile.offences(SOURCE, text), [])


if __name__ == "__main__":
    unittest.main()
