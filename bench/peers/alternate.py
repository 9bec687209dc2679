"""Runs a benchmark of Tessera and PyTorch functions in turn: both meet the same machine.

On a CPU every turn of Tessera is a process of its own; on a GPU (`--device cuda`) one process stays,
and measures when it is asked to.
"""
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time


failures = []  # shapes for which there is no number


def finish():
    """The end of a peer: status 1 if a shape failed."""
    sys.exit(1 if failures else 0)


def take_device(arguments):
    """("cpu" or "cuda", the other arguments) of a command line with or without --device."""
    rest = list(arguments)
    if "--device" not in rest:
        return "cpu", rest
    at = rest.index("--device")
    device = rest[at + 1] if at + 1 < len(rest) else ""
    if device not in ("cpu", "cuda"):
        sys.exit(f"--device {device or '(nothing)'}: expected cpu or cuda")
    return device, rest[:at] + rest[at + 2:]


def clock(threads):
    """CPU time of this process where one thread works, whichever that is: other programs cannot disturb it."""
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
    """Of one call: the median of `times` queues that last some 20 ms, by CUDA events."""
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
    """`calls` of f as one CUDA graph, which the first captures: no time of Python between its kernels."""
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
    """A call of a PyTorch module as OpenVINO runs it: converted in f32, computed in bf16, by so many threads;
    in f32 where it says that the CPU has no bf16, which it would only imitate, many times slower."""
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
    """A benchmark of Tessera that measures once for each line it is sent."""

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
        with contextlib.suppress(BrokenPipeError):  # it has ended by itself
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
    """A JSON line: milliseconds of Tessera and of each variant, and their ratios."""
    line = {"shape": shape, **more, "tessera_ms": round(ours, 4)}
    for name, ms in theirs.items():
        line[name + "_ms"] = round(ms, 4)
        line[name + "_over_tessera"] = round(ms / ours, 3)
    if failed:
        line["cannot"] = failed
    return print_json(line)


def runnable(variants):
    """Variants after a first call, and why the others cannot serve."""
    kept, failed = {}, {}
    for name, f in variants.items():
        try:
            f()
            kept[name] = f
        except Exception as error:  # whatever a library throws at what it does not support
            failed[name] = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
    return kept, failed


def compare_resident(program, threads, shape, variants, seconds, device, rounds=5, **more):
    """In turn with a program that stays: medians over the rounds, the first one left out."""
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
    """Prints a JSON line for one shape, see print_line(), and returns what it holds. `of` the rounds:
    min, or statistics.median."""
    import torch

    if device == "cuda":
        try:
            return compare_resident(program, threads, shape, variants, lambda f: cuda_seconds(f, times),
                                    device, torch=torch.__version__)
        except RuntimeError as error:  # the other shapes are measured all the same
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
    if "share_of_peak" in said[0]:  # of the units' probe, beside the runs; the largest is the best
        share["share_of_peak"] = -of(-s["share_of_peak"] for s in said)
    return print_line(shape, of(s["ms"] for s in said), {name: of(ms) for name, ms in theirs.items()},
                      threads=threads, torch=torch.__version__, **share)


def program(name):
    return os.path.join(os.environ.get("TESSERA_BENCH", "build/release/bench"), name)
