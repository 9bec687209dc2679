"""Compares whole images of stable-diffusion.cpp's program with Tessera's: the same folder of diffusers (bf16), in turn.

    python3 bench/pipeline/random_image_model.py klein klein
    python3 bench/peers/sd_cpp_peer.py klein bf16,int8 [size] [steps] [steps of the peer] [threads] [rounds]

The peer wants the names of the makers: FOLDER/peer.safetensors is written with them, and kept.
SD_CLI names stable-diffusion.cpp's program (its source is in the PyPI package stable-diffusion-cpp-python: cmake -B build
-DCMAKE_BUILD_TYPE=Release, target sd-cli), TESSERA Tessera's. Forms: bf16; int8 against Q8_0; int4 against Q4_0. Both draw
noise, encode the prompt, denoise and decode; stages are what the programs report. The peer may make fewer steps: its image
adds the missing steps at their mean time.
"""
import json
import os
import pathlib
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from alternate import print_json

FORMS = {"bf16": ("bf16", "bf16"), "int8": ("int8", "q8_0"), "int4": ("int4", "q4_0")}
PROMPT = "a red circle left of a blue square"


def file_of(folder, part):
    files = sorted((folder / part).glob("*.safetensors"))
    if len(files) != 1:
        sys.exit(f"sd_cpp_peer: {folder / part} holds {len(files)} files of safetensors; expected one")
    return files[0]


# Names of the makers, as regular expressions over those of diffusers.
KLEIN = [(r"^x_embedder", "img_in"), (r"^context_embedder", "txt_in"), (r"^proj_out", "final_layer.linear"),
         (r"^norm_out.linear", "final_layer.adaLN_modulation.1"), (r"^(.*_stream_modulation\w*).linear", r"\1.lin"),
         (r"^time_guidance_embed.timestep_embedder.linear_1", "time_in.in_layer"),
         (r"^time_guidance_embed.timestep_embedder.linear_2", "time_in.out_layer"),
         (r"^single_transformer_blocks", "single_blocks"), (r"^transformer_blocks", "double_blocks"),
         (r"attn.to_qkv_mlp_proj", "linear1"), (r"^(single_blocks.\d+).attn.to_out", r"\1.linear2"),
         (r"^(single_blocks.\d+).attn.norm_([qk]).weight", r"\1.norm.\2_norm.scale"),
         (r"attn.norm_added_([qk]).weight", r"txt_attn.norm.\1_norm.scale"),
         (r"\.attn.norm_([qk]).weight", r".img_attn.norm.\1_norm.scale"),
         (r"\bq_norm.scale", "query_norm.scale"), (r"\bk_norm.scale", "key_norm.scale"),
         (r"\.attn.to_out.0", ".img_attn.proj"), (r"attn.to_add_out", "txt_attn.proj"),
         (r"\.attn.to_[qkv]", ".img_attn.qkv"), (r"\.attn.add_[qkv]_proj", ".txt_attn.qkv"),
         (r"ff_context.linear_in", "txt_mlp.0"), (r"ff_context.linear_out", "txt_mlp.2"), (r"ff.linear_in", "img_mlp.0"),
         (r"ff.linear_out", "img_mlp.2")]
Z_IMAGE = [(r"^all_x_embedder.2-1", "x_embedder"), (r"^all_final_layer.2-1", "final_layer"),
           (r"attention.norm_([qk])", r"attention.\1_norm"), (r"attention.to_out.0", "attention.out"),
           (r"attention.to_[qkv]", "attention.qkv")]


def renamed(header):
    """The header with the makers' names; queries, keys and values, neighbours in the file, are one matrix."""
    names = {}
    for name, entry in header.items():
        for pattern, new in KLEIN if "x_embedder.weight" in header else Z_IMAGE:
            name = re.sub(pattern, new, name)
        if name in names:
            before = names[name]
            if before["data_offsets"][1] != entry["data_offsets"][0]:
                sys.exit(f"sd_cpp_peer: the parts of {name} are not neighbours in the file")
            entry = {**entry, "shape": [before["shape"][0] + entry["shape"][0], *entry["shape"][1:]],
                     "data_offsets": [before["data_offsets"][0], entry["data_offsets"][1]]}
        names[name] = entry
    return names


def transformer(folder):
    """The transformer's file for the peer, written at the first call."""
    source, target = file_of(folder, "transformer"), folder / "peer.safetensors"
    if target.exists():
        return target
    with source.open("rb") as file, target.open("wb") as out:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        text = json.dumps(renamed(header)).encode()
        text += b" " * (-len(text) % 8)
        out.write(struct.pack("<Q", len(text)) + text)
        shutil.copyfileobj(file, out, 1 << 24)
    return target


def tessera(folder, dtype, size, steps, threads, out):
    """Seconds of stages of an image."""
    begin = time.time()
    subprocess.run([os.environ.get("TESSERA", "build/release/tessera"), "generate", str(folder), "--prompt", PROMPT,
                    "--width", str(size), "--height", str(size), "--steps", str(steps), "--dtype", dtype,
                    "--threads", str(threads), "-o", str(out / "ours.png"), "--report", str(out / "ours.json"),
                    "--progress", "none"], check=True, stdout=subprocess.DEVNULL)
    whole = time.time() - begin
    seconds = json.loads((out / "ours.json").read_text())["phase_seconds"]
    return {"image": whole, "step": seconds["denoise"] / steps, "decode": seconds["decode"],
            "load_and_text": whole - seconds["denoise"] - seconds["decode"]}


def peer(folder, kind, size, steps, counted, threads, out):
    """Seconds of stages of an image of `steps` steps, from a run of `counted` steps."""
    begin = time.time()
    run = subprocess.run([os.environ.get("SD_CLI", "sd-cli"), "--diffusion-model", str(transformer(folder)),
                          "--llm", str(file_of(folder, "text_encoder")), "--vae", str(file_of(folder, "vae")), "--type", kind,
                          "-p", PROMPT, "--cfg-scale", "1.0", "--diffusion-fa", "-W", str(size), "-H", str(size), "--steps",
                          str(counted), "-t", str(threads), "-o", str(out / "theirs.png")], capture_output=True, text=True)
    whole = time.time() - begin
    seconds = dict(re.findall(r"(sampling|decode_first_stage) completed, taking ([\d.]+)s", run.stdout + run.stderr))
    if run.returncode or len(seconds) < 2:
        sys.exit(f"sd_cpp_peer: the peer ended with status {run.returncode}: {(run.stdout + run.stderr)[-800:]}")
    denoise, decode = float(seconds["sampling"]), float(seconds["decode_first_stage"])
    return {"image": whole + (steps - counted) * denoise / counted, "step": denoise / counted, "decode": decode,
            "load_and_text": whole - denoise - decode}


def medians(runs):
    return {stage: round(statistics.median(run[stage] for run in runs), 2) for stage in runs[0]}


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    folder, forms = pathlib.Path(sys.argv[1]), sys.argv[2].split(",")
    size, steps, counted, threads, rounds = (int(word) for word in (sys.argv[3:] + ["512", "4", "2", "2", "1"][len(sys.argv) - 3:]))
    for form in forms:
        if form not in FORMS:
            sys.exit(f"sd_cpp_peer: no form '{form}'; choose from {', '.join(FORMS)}")
    for form in forms:
        dtype, kind = FORMS[form]
        with tempfile.TemporaryDirectory() as out:
            runs = [(tessera(folder, dtype, size, steps, threads, pathlib.Path(out)),
                     peer(folder, kind, size, steps, counted, threads, pathlib.Path(out))) for _ in range(rounds)]
        ours, theirs = (medians(of) for of in zip(*runs))
        print_json({"folder": folder.name, "form": form, "size": size, "steps": steps, "threads": threads, "rounds": rounds,
                    "tessera_s": ours, "sd_cpp_s": theirs,
                    **{f"{stage}_over_tessera": round(theirs[stage] / ours[stage], 3) for stage in ("image", "step", "decode")}})


if __name__ == "__main__":
    main()
