#!/usr/bin/env python3
"""Many images on many machines: each line of FILE a prompt (or class), spread over a Ray cluster by Ray Data.

    python3 examples/ray/batch_images.py scenes prompts.txt out/ --workers 4

Writes out/*.parquet with a row a line: line, text, seed, png. A worker that dies is started again, and what it
was at is made again: the same line has the same seed, so the same image.
"""

import argparse
import io
import pathlib

import ray
import ray.data


class Images:
    """A worker: holds the model, and makes a batch of rows at a time."""

    def __init__(self, model, argument, threads, steps):
        import tessera  # on the worker's machine

        self.pipe = tessera.Pipeline.from_pretrained(model, threads=threads)
        self.argument, self.steps = argument, steps

    def __call__(self, rows):
        made = self.pipe(**{self.argument: [str(text) for text in rows["text"]]},
                         generator=[int(seed) for seed in rows["seed"]], num_inference_steps=self.steps)
        rows["png"] = [png_of(image) for image in made.images]
        return rows


def png_of(image):
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def make(model, lines, output, classes=False, workers=2, batch=4, threads=1, steps=None, seed=0):
    """Makes an image of each line, and writes them to `output`; the number of images."""
    rows = [{"line": i, "text": line, "seed": seed + i} for i, line in enumerate(lines)]
    given = {"model": model, "argument": "class_labels" if classes else "prompt", "threads": threads, "steps": steps}
    data = ray.data.from_items(rows, override_num_blocks=max(1, len(rows) // batch))
    made = data.map_batches(Images, fn_constructor_kwargs=given, batch_size=batch, num_cpus=threads,
                            compute=ray.data.ActorPoolStrategy(size=workers))
    made.write_parquet(str(output))
    return len(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("file", type=pathlib.Path, metavar="FILE", help="a prompt, or a class, a line")
    parser.add_argument("output", type=pathlib.Path, metavar="DIR", help="for the parquet files; all machines see it")
    parser.add_argument("--classes", action="store_true", help="the lines are classes, not prompts")
    parser.add_argument("--workers", type=int, default=2, help="processes that hold the model")
    parser.add_argument("--threads", type=int, default=1, help="cores of each")
    parser.add_argument("--batch", type=int, default=4, help="images at a time")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=0, help="of the first line; the next has one more")
    o = parser.parse_args()
    lines = [line for line in o.file.read_text().splitlines() if line.strip()]
    ray.init()  # RAY_ADDRESS names a cluster, else one is made here
    count = make(o.model, lines, o.output.resolve(), o.classes, o.workers, o.batch, o.threads, o.steps, o.seed)
    print(f"{count} images are in {o.output}")


if __name__ == "__main__":
    main()
