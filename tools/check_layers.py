#!/usr/bin/env python3
"""Checks the layers against their table: a layer includes and names only the layers on its line."""

import argparse
import pathlib
import re
import sys

import source_tree

# The same table is in docs/architecture.md and, as link lines, in cmake/tessera_layers.cmake.
LAYERS = {
    "base": "",
    "tensor": "base",
    "kernels": "tensor base",
    "ops": "kernels tensor base",
    "comm": "tensor base",
    "nn": "ops tensor base",
    "tokenizer": "base",
    "jinja": "tokenizer base",
    "caption": "tokenizer base",
    "media": "tensor base",
    "load": "nn ops tensor base",
    "models": "nn ops caption tokenizer tensor base",
    "sample": "nn ops tensor base",
    "fused": "nn ops kernels comm tensor base",
    "parallel": "fused sample nn ops comm tensor base",
    "evaluation": "sample nn ops tensor base",
    "cluster": "comm tensor base",
    "runtime": "cluster parallel sample models load media jinja tokenizer nn comm ops kernels tensor base",
    "diffusion": "runtime cluster parallel sample models load media jinja caption tokenizer nn comm ops "
                 "tensor base",
    "completion": "runtime cluster parallel sample models load tokenizer nn comm ops tensor base",
    "admission": "completion diffusion runtime cluster parallel sample models load nn comm ops kernels "
                 "tensor base",
    "pipeline": "admission completion diffusion runtime cluster parallel sample models load tokenizer "
                "nn comm ops kernels tensor base",
    "planner": "admission diffusion runtime cluster parallel sample models load nn comm ops kernels "
               "tensor base",
    "engine": "pipeline admission completion diffusion runtime cluster parallel sample models load media "
              "tokenizer nn comm kernels tensor base",
    "study": "engine pipeline admission completion diffusion runtime cluster evaluation sample models "
             "load nn ops kernels tensor base",
}
ALLOWED = {name: set(line.split()) | {name, "tessera"} for name, line in LAYERS.items()}

# External libraries, and the layers that may include them.
PARTS = {
    "fmt": None,
    "nlohmann": {"base", "load", "engine", "apps"},
    "png.h": {"media"},
    "zlib": {"media"},
    "turbojpeg": {"media"},
    "webp": {"media"},
    "libavcodec": {"media"},
    "libavformat": {"media"},
    "libavutil": {"media"},
    "libswscale": {"media"},
    "cuda_runtime": {"kernels"},
    "cuda_runtime_api": {"kernels"},
    "cublasLt": {"kernels"},
    "nccl": {"kernels", "comm"},
    "pmix": {"comm"},
    "unicode": {"tokenizer", "caption"},
    "mpi": {"comm"},
    "CLI": {"apps"},
    "microhttpd": {"apps"},
    "sqlite3": {"apps"},
    "prometheus": {"apps"},
    "nanobind": {"apps"},
    "Eigen": {"evaluation"},
}
LARGEST_KNOT = 3  # modules; a larger knot cannot be understood, tested or moved in parts
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)


# Uses of a layer: a qualified name, using namespace, an alias, or an opened namespace.
NAMED = re.compile(r"(?<![\w:])(?:(?:::)?tessera::)?(" + "|".join(LAYERS) + r")::"
                   r"|\bnamespace\s+(?:\w+\s*=\s*)?(?:::)?(?:tessera::)?(" + "|".join(LAYERS) + r")\s*[;{]")


def foreign_names(root, path):
    """Yields (line, namespace) of each layer that a file of src/, apps/ or python/ names without permission."""
    seen = ALLOWED.get(owner_of(path), set())
    text = source_tree.without_comments(source_tree.read(root, path))
    for match in NAMED.finditer(text):
        name = match.group(1) or match.group(2)
        if name not in seen:
            yield text.count("\n", 0, match.start()) + 1, name


def includes(root, path):
    text = source_tree.without_comments(source_tree.read(root, path), keep_strings=True)
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match.group(1) == "<", match.group(2)


def owner_of(path):
    """Returns the layer of a file: api, a folder of src/, or apps (with python)."""
    if path.parts[0] == "include":
        return "api"
    return path.parts[1] if path.parts[0] == "src" else "apps"


def resolve(root, path, target):
    """Returns the file of a quoted include, relative to the root; None if missing."""
    for base in (path.parent, pathlib.Path("src"), pathlib.Path("include"), pathlib.Path("apps")):
        if (root / base / target).is_file():
            parts = []
            for part in (base / target).parts:
                parts = parts[:-1] if part == ".." else parts + [part]
            return pathlib.Path(*parts)
    return None


def layer_offence(owner, wanted, target):
    """Returns the reason against including a file of layer wanted, or None."""
    if wanted == "api":
        return None
    if owner == "apps":
        return None if wanted == "apps" else f'programs see include/tessera only, not "{target}"'
    if owner == "api":
        return f'the public face includes nothing of the layers, not "{target}"'
    if wanted in ALLOWED.get(owner, ()):
        return None
    line = LAYERS.get(owner)
    if line is None:
        return f'layer "{owner}" is not in the table'
    return f'"{target}" is not on the line of {owner}: {line or "(api only)"}'


def part_offence(owner, target):
    first = target.split("/")[0].split(".h")[0] if target != "png.h" else target
    users = PARTS.get(first)
    if users is not None and owner not in users:
        return f"<{target}> belongs to {' and '.join(sorted(users))}, not {owner}"
    return None


def check_includes(root):
    """Returns (offences, graph of quoted includes)."""
    offences, graph = [], {}
    for path in source_tree.code_files(root, "src", "include", "apps", "python"):
        owner = owner_of(path)
        graph[path] = []
        if path.parts[0] in ("src", "apps", "python"):
            for line, name in foreign_names(root, path):
                offences.append(f"{path}:{line}: {name}:: is not on the line of {owner}: "
                                f"{LAYERS.get(owner, '') or '(api only)'}")
        for line, system, target in includes(root, path):
            where = f"{path}:{line}"
            if system and not target.startswith("tessera/"):
                why = part_offence(owner, target)
            else:
                found = resolve(root, path, target)
                if found is None:
                    why = f'"{target}" is not in src/, include/ or beside the file'
                elif ".." in target:
                    why = f'"{target}": include from the source root'
                else:
                    graph[path].append(found)
                    why = layer_offence(owner, owner_of(found), target)
            if why:
                offences.append(f"{where}: {why}")
    return offences, graph


def cycles(graph):
    """Returns include cycles, each as a list of files."""
    found, state = [], {}

    def visit(node, trail):
        state[node] = "open"
        for following in graph.get(node, ()):
            if state.get(following) == "open":
                found.append(trail[trail.index(following):] + [following])
            elif following not in state:
                visit(following, trail + [following])
        state[node] = "done"

    for node in graph:
        if node not in state:
            visit(node, [node])
    return found


def module_of(path):
    """Returns the module of a file; x.h, x.cpp and similar files share a module."""
    return path.with_suffix("")


def knots(graph):
    """Returns sets of modules of a layer with circular includes, the largest first (Tarjan)."""
    edges = {}
    for path, targets in graph.items():
        edges.setdefault(module_of(path), set()).update(module_of(t) for t in targets)
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for following in sorted(edges.get(node, ())):
            if following not in index:
                visit(following)
            if following in stack:
                low[node] = min(low[node], low[following])
        if low[node] == index[node]:
            at = stack.index(node)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return sorted((k for k in found if len(k) > 1), key=len, reverse=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root.resolve()
    sys.setrecursionlimit(10000)
    offences, graph = check_includes(root)
    offences += ["include cycle: " + " -> ".join(map(str, c)) for c in cycles(graph)]
    tied = knots(graph)
    offences += [f"knot of {len(k)} modules that include each other, {LARGEST_KNOT} are allowed: "
                 + ", ".join(map(str, k)) for k in tied if len(k) > LARGEST_KNOT]
    return source_tree.report("check_layers", offences,
                              f"{len(graph)} files keep the layer rule, {len(tied)} knots of at most "
                              f"{LARGEST_KNOT} modules")


if __name__ == "__main__":
    sys.exit(main())
