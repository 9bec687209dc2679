"""Measures the fused MoE operator beside all other ways, and writes docs/results/fused.md.

    python3 bench/parallel/fused_page.py run LINES.jsonl [--build DIR] [--tiny]    measures
    python3 bench/parallel/fused_page.py page LINES.jsonl > docs/results/fused.md  writes the page

`run` needs root and the tools of bench/network/run for the cells over limited links: 2, 4 and 8 ranks as
processes in two network namespaces, a core each. A finished cell is skipped when the run is started again.
Each cell has all ways in turn in one run; ratios have 95 % intervals. 34 cells take about an hour on two quiet
cores (an estimate: a minute and a half each); --tiny tries each kind of cell with small sizes in about a minute.
"""

import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parents[2]
FRESH = "fused,bulk,padded,2 pieces,4 pieces"
ALL = FRESH + ",stale fused,stale bulk"
REAL = {"layers": 4, "hidden": 512, "ffn": 1024, "dtype": "bf16", "window": 32}


def cells(tiny):
    """Yields kind, ranks of a host (0: threads of one process), Mbit/s, and the words of a cell."""
    steps, tokens = (2, 64) if tiny else (20, 1024)
    small = {"hidden": 64, "ffn": 64, "experts": 8} if tiny else {}
    few = lambda values: values[:1] if tiny else values  # noqa: E731
    for layers in few([1, 4]):
        yield "phases", 0, None, {"ranks": 8, "layers": layers, "steps": steps, "tokens": 256, "experts": 16, "tile": 16,
                                  "low-ms": 1 if tiny else 20, "high-ms": 2 if tiny else 120, "ways": FRESH}
    for ranks in few([2, 8]):
        yield "attention", 0, None, {"ranks": ranks, "layers": 4, "steps": steps, "tokens": 256, "experts": 16,
                                     "attention-low-ms": 1 if tiny else 5, "attention-high-ms": 2 if tiny else 60,
                                     "ways": ALL}
    for each in few([1, 2, 4]):
        for mbit in few([100, 400, 1600]):
            yield "links", each, mbit, {**REAL, "experts": 16, **small, "ranks": 2 * each, "steps": steps, "tokens": tokens,
                                        "attention-low-ms": 5, "attention-high-ms": 10, "ways": ALL}
    for count in few([1024, 4096, 16384]):
        for experts in few([8, 32, 128]):
            yield "sizes", 1, 1600, {**REAL, **small, "ranks": 2, "layers": 2, "steps": max(2, steps // 2),
                                     "tokens": tokens if tiny else count, "experts": 8 if tiny else experts, "ways": ALL}
    for workers in few([1, 2, 4]):
        for count in few([1024, 8192]):
            yield "workers", 0, None, {**REAL, **small, "ranks": 2, "workers": workers, "parts": workers, "layers": 2,
                                       "steps": steps, "tokens": tokens if tiny else count, "experts": 8, "ways": ALL}
    for skew in few(["uniform", "zipf", "one"]):
        for experts in few([16, 64]):
            yield "skew", 0, None, {**REAL, **small, "ranks": 2, "layers": 1, "steps": steps, "skew": skew,
                                    "tokens": tokens, "experts": 8 if tiny else experts, "ways": ALL}


def command(build, each, mbit, words):
    program = [str(build / "bench/fused_bench"), *(f"{name}={value}" for name, value in words.items())]
    if each == 0:
        return program
    return [str(HERE / "bench/network/run"), "--build", str(build), "--mbit", str(mbit), "--each", str(each), "--",
            *program, "transport=mpi"]


def run(path, build, tiny):
    path.touch()
    done = [json.loads(line)["cell"] for line in path.read_text().splitlines()]
    for kind, each, mbit, words in cells(tiny):
        cell = [kind, each, mbit, words]
        if cell in done:
            continue
        print(f"{kind}: {' '.join(command(build, each, mbit, words))}", file=sys.stderr)
        found = subprocess.run(command(build, each, mbit, words), capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]
        if found.returncode != 0 or len(lines) != len(words["ways"].split(",")):
            sys.exit(f"fused_page: the cell failed with status {found.returncode}: {found.stderr.strip()}")
        wrong = [line["how"] for line in lines if not line["same_bits"]]
        if wrong:
            sys.exit(f"fused_page: other bits than one rank's: {', '.join(wrong)}")
        with path.open("a") as file:
            for line in lines:
                file.write(json.dumps({"cell": cell, **line}) + "\n")


COLUMNS = {"phases": ["layers"], "attention": ["ranks"], "links": ["ranks", "mbit"], "sizes": ["tokens", "experts"],
           "workers": ["workers", "tokens"], "skew": ["skew", "experts"]}
TITLES = {
    "phases": ("Random delays of phases", "8 ranks as threads; gate, sending, experts and returns sleep for a random time each."),
    "attention": ("Random delays before layers", "Each rank sleeps for a random time before each layer, as attention of other lengths."),
    "links": ("Limited links", "Ranks on two hosts (network namespaces, a core each), a link between them; equal tokens a rank; sleeps of 5 to 10 ms "
              "before each layer."),
    "sizes": ("Tokens and experts", "Two hosts of a rank, 1600 Mbit/s."),
    "workers": ("Workers", "Two ranks as threads, free links."),
    "skew": ("Skew", "Two ranks as threads, free links; `zipf`: experts by 1 / rank; `one`: all tokens to the same experts."),
}


def value(line, name):
    return line["cell"][2] if name == "mbit" else line[name]


def table(lines, kind):
    names = COLUMNS[kind]
    print("| " + " | ".join([*names, "way", "P50, ms", "P95, ms", "MB sent a step", "times fused"]) + " |")
    print("|" + "---|" * (len(names) + 5))
    for line in lines:
        ratio = line.get("over_fused")
        told = f"{ratio[1]:.2f} [{ratio[0]:.2f}, {ratio[2]:.2f}]" if ratio else ""
        print("| " + " | ".join([*(str(value(line, name)) for name in names), line["how"], f"{1e3 * line['p50']:.1f}",
                                 f"{1e3 * line['p95']:.1f}", f"{line['payload_bytes'] / 1e6:.2f}", told]) + " |")


def page(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    print("# The fused MoE operator beside bulk exchanges\n")
    print("`moe=fused` ([plans](../plans.md#rows-without-an-exchange)) against the bulk exchange, the same padded to the fullest expert "
          "(DeepSpeed), in 2 and 4 overlapping pieces\n(FasterMoE, Tutel), and, one step old (`schedule=interweaved`), fused and bulk. "
          "All ways run in turn in each step and gave the bits of one rank. Times fused: ratio to `fused`\nwith its 95 % interval.\n")
    print("    python3 bench/parallel/fused_page.py run LINES.jsonl\n")
    for kind, (title, text) in TITLES.items():
        mine = [line for line in lines if line["cell"][0] == kind]
        if not mine:
            continue
        _, each, mbit, words = mine[-1]["cell"]
        print(f"## {title}\n\n{text}\n")
        said = " ".join(f"{name}={value}" for name, value in words.items() if name != "ways")
        start = f"bench/network/run --mbit {mbit} --each {each} -- " if each else ""
        print(f"    {start}fused_bench {said}\n")
        table(mine, kind)
        print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["run", "page"])
    parser.add_argument("lines", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=HERE / "build/release")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    if args.task == "run":
        run(args.lines, args.build.resolve(), args.tiny)
    else:
        page(args.lines)


if __name__ == "__main__":
    main()
