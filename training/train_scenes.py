"""Trains models/scenes: an autoencoder, then an MM-DiT together with its two text encoders.

python3 training/train_scenes.py --out models/scenes --start models/shapes/vae --seed 0
"""

import argparse
import copy
import random
import time
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

import autoencoder
import scenes_export
from autoencoder import AutoencoderKL
from export import round_to_bf16
from loop import Average, adamw, say, train
from mmdit import MMDiT
from muon import Muon
from scenes_data import caption_of, draw, scene
from scenes_export import LENGTH, VOCABULARY, ids_of
from text_encoder import ClipText, config


class Scenes(nn.Module):
    """What is trained together: two text encoders and the transformer."""

    def __init__(self):
        super().__init__()
        self.text_encoder = ClipText(config(len(VOCABULARY), 96, 3, 3, LENGTH))
        self.text_encoder_2 = ClipText(config(len(VOCABULARY), 32, 2, 1, LENGTH))
        self.transformer = MMDiT()

    def encode(self, ids):
        (first, one), (second, two) = self.text_encoder(ids), self.text_encoder_2(ids)
        return torch.cat([first, second], 2), torch.cat([one, two], 1)

    def forward(self, x, t, ids):
        return self.transformer(x, t, *self.encode(ids))


def train_autoencoder(vae, start, minutes, rng, generator):
    vae.load_state_dict({k: v.float() for k, v in load_file(start / "diffusion_pytorch_model.safetensors").items()})

    def step_loss():
        images = draw([scene(rng) for _ in range(8)], rng)
        return autoencoder.loss(vae, images.contiguous(memory_format=torch.channels_last), generator)

    vae.to(memory_format=torch.channels_last)
    train(adamw(vae.parameters(), 2e-3), step_loss, minutes, "autoencoder")


@torch.no_grad()
def latents_of(vae, count, rng):
    """Means of the latents of fresh images, and the token ids of their captions."""
    latents, ids = [], []
    for _ in range(count // 50):
        scenes = [scene(rng) for _ in range(50)]
        latents.append(vae.encode(draw(scenes, rng))[0])
        ids += [ids_of(caption_of(*s)) for s in scenes]
    return torch.cat(latents), torch.tensor(ids)


def loss(model, latents, ids, empty, generator, batch):
    """Rectified flow: z = (1 - t) x + t noise, target noise - x; one caption in ten is dropped. Times lie
    near 1, where it is decided what goes where."""
    pick = torch.randint(0, len(latents), (batch,), generator=generator)
    x, y = latents[pick], ids[pick].clone()
    y[torch.rand(batch, generator=generator) < 0.1] = empty
    t = torch.sigmoid(torch.randn(batch, generator=generator) + 1)
    noise = torch.randn(x.shape, generator=generator)
    part = t.view(-1, 1, 1, 1)
    return F.mse_loss(model((1 - part) * x + part * noise, t, y), noise - x)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", type=Path, required=True, help="autoencoder to train on from")
    parser.add_argument("--work", type=Path, default=Path("/tmp/tessera-scenes"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, nargs=2, default=(12, 110), metavar=("VAE", "MMDIT"))
    parser.add_argument("--images", type=int, default=24000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--resume", type=Path, help="weights of an earlier training to go on from")
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rng, generator = random.Random(args.seed), torch.Generator().manual_seed(args.seed)
    args.work.mkdir(parents=True, exist_ok=True)
    vae, file = AutoencoderKL(), args.work / f"vae-{args.seed}.pt"
    if file.exists():
        vae.load_state_dict(torch.load(file, weights_only=True))
    else:
        train_autoencoder(vae, args.start, args.minutes[0], rng, generator)
        torch.save(vae.state_dict(), file)
    round_to_bf16(vae.eval())
    latents, ids = latents_of(vae, args.images, rng)
    shift, scale = latents.mean().item(), 1 / latents.std().item()
    latents = (latents - shift) * scale
    say("latents", tuple(latents.shape), f"shift {shift:.4f} scale {scale:.4f}")
    model = Scenes()
    if args.resume:
        model.load_state_dict(torch.load(args.resume, weights_only=True))
    average, empty = Average(model), torch.tensor(ids_of(""))
    begin, due = time.time(), [0.1]

    def keep():
        minutes = [args.minutes[0], round((time.time() - begin) / 60)]
        rounded = round_to_bf16(copy.deepcopy(average.model))
        card = scenes_export.card({"seed": args.seed, "minutes": minutes, "threads": args.threads})
        scenes_export.save(args.out, rounded, vae, shift, scale, card)
        torch.save(average.model.state_dict(), args.work / f"scenes-{args.seed}.pt")

    def on_step(step, share):
        average.follow(model, step)
        if share >= due[0]:
            due[0] += 0.1
            keep()

    train(Muon(model, blocks="blocks."),
          lambda: loss(model, latents, ids, empty, generator, args.batch), args.minutes[1], "mmdit", on_step=on_step)
    keep()


if __name__ == "__main__":
    main()
