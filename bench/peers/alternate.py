"""Runs a benchmark of Tessera and PyTorch functions in turn, so that both see the same load.

On a CPU every turn of Tessera is a separate process; on a GPU (`--device cuda`) a single process stays
and measures on request.
"""
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time


failures = []  # shapes without a result


def finish():
    """Ends a peer: status 1 if a shape failed."""
    sys.exit(1 if failures else 0)


def take_device(arguments):
    """Returns ("cpu" or "cuda", the other arguments) of a command line with or without --device."""
    rest = list(arguments)
    if "--device" not in rest:
        return "cpu", rest
    at = rest.index("--device")
    device = rest[at + 1] if at + 1 < len(rest) else ""
    if device not in ("cpu", "cuda"):
        sys.exit(f"--device {device or '(nothing)'}: expected cpu or cuda")
    return device, rest[:at] + rest[at + 2:]


def clock(threads):
    """Returns a clock: CPU time of this process for a single thread, unaffected by other programs; else wall time."""
    return time.process_time if threads == 1 else time.perf_counter


def cpu_seconds(f, threads, times=3):
    now = clock(threads)
    best = float("inf")
    for _ in range(times):
        start = now()
        f()
        best = min(best, now() - start)
    return best


def cuda_seconds(f, times=5):
    """Seconds of a call: the median of `times` queues of some 20 ms each, by CUDA events."""
    import torch

    def queue(calls):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        first.record()
        for _ in range(calls):
            f()
        last.record()
        torch.cuda.synchronize()
        return first.elapsed_time(last) / 1e3 / calls

    queue(3)
    calls = max(1, min(200, int(0.02 / queue(3))))
    return statistics.median(queue(calls) for _ in range(times)) / getattr(f, "calls", 1)


def graphed(f, calls=1):
    """Captures `calls` calls of f as a CUDA graph, without Python time between the kernels."""
    import torch

    graph = None

    def run():
        nonlocal graph
        if graph is None:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    f()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(calls):
                    f()
        graph.replay()

    run.calls = calls
    return run


def by_openvino(module, inputs, threads):
    """Runs a PyTorch module in OpenVINO: converted in f32, computed in bf16 with `threads` threads; in f32
    if OpenVINO reports no bf16 support, because emulated bf16 is many times slower."""
    import copy

    import openvino

    inputs = [x.float() for x in inputs]
    model = openvino.convert_model(copy.deepcopy(module).float(), example_input=tuple(inputs))
    core = openvino.Core()
    precision = "bf16" if "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES") else "f32"
    compiled = core.compile_model(model, "CPU", {
        "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": precision})
    request, arrays = compiled.create_infer_request(), [x.numpy() for x in inputs]
    return lambda: request.infer(arrays, share_inputs=True)


class Resident:
    """A benchmark process of Tessera that measures once for each line on its standard input."""

    def __init__(self, program, threads, shape, device):
        self.process = subprocess.Popen([program, str(threads), shape, "--device", device, "--turns"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):
            raise RuntimeError(f"{self.process.args[0]} ended with status {self.process.wait()}") from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):  # the process has already ended
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def tessera_line(program, threads, shape):
    out = subprocess.run([program, str(threads), shape], check=True, capture_output=True, text=True)
    return json.loads(out.stdout.strip().splitlines()[-1])


def print_json(line):
    print(json.dumps(line), flush=True)
    return line


def print_line(shape, ours, theirs, failed=None, **more):
    """Prints a JSON line: milliseconds of Tessera and of each variant, and their ratios."""
    line = {"shape": shape, **more, "tessera_ms": round(ours, 4)}
    for name, ms in theirs.items():
        line[name + "_ms"] = round(ms, 4)
        line[name + "_over_tessera"] = round(ms / ours, 3)
    if failed:
        line["cannot"] = failed
    return print_json(line)


def runnable(variants):
    """Returns variants after a first call, and the errors of the others."""
    kept, failed = {}, {}
    for name, f in variants.items():
        try:
            f()
            kept[name] = f
        except Exception as error:  # libraries throw any type for unsupported calls
            failed[name] = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
    return kept, failed


def compare_resident(program, threads, shape, variants, seconds, device, rounds=5, **more):
    """Measures in turn with a resident program: medians over the rounds, without the first."""
    kept, failed = runnable(variants)
    ours, theirs = [], {name: [] for name in kept}
    with Resident(program, threads, shape, device) as tessera:
        for i in range(rounds + 1):
            said = tessera.line()
            times = {None: said["ms"], **{name: seconds(f) * 1e3 for name, f in kept.items()}}
            if i == 0:
                continue
            ours.append(times[None])
            for name in kept:
                theirs[name].append(times[name])
    return print_line(shape, statistics.median(ours),
                      {n: statistics.median(t) for n, t in theirs.items()}, failed, device=device,
                      threads=threads, **({"recorded": said["recorded"]} if "recorded" in said else {}), **more)


def compare(program, threads, shape, variants, rounds=3, times=3, device="cpu", of=min):
    """Prints a JSON line for a shape, see print_line(), and returns its contents. `of` combines the
    rounds: min, or statistics.median."""
    import torch

    if device == "cuda":
        try:
            return compare_resident(program, threads, shape, variants, lambda f: cuda_seconds(f, times),
                                    device, torch=torch.__version__)
        except RuntimeError as error:  # continue with the other shapes
            failures.append(shape)
            return print_json({"shape": shape, "error": str(error)[:300]})
    torch.set_num_threads(threads)
    said, theirs = [], {name: [] for name in variants}
    for f in variants.values():
        f()
    for _ in range(rounds):
        said.append(tessera_line(program, threads, shape))
        for name, f in variants.items():
            theirs[name].append(cpu_seconds(f, threads, times) * 1e3)
    share = {}
    if "share_of_peak" in said[0]:  # relative to the probed limit; the largest is the best
        share["share_of_peak"] = -of(-s["share_of_peak"] for s in said)
    return print_line(shape, of(s["ms"] for s in said), {name: of(ms) for name, ms in theirs.items()},
                      threads=threads, torch=torch.__version__, **share)


def program(name):
    return os.path.join(os.environ.get("TESSERA_BENCH", "build/release/bench"), name)
