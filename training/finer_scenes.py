"""Trains a scenes model of 256 tokens an image from the shipped one of 64: a token is a place of the latent, not
four. The blocks, text encoders and autoencoder are taken over; the transformer learns to say what the shipped one says.

python3 training/finer_scenes.py --out /tmp/scenes256 --work /tmp/tessera-scenes256

Run again with the same --work, it goes on where it ended.
"""

import argparse
import copy
import json
import random
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.nn import functional as F

import scenes_export
from autoencoder import AutoencoderKL
from dit_moe import positions
from export import round_to_bf16
from loop import Average, Parts
from mmdit import MMDiT
from muon import Muon
from scenes_data import caption_of, draw, scene
from scenes_export import LENGTH, ids_of
from train_scenes import Scenes

CARD = """# scenes256

The model of `models/scenes` with 256 tokens an image: its transformer reads and writes each place of the 16 x 16 latent as a token
(patch size 1). bf16.

| | |
|---|---|
| data | as of `scenes`: `training/scenes_data.py`, one caption in ten is never trained on |
| recipe | `training/finer_scenes.py`: blocks, text encoders and autoencoder of `scenes`; the transformer is trained on by Muon towards the velocities of `scenes`, where captions are dropped in one case of ten; exponential average of the weights |
| time | {steps} steps of {batch} images, {minutes} minutes of one thread of a busy machine |
| seed | {seed} |
| check it | `tessera eval FOLDER --images 500 --steps 20` |
"""


def floats(path):
    return {k: v.float() for k, v in load_file(path).items()}


def by_places(weights, patch, channels):
    """Makes tokens of places out of those of patches: a place is seen as its patch would be if it were all like it, and
    is given what the patch gets on average."""
    weights["pos_embed.proj.weight"] = weights["pos_embed.proj.weight"].sum((2, 3), keepdim=True)
    for name in ("proj_out.weight", "proj_out.bias"):
        weights[name] = weights[name].view(patch * patch, channels, *weights[name].shape[1:]).mean(0)


def finer(coarse):
    """An MM-DiT whose tokens are places, where they lie in their patches, from one whose tokens are patches. It reads as
    many tokens of empty text as of a caption."""
    patch = coarse.config["patch_size"]
    config = dict(coarse.config, patch_size=1, pos_embed_max_size=coarse.side * patch)
    model, weights = MMDiT(config, LENGTH), coarse.state_dict()
    width = config["caption_projection_dim"]
    by_places(weights, patch, config["out_channels"])
    first = (coarse.config["pos_embed_max_size"] - coarse.side) // 2 + 0.5 / patch - 0.5
    weights["pos_embed.pos_embed"] = positions(coarse.side * patch, width, first, 1 / patch)
    model.load_state_dict(weights)
    return model


def shipped(folder):
    """The models of a folder, in f32, and the numbers that its latents are moved and scaled by."""
    vae, model = AutoencoderKL(), Scenes()
    vae.load_state_dict(floats(folder / "vae/diffusion_pytorch_model.safetensors"))
    for name in ("text_encoder", "text_encoder_2"):
        getattr(model, name).load_state_dict(floats(folder / name / "model.safetensors"))
    model.transformer.load_state_dict(floats(folder / "transformer/diffusion_pytorch_model.safetensors"))
    config = json.loads((folder / "vae/config.json").read_text())
    return vae.eval(), model.eval(), config["shift_factor"], config["scaling_factor"]


class Distillation:
    """Noisy latents of fresh images, and how far a model's velocities are from its teacher's there."""

    def __init__(self, vae, teacher, shift, scale, rng, generator):
        self.vae, self.teacher, self.shift, self.scale = vae, teacher, shift, scale
        self.rng, self.generator = rng, generator

    @torch.no_grad()
    def batch(self, size):
        """Noisy latents, their times, and captions, one of ten empty."""
        scenes = [scene(self.rng) for _ in range(size)]
        x = (self.vae.encode(draw(scenes, self.rng))[0] - self.shift) * self.scale
        t = torch.sigmoid(torch.randn(size, generator=self.generator) + 0.7)
        part = t.view(-1, 1, 1, 1)
        z = (1 - part) * x + part * torch.randn(x.shape, generator=self.generator)
        return z, t, ["" if self.rng.random() < 0.1 else caption_of(*s) for s in scenes]

    def loss(self, size, model):
        """model(z, t, captions) -> velocities."""
        z, t, captions = self.batch(size)
        with torch.no_grad():
            wanted = self.teacher(z, t, torch.tensor([ids_of(c) for c in captions]))
        with torch.autocast("cpu", torch.bfloat16):  # its products are twice as fast
            said = model(z, t, captions)
        return F.mse_loss(said.float(), wanted)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", type=Path, default=Path("models/scenes"))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=50)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    args.work.mkdir(parents=True, exist_ok=True)
    vae, teacher, shift, scale = shipped(args.start)
    model = finer(teacher.transformer)
    optimiser, average = Muon(model, lr=0.004, adam_lr=1e-3, blocks="blocks."), Average(model, 0.99)
    parts = Parts(args.work / "state.pt", model, optimiser, average)
    seed = args.seed + parts.steps
    torch.manual_seed(seed)
    data = Distillation(vae, teacher, shift, scale, random.Random(seed), torch.Generator().manual_seed(seed))
    student = copy.deepcopy(teacher)

    def keep(steps, minutes):
        student.transformer = round_to_bf16(copy.deepcopy(average.model))
        card = CARD.format(steps=steps, minutes=minutes, batch=args.batch, seed=args.seed)
        scenes_export.save(args.out, student, vae, shift, scale, card, model.empty)

    def said(z, t, captions):
        with torch.no_grad():
            told = teacher.encode(torch.tensor([ids_of(c) for c in captions]))
        return model(z, t, *told)

    parts.train(lambda: data.loss(args.batch, said), args.minutes, "finer scenes", keep)


if __name__ == "__main__":
    main()
