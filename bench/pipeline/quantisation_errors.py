#!/usr/bin/env python3
"""Measures the errors of quantised products: JSON lines for docs/results/quantisation.md.

    quantisation_errors.py forward [FOLDER ...]   relative L2 error of forward passes of golden folders
                                                  (tests/data/diffusers/*), against the reference's f32
    quantisation_errors.py images MODEL [MODEL ...]  of shapes and scenes: error of latents and PSNR of
                                                  images against bf16, for seeds 0, 1 and 2
"""

import argparse
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np

SOURCE = pathlib.Path(__file__).resolve().parents[2]
FORMS = {
    "bf16": [],
    "int8": ["--dtype", "int8"],
    "int4": ["--dtype", "int4"],
    "int8, modulation int8": ["--dtype", "int8", "--quantise-rules", "modulation=int8"],
    "int4, modulation bf16": ["--dtype", "int4", "--quantise-rules", "modulation=bf16"],
    "attn int8, mlp int4": ["--quantise-rules", "attn=int8,mlp=int4"],
    "attn int4, mlp int8": ["--quantise-rules", "attn=int4,mlp=int8"],
    "attn int8": ["--quantise-rules", "attn=int8"],
    "mlp int8": ["--quantise-rules", "mlp=int8"],
    "attn int4": ["--quantise-rules", "attn=int4"],
    "mlp int4": ["--quantise-rules", "mlp=int4"],
    "scores int8": ["--quantise-rules", "scores=int8"],
    "vae int8": ["--quantise-rules", "vae=int8"],
    "int8, scores int8": ["--dtype", "int8", "--quantise-rules", "scores=int8"],
}
PROMPTS = ["a red circle left of a blue square", "a green triangle above a yellow circle",
           "a blue square below a red triangle", "a yellow circle right of a green square"]
TYPES = {"F32": np.float32, "F16": np.float16, "I32": np.int32, "I64": np.int64}


def read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads the tensors of a safetensors file, bf16 as f32."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = data[8 + length + begin:8 + length + end]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, TYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def write(path: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    """Writes f32 and integer tensors."""
    names = {np.dtype(kind): word for word, kind in TYPES.items()}
    header, blobs, at = {}, [], 0
    for name, values in tensors.items():
        raw = np.ascontiguousarray(values).tobytes()
        header[name] = {"dtype": names[values.dtype], "shape": list(values.shape), "data_offsets": [at, at + len(raw)]}
        blobs.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def relative(got: np.ndarray, want: np.ndarray) -> float:
    got, want = got.astype(np.float64), want.astype(np.float64)
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def run(*words: object) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stderr}")


def forwards(program: str, folders: list[str], scratch: pathlib.Path) -> None:
    for folder in map(pathlib.Path, folders or sorted(map(str, (SOURCE / "tests/data/diffusers").iterdir()))):
        if not (folder / "io_transformer.safetensors").exists():
            continue
        io = read(folder / "io_transformer.safetensors")
        write(scratch / "in", {name[8:]: x for name, x in io.items() if name.startswith("fwd0.in.")})
        for form, options in FORMS.items():
            if form == "vae int8":  # changes no transformer
                continue
            run(program, "forward", folder / "model/transformer", "--component", "transformer", "--inputs",
                scratch / "in", "--outputs", scratch / "out",
                *(options if "--dtype" in options else ["--dtype", "bf16", *options]))
            error = relative(read(scratch / "out")["out"], io["fwd0.out"])
            print(json.dumps({"folder": folder.name, "form": form, "error": round(error, 5)}), flush=True)
            (scratch / "out").unlink()


def image(program: str, model: str, subject: list[str], seed: int, options: list[str],
          scratch: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    run(program, "generate", model, *subject, "--seed", seed, "--trace", scratch / "trace", "--save-latents",
        scratch / "latents", "-o", scratch / "x.png", "--progress", "none", *options)
    made = read(scratch / "latents")["latents"], read(scratch / "trace")["image"]
    for name in ("trace", "latents", "x.png"):
        (scratch / name).unlink()
    return made


def images(program: str, models: list[str], scratch: pathlib.Path) -> None:
    for model in models:
        subjects = ([["--prompt", prompt] for prompt in PROMPTS] if model == "scenes" else
                    [["--class", str(number)] for number in (0, 3, 5, 7)])
        runs = [(subject, seed) for subject in subjects for seed in (0, 1, 2)]
        plain = [image(program, model, subject, seed, [], scratch) for subject, seed in runs]
        for form, options in FORMS.items():
            if not options:
                continue
            errors, decibels = [], []
            for (subject, seed), (latents, pixels) in zip(runs, plain):
                got, shown = image(program, model, subject, seed, options, scratch)
                errors.append(relative(got, latents))
                decibels.append(-10 * math.log10(float(np.mean((shown - pixels) ** 2)) + 1e-12))
            line = {"model": model, "form": form, "images": len(runs)}
            for name, values in (("latent_error", errors), ("psnr", decibels)):
                half = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(len(values))
                line[name] = round(float(np.mean(values)), 4)
                line[name + "_half_interval"] = round(half, 4)
            print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("forward", "images"))
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS), help="these only, with bf16")
    parser.add_argument("--program", default=str(SOURCE / "build/release/tessera"))
    asked = parser.parse_args()
    for form in set(FORMS) - {"bf16", *asked.forms}:
        del FORMS[form]
    with tempfile.TemporaryDirectory() as folder:
        if asked.what == "forward":
            forwards(asked.program, asked.folders, pathlib.Path(folder))
        else:
            images(asked.program, asked.folders or ["shapes", "scenes"], pathlib.Path(folder))


if __name__ == "__main__":
    main()
