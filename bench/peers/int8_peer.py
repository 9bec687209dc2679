"""Compares a forward pass in int8 of the families of families_peer.py in OpenVINO and PyTorch with Tessera's, and
with Tessera's in bf16.

    TESSERA_BENCH=build/release/bench python bench/peers/int8_peer.py [threads] [shapes] [rounds]

Needs openvino and nncf. Peers:
openvino_int8_weights: weights in int8 by nncf.compress_weights(), rows of activations quantised at run time.
openvino_w8a8: weights and activations in int8 by nncf.quantize(), calibrated with the measured inputs and three more.
pytorch_int8: products by torch.ao.quantization.quantize_dynamic(), the rest in f32.

Prints a JSON line for each shape with milliseconds, ratios to Tessera's int8, and the relative L2 error of each peer to
its own module in f32. Tessera's error to bf16: int8_step_bench, with other random weights.
"""
import copy
import statistics
import sys

import nncf
import openvino
import torch
from torch import nn
from torch.ao.quantization import quantize_dynamic

from alternate import cpu_seconds, print_line, program, tessera_line
from families_peer import Stack, WithAngles

FORMS = ("int8", "int8+scores", "int4", "bf16")


def with_int8_linears(stack):
    """Products of blocks in int8; the first, the last and those of modulations stay, as in Tessera."""
    names = {name for name, child in stack.blocks.named_modules() if isinstance(child, nn.Linear) and "ada" not in name}
    stack = copy.deepcopy(stack).float()
    stack.blocks = quantize_dynamic(stack.blocks, names, dtype=torch.qint8)
    return stack


def openvino_call(model, arrays, threads, **settings):
    core = openvino.Core()
    compiled = core.compile_model(model, "CPU", {
        "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "bf16", **settings})
    request = compiled.create_infer_request()
    return lambda: torch.from_numpy(request.infer(arrays, share_inputs=True)[0])


def variants(family, tokens, threads):
    """Returns calls by name, and the output in f32."""
    stack = Stack(family).bfloat16().eval()
    x, c, t, angles = stack.inputs(tokens)
    full, inputs = WithAngles(copy.deepcopy(stack).float(), angles), tuple(v.float() for v in (x, c, t))
    arrays = [v.numpy() for v in inputs]
    convert = lambda: openvino.convert_model(full, example_input=inputs)
    more = [[torch.randn_like(v).numpy() for v in inputs] for _ in range(3)]
    calibrated = nncf.quantize(convert(), nncf.Dataset([arrays, *more]), model_type=nncf.ModelType.TRANSFORMER,
                               subset_size=4)
    compressed = nncf.compress_weights(convert(), mode=nncf.CompressWeightsMode.INT8_SYM)
    int8 = with_int8_linears(stack)
    return {"openvino_int8_weights": openvino_call(compressed, arrays, threads,
                                                   DYNAMIC_QUANTIZATION_GROUP_SIZE=str(2**64 - 1)),
            "openvino_w8a8": openvino_call(calibrated, arrays, threads),
            "pytorch_int8": lambda: int8(*inputs, angles)}, full(*inputs)


def error_of(call, want):
    return round(((call().float() - want).norm() / want.norm()).item(), 5)


def measure(shape, threads, rounds):
    family, tokens = shape.split(":")
    calls, want = variants(family, int(tokens), threads)
    errors = {f"{name}_error": error_of(call, want) for name, call in calls.items()}
    times = {name: [] for name in (*FORMS, *calls)}
    for _ in range(rounds):
        for form in FORMS:
            times[form].append(tessera_line(program("families_bench"), threads, f"{shape}:{form}")["ms"])
        for name, call in calls.items():
            times[name].append(cpu_seconds(call, threads) * 1e3)
    ours, *others = (statistics.median(times[name]) for name in times)
    names = [f"tessera_{form}" for form in FORMS[1:]] + list(calls)
    print_line(shape, ours, dict(zip(names, others)), threads=threads, rounds=rounds, **errors)


def main():
    words = sys.argv[1:]
    threads = int(words[0]) if words else 1
    shapes = words[1].split(",") if len(words) > 1 else ["pixart:1024", "sd3:1024", "flux:1024"]
    torch.set_num_threads(threads)
    with torch.inference_mode():
        for shape in shapes:
            measure(shape, threads, int(words[2]) if len(words) > 2 else 3)


if __name__ == "__main__":
    main()
