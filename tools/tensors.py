#!/usr/bin/env python3
"""Lists, extracts and compares tensors of safetensors files; needs only Python.

  tensors.py list FILE                      names, dtypes and shapes
  tensors.py take FILE PREFIX OUT           the tensors under PREFIX, without it, into a new file
  tensors.py take FILE NAME OUT --as OTHER  one tensor, under another name
  tensors.py compare FILE:NAME FILE:NAME    the largest difference of two float tensors

Compare ends with status 1 if the difference exceeds --within times the largest value.
"""

import argparse
import array
import json
import math
import pathlib
import struct
import sys


def read(path):
    """Returns {name: (dtype, shape, bytes)} of a file."""
    raw = pathlib.Path(path).read_bytes()
    try:
        length = struct.unpack("<Q", raw[:8])[0]
        header = json.loads(raw[8:8 + length])
        header.pop("__metadata__", None)
        data = memoryview(raw)[8 + length:]
        return {name: (e["dtype"], e["shape"], data[slice(*e["data_offsets"])])
                for name, e in header.items()}
    except (struct.error, ValueError, KeyError, AttributeError, TypeError):
        raise SystemExit(f"tensors: error: {path}: no safetensors file") from None


def write(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text +
                                   b"".join(data for _, _, data in tensors.values()))


def values(dtype, data, name):
    if dtype == "F32":
        return array.array("f", bytes(data))
    if dtype == "BF16":  # the upper half of an f32
        wide = bytearray(2 * len(data))
        wide[2::4], wide[3::4] = data[0::2], data[1::2]
        return array.array("f", bytes(wide))
    if dtype == "F16":
        return array.array("f", [v for v, in struct.iter_unpack("<e", data)])
    raise SystemExit(f"tensors: error: '{name}' is {dtype}; expected F32, BF16 or F16")


def one(place):
    path, _, name = place.rpartition(":")
    tensors = read(path)
    if name not in tensors:
        raise SystemExit(f"tensors: error: {path} holds no '{name}'; it holds {', '.join(tensors)}")
    dtype, shape, data = tensors[name]
    return shape, values(dtype, data, name)


def compare(first, second, within):
    (shape_a, a), (shape_b, b) = one(first), one(second)
    if math.prod(shape_a) != math.prod(shape_b):
        raise SystemExit(f"tensors: error: {shape_a} and {shape_b} do not compare")
    largest = max(map(abs, b), default=0.0)
    apart = max((abs(x - y) if x == x and y == y else math.inf for x, y in zip(a, b)), default=0.0)
    good = apart <= within * largest
    print(f"{'within' if good else 'BEYOND'} {within:g}: differs by {apart:.3g} at most, "
          f"values reach {largest:.3g}")
    return 0 if good else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="list|take|compare")
    shown = commands.add_parser("list")
    shown.add_argument("file")
    taken = commands.add_parser("take")
    for name in ("file", "prefix", "out"):
        taken.add_argument(name)
    taken.add_argument("--as", dest="other", metavar="NAME", help="of a single tensor, whose name is 'prefix'")
    compared = commands.add_parser("compare")
    compared.add_argument("first")
    compared.add_argument("second")
    compared.add_argument("--within", type=float, default=1e-4, help="default 1e-4")
    arguments = parser.parse_args()
    if arguments.command == "compare":
        return compare(arguments.first, arguments.second, arguments.within)
    tensors = read(arguments.file)
    if arguments.command == "list":
        for name, (dtype, shape, _) in tensors.items():
            print(f"{name}  {dtype} {shape}")
        return 0
    prefix = arguments.prefix
    if arguments.other:
        if prefix not in tensors:
            raise SystemExit(f"tensors: error: {arguments.file} holds no '{prefix}'")
        write(arguments.out, {arguments.other: tensors[prefix]})
        return 0
    chosen = {k[len(prefix):]: v for k, v in tensors.items() if k.startswith(prefix) and k != prefix}
    if not chosen:
        raise SystemExit(f"tensors: error: {arguments.file} holds nothing under '{prefix}'")
    write(arguments.out, chosen)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        sys.exit(f"tensors: error: {error.filename}: {error.strerror}")
