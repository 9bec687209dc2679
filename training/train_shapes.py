"""Trains models/shapes: autoencoder, critic, DiT-MoE; exports after each evaluation.

python3 training/train_shapes.py --out models/shapes --seed 0
"""

import argparse
import copy
from pathlib import Path

import torch
from torch.nn import functional as F

import autoencoder
import export
from autoencoder import AutoencoderKL
from critic import Critic
from dit_moe import CONFIG, DiTMoE, sample
from loop import Average, adamw, say, train
from muon import Muon
from shapes_data import CLASSES, draw, random_labels


def train_autoencoder(vae, minutes, generator):
    def step_loss():
        images = draw(random_labels(24, generator), generator)
        top, left = torch.randint(0, 65, (2,), generator=generator).tolist()
        crop = images[..., top : top + 64, left : left + 64]  # half the side, a quarter of the cost
        return autoencoder.loss(vae, crop.contiguous(memory_format=torch.channels_last), generator)

    vae.to(memory_format=torch.channels_last)
    train(adamw(vae.parameters(), 2e-3), step_loss, minutes, "autoencoder")


@torch.no_grad()
def drawn(count, generator):
    """Images as bytes, and their labels."""
    labels = random_labels(count, generator)
    return torch.cat([(draw(y, generator) * 255).round().byte() for y in labels.split(100)]), labels


def train_critic(critic, minutes, generator):
    images, labels = drawn(24000, generator)

    def step_loss():
        pick = torch.randint(0, len(labels), (64,), generator=generator)
        x = images[pick].float() / 255
        if torch.rand((), generator=generator) < 0.5:
            x = x.flip(3)  # no class depends on left and right
        x = x + 0.03 * torch.randn(x.shape, generator=generator)
        return F.cross_entropy(critic(x), labels[pick])

    train(adamw(critic.parameters(), 1.5e-3), step_loss, minutes, "critic")


@torch.no_grad()
def accuracy_on_real(critic, seed, count=2000):
    generator = torch.Generator().manual_seed(seed)
    right = 0
    for _ in range(count // 100):
        labels = random_labels(100, generator)
        right += (critic(draw(labels, generator)).argmax(1) == labels).sum().item()
    return right / count


@torch.no_grad()
def latents_of(vae, count, generator):
    """Means of the latents of fresh images, and their labels."""
    latents, labels = [], []
    for _ in range(count // 100):
        y = random_labels(100, generator)
        latents.append(vae.encode(draw(y, generator))[0])
        labels.append(y)
    return torch.cat(latents), torch.cat(labels)


@torch.no_grad()
def recognised(model, vae, critic, scale, count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % len(CLASSES)
    right = 0
    for y in labels.split(100):
        z = sample(model, torch.randn(len(y), 4, 16, 16, generator=generator), y)
        images = (vae.decode(z / scale) * 0.5 + 0.5).clamp(0, 1)
        right += (critic(images).argmax(1) == y).sum().item()
    return right / count


class DitTrainer:
    """Rectified flow: z = (1 - t) x + t noise, target noise - x; one label in ten is dropped."""

    def __init__(self, model, latents, labels, generator, batch=64):
        self.model, self.latents, self.labels = model, latents, labels
        self.generator, self.batch = generator, batch
        self.average = Average(model)

    def loss(self):
        g, n = self.generator, self.batch
        pick = torch.randint(0, len(self.latents), (n,), generator=g)
        x, y = self.latents[pick], self.labels[pick].clone()
        y[torch.rand(n, generator=g) < 0.1] = len(CLASSES)
        t = torch.sigmoid(torch.randn(n, generator=g) + 0.3)
        noise = torch.randn(x.shape, generator=g)
        shape = (n, 1, 1, 1)
        v = self.model((1 - t.view(shape)) * x + t.view(shape) * noise, t, y)
        return F.mse_loss(v, noise - x) + 0.01 * self.model.balance()


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/tessera-shapes"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, nargs=3, default=(25, 5, 80),
                        metavar=("VAE", "CRITIC", "DIT"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shared-experts", type=int, choices=(0, 1), default=1,
                        help="0: the twin of docs/results/dice.md")
    parser.add_argument("--resume", type=Path, help="weights of an earlier DiT-MoE to train on from")
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    args.work.mkdir(parents=True, exist_ok=True)

    def stage(name, module, run):
        file = args.work / f"{name}-{args.seed}.pt"
        if file.exists():
            module.load_state_dict(torch.load(file, weights_only=True))
        else:
            run()
            torch.save(module.state_dict(), file)
        return module.eval()

    vae, critic = AutoencoderKL(), Critic(len(CLASSES))
    stage("vae", vae, lambda: train_autoencoder(vae, args.minutes[0], generator))
    stage("critic", critic, lambda: train_critic(critic, args.minutes[1], generator))
    facts = {"seed": args.seed, "minutes": list(args.minutes), "threads": args.threads,
             "critic_real": accuracy_on_real(critic, args.seed + 1)}
    say("critic on fresh images:", facts["critic_real"])
    export.round_to_bf16(vae)
    latents, labels = latents_of(vae, 20000, generator)
    scale = 1 / latents.std().item()
    say("latents", tuple(latents.shape), "scale", f"{scale:.4f}")
    torch.manual_seed(args.seed)  # the same start, whether the stages before it ran or were read
    model = DiTMoE({**CONFIG, "n_shared_experts": args.shared_experts})
    if args.resume:
        model.load_state_dict(torch.load(args.resume, weights_only=True))
    trainer = DitTrainer(model, latents * scale, labels, generator)
    due = [0.15]

    def on_step(step, share):
        trainer.average.follow(model, step)
        if share >= due[0]:
            due[0] += 0.2
            rounded = export.round_to_bf16(copy.deepcopy(trainer.average.model))
            score = recognised(rounded, vae, critic, scale, 192, args.seed + 2)
            say("recognised of 192:", score)
            export.save(args.out, rounded, vae, critic, scale, {**facts, "recognised": score, "of": 192})

    train(Muon(model), trainer.loss, args.minutes[2], "dit-moe", on_step=on_step)
    rounded = export.round_to_bf16(trainer.average.model)
    torch.save(model.state_dict(), args.work / f"dit-{args.seed}.pt")
    score = recognised(rounded, vae, critic, scale, 1000, args.seed + 2)
    say("recognised of 1000:", score)
    export.save(args.out, rounded, vae, critic, scale, {**facts, "recognised": score, "of": 1000, "final": True})


if __name__ == "__main__":
    main()
