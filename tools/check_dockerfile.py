#!/usr/bin/env python3
"""Checks the Dockerfile against the tree: instructions, stages, files, scripts, packages and users.

check_dockerfile.py [--build] [TREE]   --build: also builds the image if docker, podman or buildah is available (some minutes)
"""

import fnmatch
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

SOURCE = pathlib.Path(__file__).parents[1]
KNOWN = {"FROM", "COPY", "WORKDIR", "RUN", "USER", "ENTRYPOINT", "CMD", "ENV", "ARG", "LABEL", "EXPOSE"}
BUILDERS = (("docker", "info"), ("podman", "info"), ("buildah", "info"))


def instructions(text):
    """Returns [(line, name, flags, rest)], with lines joined at a trailing backslash."""
    found, line, words = [], 0, ""
    for number, part in enumerate(text.splitlines(), 1):
        if not words and (not part.strip() or part.lstrip().startswith("#")):
            continue
        line = line if words else number
        words += part.strip().removesuffix("\\")
        if part.rstrip().endswith("\\"):
            continue
        name, _, rest = words.partition(" ")
        flags = []
        while match := re.match(r"\s*--(\w[\w-]*)=(\S+)\s+", rest):
            flags.append((match[1], match[2]))
            rest = rest[match.end():]
        found.append((line, name, flags, rest.strip()))
        words = ""
    return found


def installable(tree):
    """Returns the packages named in scripts/install."""
    text = (tree / "scripts/install").read_text()
    return {word for block in re.findall(r"(?:packages|optional)\+?=\(([^)]*)\)", text) for word in block.split()}


def ignored(tree, path):
    file = tree / ".dockerignore"
    patterns = file.read_text().split() if file.exists() else []
    return any(fnmatch.fnmatch(path.split("/")[0], pattern) for pattern in patterns)


def check_run(tree, rest):
    """Yields the problems of a RUN command."""
    if subprocess.run(["sh", "-n", "-c", rest], capture_output=True).returncode:
        yield "the shell cannot read this command"
        return
    commands = [shlex.split(part) for part in re.split(r"&&|;|\|\|?", rest)]
    for script in re.findall(r"\./(\S+)", rest):
        if not os.access(tree / script, os.X_OK) or ignored(tree, script):
            yield f"there is no program {script} in what is copied"
    for command in commands:
        if command[:2] == ["apt-get", "install"] or command[:1] == ["apt"]:
            if command[0] == "apt" or "-y" not in command or "--no-install-recommends" not in command:
                yield "install by apt-get install -y --no-install-recommends"
            if ["apt-get", "update"] not in commands or "/var/lib/apt/lists" not in rest:
                yield "apt-get install wants apt-get update before it and rm -rf /var/lib/apt/lists/* behind it"
            for package in command[2:]:
                if not package.startswith(("-", "/")) and package not in installable(tree):
                    yield f"scripts/install names no package {package}"


def check_sources(tree, stages, name, flags, rest):
    """Yields the problems of the sources of COPY and of RUN mounts."""
    stage = dict(flags).get("from")
    for key, value in flags:
        if key == "mount":
            stage = dict(part.partition("=")[::2] for part in value.split(",")).get("from")
    if stage and stage not in stages:
        yield f"there is no stage {stage} before it"
    for source in rest.split()[:-1] if name == "COPY" and not stage else ():
        if not (tree / source).exists() or (source != "." and ignored(tree, source)):
            yield f"there is no {source} to copy"


def offences(tree, text=None):
    """Returns "Dockerfile:LINE: problem" for each problem."""
    found, stages, images, users, made = [], set(), [], [], set()
    release = re.search(r"Debian (\d+)", (tree / "scripts/install").read_text())[1]
    for line, name, flags, rest in instructions((tree / "Dockerfile").read_text() if text is None else text):
        wrong = [] if name in KNOWN else [f"{name} is no instruction that is known here"]
        if name == "FROM":
            image, _, stage = rest.partition(" AS ")
            images.append(image)
            if image not in stages and not re.fullmatch(rf"debian:{release}(-slim)?", image):
                wrong.append(f"{image}: expected debian:{release}, which scripts/install is for, or a stage")
            stages.add(stage)
        elif not images:
            wrong.append("the first instruction is FROM")
        if name == "RUN":
            wrong += check_run(tree, rest)
            made.update(re.findall(r"useradd .*?--uid (\d+)", rest))
        if name in ("RUN", "COPY"):
            wrong += check_sources(tree, stages, name, flags, rest)
        if name == "WORKDIR" and not rest.startswith("/"):
            wrong.append(f"{rest}: expected a path from /")
        if name == "USER":
            users.append(rest)
            if rest not in made or rest == "0":
                wrong.append(f"{rest}: expected the number of a user that was made, and not 0")
        if name in ("ENTRYPOINT", "CMD"):
            try:
                exact = all(isinstance(word, str) for word in json.loads(rest))
            except (ValueError, TypeError):
                exact = False
            if not exact:
                wrong.append(f"{rest}: expected a list of words, [\"...\"], as a shell would swallow signals")
        found += [f"Dockerfile:{line}: {what}" for what in wrong]
    if not users:
        found.append("Dockerfile: it runs as root; name a USER")
    return found


def build(tree):
    """Returns 0, or the builder's status; reports a missing builder."""
    for builder in BUILDERS:
        try:
            if subprocess.run(builder, capture_output=True, timeout=30).returncode == 0:
                return subprocess.run([builder[0], "build", "-t", "tessera", str(tree)], timeout=7200).returncode
        except (OSError, subprocess.TimeoutExpired):
            pass
    print("check_dockerfile: none of docker, podman and buildah answers here; it was read alone")
    return 0


def main():
    words = [word for word in sys.argv[1:] if word != "--build"]
    tree = pathlib.Path(words[0]) if words else SOURCE
    found = offences(tree)
    for what in found:
        print(f"check_dockerfile: {what}")
    if found:
        return 1
    return build(tree) if "--build" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
