"""Rows of docs/results for bench/check_documented."""

import dataclasses
import importlib.util
import json
import math
import pathlib
import shutil
import struct
import subprocess
import sys
from typing import Callable, Optional

ROOT = pathlib.Path(__file__).resolve().parents[2]
ZEN4 = "AMD family 25 with AVX512_BF16"
ZEN5 = "AMD family 26 with AVX512_BF16"
NUMBER = r"([0-9][0-9.,]*)"


@dataclasses.dataclass
class Row:
    page: str
    name: str
    pattern: str  # finds the row in its page; the groups are the numbers
    expected: Callable  # numbers -> (least, most) permitted for a run
    measure: Callable  # Run -> number
    cpu: Optional[str] = None  # CPU of the times; None: the number holds on every machine
    needs: Optional[Callable] = None  # True if this machine meets the row's requirements
    without: str = ""  # names the missing requirement


def around(mean, half):
    return mean - half, mean + half


def between(least, most):
    return least, most


def within(share):
    return lambda number: (number * (1 - share), number * (1 + share))


def below(number):
    return -math.inf, number


def images(model, plan, count, batch, field="latent_error", scale=1):
    """Reads a field of the last row of `eval`: the plan's, or without a plan the reference's."""
    def measure(run):
        plans = ["--plans", plan] if plan else []
        lines = run.lines("tessera", "eval", model, "--images", count, "--batch", batch, "--steps", 20, "--json", *plans)
        return scale * lines[-1][field]
    return measure


def accuracy(rule):
    """Accuracy in % on the items of docs/results/des.md."""
    def measure(run):
        items = ""
        for count, seed, which in ((100, 5000, []), (200, 6000, ["hard"])):
            items += run("training/tasks_data.py", count, seed, *which)
        run.file("items.jsonl").write_text(items)
        lines = run.lines("tessera", "eval", "tasks", "tasks-a", "--data", "items.jsonl", "--batch", 20, "--json", "--select", rule)
        return 100 * next(line["accuracy"] for line in lines if line.get("select") == rule)
    return measure


def peak_of_three_images(run):
    run("tessera", "generate", "shapes", "--class", "1", "--count", 3, "--steps", 2, "-o", "three/", "--report", "three.json")
    return run.json("three.json")["peak_bytes"]["total"]


def alike(run):
    """Share of first-layer tokens with the same experts as in the previous step, mean over the steps."""
    run("tessera", "generate", "shapes", "--class", "1,7,12,30", "--count", 8, "--steps", 20, "--seed", 5, "--compare-steps", "-o",
        "alike/", "--report", "alike.json")
    shares = [entry["same_experts"] for entry in run.json("alike.json")["similarity"] if entry["layer"] == 0]
    return sum(shares) / len(shares)


def int8_error(run):
    """Difference in % between a forward pass of sd35 in int8 and the reference."""
    lines = run.lines("bench/pipeline/quantisation_errors.py", "forward", ROOT / "tests/data/diffusers/sd35", "--program",
                      run.build / "tessera")
    return 100 * next(line["error"] for line in lines if line["form"] == "int8")


def predicted(run):
    """Predicted seconds of PixArt-alpha for 4096 x 4096 pixels on one L40."""
    row = {"id": "a", "paper": "xdit", "table": "xdit:text", "model": "PixArt-alpha", "hardware": "L40", "world": 1, "plan": {},
           "method": "1 GPU", "width": 4096, "height": 4096, "steps": 20, "metric": "latency", "value": 245, "unit": "s"}
    run.file("rows.json").write_text(json.dumps({"rows": [row]}))
    return run.lines("tessera", "plan", "--score", "rows.json", "--json")[0]["predicted"]


def kept_and_passing(run):
    rank = json.loads(run("tessera", "inspect", "dit_moe_g", "--plan", "shard=4", "--json"))["ranks"][0]
    return (rank["weights"] + rank["buffers"]) / 1e9


def asked_of_a_layer(run):
    lines = run("bench/pipeline/streamed_experts.py", run.build / "tessera", "tasks-a", 30, "des-max:0.25").splitlines()
    return float(lines[-1].split("|")[5])


def selection(run):
    """Milliseconds of a selection among 256 experts."""
    return run.lines("bench/selection_bench", 1, "32x256x8")[0]["ms"]


def cost_of_pairs(run):
    """Cost of LoRA pairs of rank 16 in % of a bf16 pass of PixArt."""
    return 100 * run.lines("bench/lora_step_bench", 1, "pixart:1024", 3, 16, "bf16")[-1]["cost"]


def computed_blocks(run):
    """Blocks computed by a run of `scenes` under the step cache drift."""
    run("tessera", "generate", "scenes", "--prompt", "a red circle left of a blue square", "--seed", 0, "--steps", 28, "--dtype", "f32",
        "--cache", "drift,max_skip=6,threshold=0.2", "--latents-only", "--save-latents", "cached.safetensors", "--report", "cached.json")
    return run.json("cached.json")["blocks_computed"]


def bulk_over_fused(run):
    lines = run.lines("bench/fused_bench", "steps=10", "tokens=512", "experts=16", "hidden=256", "ffn=16", "mbytes=20", "row-us=50",
                      "gate-ms=5", "window=4", "ways=fused,bulk")
    ratio = next(line["over_fused"] for line in lines if line.get("how") == "bulk")
    return ratio[0] if isinstance(ratio, list) else ratio


def of_the_unit(run):
    """Best bf16 product in % of the unit's limit."""
    lines = run.lines("bench/matmul_bench", 1, "1024x4608x1152")
    return max(100 * line["share_of_peak"] for line in lines)


def overhead(run):
    """Milliseconds that a request of `shapes` waits beyond the library's run."""
    lines = run.lines("bench/server/measure.py", "--requests", 60, run.build, "overhead")
    return next(line["overhead_pairs_ms"] for line in lines if line["model"] == "shapes")


def latents(path):
    """Reads the tensor `latents` of a safetensors file, f32."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8:8 + size])["latents"]["data_offsets"]
    return struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])


def far_from_the_cpu(run):
    """Returns |GPU - CPU| / |CPU| of an image's latents."""
    for device in ("cpu", "cuda"):
        run("tessera", "generate", "shapes", "--class", "1", "--steps", 20, "--dtype", "f32", "--device", device, "--latents-only",
            "--save-latents", f"{device}.safetensors")
    cpu, gpu = (latents(run.file(f"{device}.safetensors")) for device in ("cpu", "cuda"))
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(gpu, cpu)) / sum(b * b for b in cpu))


def has_numpy():
    return importlib.util.find_spec("numpy") is not None


def has_gpu():
    return shutil.which("nvidia-smi") is not None and subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode == 0


INTERVAL = rf"{NUMBER}\u00b1{NUMBER}"

ROWS = [
    Row("dice.md", "latent error of adaptive, half of the assignments", rf"`schedule=adaptive,budget=39` \| {INTERVAL}", around,
        images("shapes", "schedule=adaptive,budget=39,warmup=4", 320, 32)),
    Row("pipefusion.md", "latent error of patches=4 on scenes", rf"`patches=4,warmup=4` \| [^|]*\| [^|]*\| \+[^|]*\| {INTERVAL}", around,
        images("scenes", "patches=4,warmup=4", 30, 10)),
    Row("text_to_image.md", "% of captions drawn as they say", rf"guidance 3\.5 \(its default\) \| 500 \| 90 % \| {NUMBER} % \(500\)",
        lambda share: (share - 5, share), images("scenes", None, 40, 10, "recognised", 100)),
    Row("des.md", "% right under des-max:0.375", rf"`des-max:0\.375` \| [0-9.]+ \[{NUMBER}, {NUMBER}\]", between, accuracy("des-max:0.375")),
    Row("memory.md", "bytes of three images of shapes", rf"`shapes`, three images, decoded \| {NUMBER} \|", within(0.02),
        peak_of_three_images),
    Row("redundancy.md", "tokens of layer 0 that keep their experts", rf"same experts, shipped \| {NUMBER} \|", within(0.015), alike),
    Row("quantisation.md", "% of error of sd35 in int8", rf"\| sd35 \| [0-9.]+ \| {NUMBER} \|", within(0.02), int8_error,
        needs=has_numpy, without="this Python has no numpy"),
    Row("foresight.md", "s of PixArt-alpha at 4096 pixels on one L40", rf"pixart4096-l40-1-latency` \| 245 \| {NUMBER} \|", within(0.001),
        predicted),
    Row("parallel.md", "GB of a rank of DiT-MoE G under shard=4", rf"DiT-MoE G \| [^|]*\| [^|]*\| [^|]*\| {NUMBER} \(", within(0.005),
        kept_and_passing),
    Row("language_models.md", "experts that a layer asks for in a pass, read from a file",
        rf"tasks-a \| des-max:0\.25 \| [^|]*\| [0-9]+ \| {NUMBER} \|", within(0.03), asked_of_a_layer),
    Row("language_models.md", "ms of a choice among 256 experts", rf"`selection_bench 1 32x256x8`[^|]*\|[^|]*\| {NUMBER} ms", lambda ms: (0, 1.3 * ms),
        selection, cpu=ZEN4),
    Row("step_caching.md", "blocks that a run computes under drift", rf"computes \| {NUMBER} \| of", within(0.06), computed_blocks),
    Row("adapters.md", "% of a pass that pairs of rank 16 add", rf"pixart:1024 \| bf16 \| [0-9]+ \| {NUMBER} %", lambda cost: (0, 2 * cost),
        cost_of_pairs, cpu=ZEN4),
    Row("fused.md", "times that the exchange takes on limited links", rf"\| 512 \| 20 \| bulk \| .* \| {NUMBER} \[", within(0.1), bulk_over_fused),
    Row("cpu.md", "% of the unit that products reach", rf"`matmul_bench 1` \| \| \| \| {NUMBER} to {NUMBER} %", between, of_the_unit, cpu=ZEN5),
    Row("server.md", "ms that a request costs beyond the library's run", rf"`shapes` [0-9.]+ ms of 16 \({NUMBER} of pairs\)",
        lambda ms: (0, 2 * ms), overhead, cpu=ZEN5),
    Row("gpu.md", "distance of a model in f32 from the CPU's", r"in f32 differ from the CPU by 9e-8 to ([0-9.e-]+)", below,
        far_from_the_cpu, needs=has_gpu, without="there is no GPU here"),
]
