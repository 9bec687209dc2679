#!/usr/bin/env python3
"""Converts a published DiT-MoE checkpoint (.pt) into a folder for tessera.

The folder gets model.safetensors, with the names and the values of the checkpoint, and config.json,
derived from the shapes. The pickle inside is never executed: only tensors, plain
containers and numbers are read, and PyTorch is not needed. Tensors are copied in pieces, so memory
does not grow with the model.
"""

import argparse
import os
import pathlib
import sys

import dit_moe_layout
import torch_zip
from torch_zip import CheckpointError

PIECE = 16 << 20
EPILOG = """\
example:
  python3 tools/convert_dit_moe.py dit_moe_s_8E2A.pt dit_moe_s
  build/release/tessera inspect dit_moe_s
Put an AutoencoderKL (config.json and its safetensors) into dit_moe_s/vae to get images from it.

exit status: 0 done, 2 wrong use or unwritable output, 3 a checkpoint that cannot be converted"""


def state_dict_of(content, key):
    """Returns (key or '', {name: tensor}) of the checkpoint."""
    if not isinstance(content, dict):
        raise CheckpointError("holds no dictionary; expected a state dict, or one under 'ema' or 'model'")
    if key and key not in content:
        known = ", ".join(repr(k) for k in list(content)[:8])
        raise CheckpointError(f"holds no entry '{key}'; it holds {known}")
    chosen = key or next((k for k in ("ema", "model") if isinstance(content.get(k), dict)), "")
    state = content[chosen] if chosen else content
    where = f"entry '{chosen}'" if chosen else "the checkpoint"
    if not isinstance(state, dict) or not state:
        raise CheckpointError(f"{where} is no state dict")
    other = [str(k) for k, v in state.items() if not isinstance(v, torch_zip.Tensor)]
    if other:
        raise CheckpointError(f"{where} holds more than tensors: {', '.join(other[:8])}; "
                              "choose a state dict with --key")
    if all(name.startswith("module.") for name in state):
        state = {name[len("module."):]: tensor for name, tensor in state.items()}
    return chosen, state


def write_beside(path, write):
    """Writes a temporary file beside the target and renames the file."""
    beside = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        with open(beside, "wb") as out:
            write(out)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_weights(out, checkpoint, state):
    out.write(dit_moe_layout.safetensors_header(state))
    for name, tensor in dit_moe_layout.in_file_order(state):
        for piece in checkpoint.pieces(tensor, PIECE):
            out.write(piece)


def convert(arguments):
    source, target = arguments.checkpoint, arguments.folder
    weights, config_path = target / "model.safetensors", target / "config.json"
    taken = [str(p) for p in (weights, config_path) if p.exists()]
    if taken and not arguments.force:
        return complain(f"{taken[0]} exists; remove it, or give --force", 2)
    with torch_zip.Checkpoint(source) as checkpoint:
        chosen, state = state_dict_of(checkpoint.content, arguments.key)
        config = dit_moe_layout.config_of(state, arguments.num_heads, arguments.num_experts_per_tok)
        dit_moe_layout.check(state, config)
        target.mkdir(parents=True, exist_ok=True)
        write_beside(weights, lambda out: write_weights(out, checkpoint, state))
    write_beside(config_path, lambda out: out.write(dit_moe_layout.config_text(config)))
    count = sum(tensor.elements for tensor in state.values())
    print(f"{target}: {len(state)} tensors, {count / 1e6:.2f} M parameters"
          + (f", from '{chosen}'" if chosen else ""))
    return 0


def complain(message, status):
    print(f"convert_dit_moe: error: {' '.join(str(message).split())}", file=sys.stderr)
    return status


def parse(argv):
    parser = argparse.ArgumentParser(prog="convert_dit_moe.py", description=__doc__, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path, help="published .pt file")
    parser.add_argument("folder", type=pathlib.Path, help="folder to make")
    parser.add_argument("--key", help="entry with the state dict (default: ema, else model)")
    parser.add_argument("--num-heads", type=int, metavar="N",
                        help="attention heads, where the shapes do not tell (default: as published)")
    parser.add_argument("--num-experts-per-tok", type=int, default=2, metavar="K",
                        help="experts that a token visits (default 2, as published)")
    parser.add_argument("--force", action="store_true", help="replace files in the folder")
    return parser.parse_args(argv)


def main(argv=None):
    arguments = parse(argv)
    try:
        return convert(arguments)
    except CheckpointError as error:
        return complain(f"{arguments.checkpoint}: {error}", 3)
    except OSError as error:
        reading = error.filename and str(error.filename) == str(arguments.checkpoint)
        return complain(f"{error.filename or arguments.folder}: {error.strerror}", 3 if reading else 2)
    except KeyboardInterrupt:
        return complain("stopped", 130)


if __name__ == "__main__":
    sys.exit(main())
