"""Trains models/tasks-a (LLaDA-MoE form), tasks-b (LLaDA2 form) or tasks-c (DiffusionGemma form) on tasks_data.py.

python3 training/train_tasks.py --form a --out models/tasks-a --seed 0
"""

import argparse
import copy
import random
import time
from pathlib import Path

import torch
from torch.nn import functional as F

import canvas_tasks
import tasks_export
from canvas_moe import CanvasMoe
from loop import Average, say, train
from muon import Muon
from tasks_data import END, MASK, SHORT, TASKS, examples, ids_of, text_of
from token_moe import LLADA2, LLADA_MOE, TokenMoe

BLOCK = 32


def rows_of(pairs, area, generator):
    """Prompts with answers filled to `area` by ends, padded -> ids, prompt lengths, lengths."""
    rows = []
    for prompt, answer in pairs:
        tail = ids_of(answer)
        rows.append((ids_of(prompt), tail + [END] * (area - len(tail)), len(tail)))
    width = max(len(p) + area for p, _, _ in rows)
    ids = torch.full((len(rows), width), END)
    for i, (p, a, _) in enumerate(rows):
        ids[i, : len(p) + area] = torch.tensor(p + a)
    prompts = torch.tensor([len(p) for p, _, _ in rows])
    return ids, prompts, prompts + area, torch.tensor([n for _, _, n in rows])


def masked(rows, generator, block, absolute):
    """Masks a share of the answer, or of one block of it with all behind masked; loss weights.

    Of a block-causal model the blocks stand at multiples of their length, and what lies behind the
    chosen block does not exist for it.
    """
    ids, prompts, lengths, answers = rows
    n, width = ids.shape
    draw = lambda *shape: torch.rand(*shape, generator=generator)
    place = torch.arange(width)[None]
    inside = (place >= prompts[:, None]) & (place < lengths[:, None])
    origin = torch.zeros_like(prompts) if absolute else prompts
    part = (place - origin[:, None]).div(block, rounding_mode="floor")
    first = part.gather(1, prompts[:, None])
    last = part.gather(1, (prompts + answers)[:, None])  # the block of the first end
    chosen = first + (draw(n, 1) * (last - first + 1)).long()
    whole = draw(n, 1) < (0 if absolute else 0.4)
    share = (1.15 * draw(n, 1)).clamp(max=1)
    hidden = draw(n, width) < share
    mine = inside & (whole | (part == chosen))
    hide = mine & hidden
    hide |= mine & (hide.sum(1, keepdim=True) == 0)
    behind = inside & ~whole & (part > chosen)
    weight = hide.float() * torch.where(place > (prompts + answers)[:, None], 0.1, 1.0)
    if absolute:
        lengths = torch.minimum(lengths, (chosen[:, 0] + 1) * block)
    return torch.where(hide | behind, MASK, ids), ids, weight, lengths


def example(draw, name):
    """Of the tasks that add digits, half of the examples have more zeros than those that measure:
    a sum that only copies is what a model learns first."""
    if name in ("add", "sums") and draw.random() < 0.5:
        return TASKS[name](draw, draw.random())
    return TASKS[name](draw)


class Trainer:
    """Masked diffusion: cross entropy at masked positions, experts kept in balance."""

    def __init__(self, model, args):
        self.model, self.args = model, args
        self.average = Average(model, 0.995)
        self.draw = random.Random(args.seed)
        self.generator = torch.Generator().manual_seed(args.seed)

    def batches(self):
        draw, absolute = self.draw, bool(self.model.block_causal)
        short = [example(draw, draw.choice(list(SHORT))) for _ in range(self.args.batch)]
        long = [example(draw, "sums") for _ in range(self.args.batch // 8)]
        roll = draw.random()
        area = BLOCK if absolute else 16 if roll < 0.6 else 32 if roll < 0.97 else 64
        for pairs, size in ((short, area), (long, 64)):
            block = BLOCK if absolute else draw.choice((8, 16, BLOCK, BLOCK))
            yield masked(rows_of(pairs, size, self.generator), self.generator, block, absolute)

    def loss(self):
        total, weights, balance = 0, 0, 0
        for ids, target, weight, lengths in self.batches():
            width = int(lengths.max())
            ids, target, weight = ids[:, :width], target[:, :width], weight[:, :width]
            logits = self.model(ids, lengths)
            pick = weight > 0
            total = total + (F.cross_entropy(logits[pick], target[pick], reduction="none") * weight[pick]).sum()
            weights = weights + weight.sum()
            moes = self.model.moes()
            balance = balance + sum(m.balance for m in moes) / len(moes)
            self.keep_even(moes)
        sigmoid = self.model.moes()[0].gate.sigmoid
        return total / weights + (0.001 if sigmoid else 0.01) * balance

    def keep_even(self, moes):
        """Sigmoid routers: a bias that ranks busy experts lower (Wang et al. 2024)."""
        for m in moes:
            if m.gate.sigmoid:
                loads = m.loads.float()
                m.gate.expert_bias += 0.001 * (loads.mean() - loads).sign()


class CanvasTrainer(Trainer):
    """Uniform-noise diffusion: cross entropy over whole canvases, half of them conditioned on an earlier pass."""

    def loss(self):
        pairs = [example(self.draw, self.draw.choice(list(SHORT))) for _ in range(self.args.batch)]
        pairs += [example(self.draw, "sums") for _ in range(self.args.batch // 8)]
        total, weights, balance = 0, 0, 0
        for half in (pairs[: self.args.batch], pairs[self.args.batch :]):
            loss, weight = canvas_tasks.loss(self.model, half, self.draw, self.generator)
            total, weights = total + loss, weights + weight
            moes = self.model.moes()
            balance = balance + sum(m.balance for m in moes) / len(moes)
        return total / weights + 0.01 * balance


@torch.no_grad()
def decode(model, prompts, area, threshold=0.9):
    """Threshold decoding block by block of prompts of one length, all computed anew each pass."""
    start = len(prompts[0])
    length = start + area
    if model.block_causal:
        length = -(-length // BLOCK) * BLOCK
    ids = torch.full((len(prompts), length), MASK)
    ids[:, :start] = torch.tensor(prompts)
    base = 0 if model.block_causal else start
    begin = start // BLOCK * BLOCK if model.block_causal else start
    for left in range(begin, length, BLOCK):
        right = min(left + BLOCK, length)
        while (open_ := ids[:, left:right] == MASK).any():
            seen = ids[:, :right] if model.block_causal else ids
            logits = model(seen)[:, left:right].clone()
            logits[..., MASK] = -torch.inf
            sure, best = logits.softmax(-1).max(-1)
            sure = sure.masked_fill(~open_, -1)
            take = open_ & ((sure > threshold) | (sure == sure.max(1, keepdim=True)[0]))
            ids[:, left:right] = torch.where(take, best, ids[:, left:right])
    return [text_of(row[start:].tolist()) for row in ids]


def score(model, count, seed, decode=decode):
    """Exact matches by task."""
    right, by_length = dict.fromkeys(TASKS, 0), {}
    for e in examples(count, seed):
        by_length.setdefault((len(e["prompt"]), e["task"] == "sums"), []).append(e)
    for (_, long), group in by_length.items():
        made = decode(model, [ids_of(e["prompt"]) for e in group], 2 * BLOCK if long else BLOCK)
        for e, text in zip(group, made):
            right[e["task"]] += text == e["answer"]
    return {name: n / count for name, n in right.items()}


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--form", choices="abc", default="a")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/tessera-tasks"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--steps", type=int, help="instead of minutes: the same model on any machine of one kind")
    parser.add_argument("--every", type=float, default=5, help="minutes between measurements")
    parser.add_argument("--batch", type=int, default=72, help="short tasks in a step; an eighth as many long")
    parser.add_argument("--lr", type=float, default=0.02, help="of the matrices")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--measure", type=int, default=20, help="examples of each task")
    parser.add_argument("--resume", type=Path, help="a checkpoint of --work to train on from")
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    args.work.mkdir(parents=True, exist_ok=True)
    model = CanvasMoe() if args.form == "c" else TokenMoe(LLADA2 if args.form == "b" else LLADA_MOE)
    say("parameters:", sum(p.numel() for p in model.parameters()))
    optimiser = Muon(model, lr=args.lr, adam_lr=2e-3)
    before = {"minutes": 0.0, "steps": 0}
    if args.resume:
        saved = torch.load(args.resume, weights_only=True)
        model.load_state_dict(saved["model"])
        before = saved["spent"]
    trainer = CanvasTrainer(model, args) if args.form == "c" else Trainer(model, args)
    trainer.draw.seed(f"{args.seed}/{before['steps']}")
    due = [args.every / args.minutes]
    begin = time.time()

    def measure(step, count):
        spent = {"minutes": before["minutes"] + (time.time() - begin) / 60, "steps": before["steps"] + step}
        torch.save({"model": model.state_dict(), "average": trainer.average.model.state_dict(), "spent": spent},
                   args.work / f"tasks-{args.form}-{args.seed}.pt")
        rounded = tasks_export.round_to_bf16(copy.deepcopy(trainer.average.model)).eval()
        scores = score(rounded, count, args.seed + 1000, canvas_tasks.decode if args.form == "c" else decode)
        say("exact:", {k: f"{v:.2f}" for k, v in scores.items()})
        facts = {"seed": args.seed, "threads": args.threads, "batch": args.batch, "scores": scores, "of": count, **spent}
        tasks_export.save(args.out, rounded, facts, args.form)

    def on_step(step, share):
        trainer.average.follow(model, step)
        if share >= due[0]:
            due[0] += args.every / args.minutes
            measure(step, args.measure)

    last = [0]

    def counted(step, share):
        last[0] = step
        on_step(step, share)

    train(optimiser, trainer.loss, args.minutes, f"tasks-{args.form}", on_step=counted, steps=args.steps)
    measure(last[0], 4 * args.measure)


if __name__ == "__main__":
    main()
