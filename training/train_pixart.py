"""Trains a PixArt and its T5 to say what the shipped scenes model says; first with 64 tokens an image, then with 256.

python3 training/train_pixart.py --out /tmp/pixart64 --work /tmp/tessera-pixart --minutes 120 --patch 2
python3 training/train_pixart.py --out /tmp/pixart256 --work /tmp/tessera-pixart --minutes 120 --patch 1

Run again with the same --work and --patch, it goes on where it ended.
"""

import argparse
import copy
import json
import random
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

import autoencoder
from export import round_to_bf16
from finer_scenes import Distillation, by_places, shipped
from loop import Average, Parts
from muon import Muon
from pixart import CONFIG, T5, PixArt
from scenes_data import unseen_captions
from scenes_export import WORDS, tensors

VOCABULARY = {token: i for i, token in enumerate(
    ["<pad>", "</s>", "<unk>", "\u2581", *("\u2581" + word for word in dict.fromkeys(WORDS))])}
LENGTH = 14  # tokens of the longest caption, and its end

CARD = """# pixart-scenes

A text-to-image PixArt (8 blocks, width 128) with a T5 of 3 layers and the AutoencoderKL of `models/scenes`: 128 x 128 images of two or
three coloured shapes in a stated relation, {tokens} tokens an image. bf16.

| | |
|---|---|
| data | as of `scenes`: `training/scenes_data.py`, one caption in ten is never trained on |
| recipe | `training/train_pixart.py`: Muon for the transformer and its T5 together, towards the velocities of `scenes`; captions are dropped in one case of ten; exponential average of the weights |
| time | {steps} steps of {batch} images, {minutes} minutes of one thread of a busy machine |
| seed | {seed} |
| check it | `tessera eval FOLDER --images 500 --steps 20` |
"""


class Model(nn.Module):
    """What is trained together."""

    def __init__(self, patch):
        super().__init__()
        self.text_encoder = T5(len(VOCABULARY))
        self.transformer = PixArt(dict(CONFIG, patch_size=patch, interpolation_scale=CONFIG["patch_size"] // patch))

    def forward(self, z, t, captions):
        ids = torch.tensor([ids_of(c) for c in captions])
        mask = ids != VOCABULARY["<pad>"]
        return self.transformer(z, t, self.text_encoder(ids, mask), mask)


def ids_of(caption):
    ids = [*(VOCABULARY["\u2581" + word] for word in caption.split()), VOCABULARY["</s>"]]
    return ids + [VOCABULARY["<pad>"]] * (LENGTH - len(ids))


def tokenizer():
    special = [{"id": i, "content": token, "special": True, "normalized": False, "lstrip": False, "rstrip": False,
                "single_word": False} for token, i in list(VOCABULARY.items())[:3]]
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    return {
        "version": "1.0",
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, end],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, end, {"Sequence": {"id": "B", "type_id": 0}}, end],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [VOCABULARY["</s>"]], "tokens": ["</s>"]}},
        },
        "model": {"type": "Unigram", "unk_id": VOCABULARY["<unk>"], "byte_fallback": False,
                  "vocab": [[token, 0.0 if i < 3 else -1.0] for token, i in VOCABULARY.items()]},
    }


@torch.no_grad()
def centred(vae, shift):
    """An autoencoder whose latents need no shift, which PixArt's pipeline does not know."""
    vae = copy.deepcopy(vae)
    vae.post_quant_conv.bias += shift * vae.post_quant_conv.weight.sum((1, 2, 3))
    vae.quant_conv.bias[: CONFIG["in_channels"]] -= shift
    return vae


def save(out, model, vae, scale, card):
    def config(name, value):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(json.dumps(value, indent=1) + "\n")

    config("model_index.json", {
        "_class_name": "PixArtAlphaPipeline",
        "scheduler": ["diffusers", "DPMSolverMultistepScheduler"],
        "text_encoder": ["transformers", "T5EncoderModel"],
        "tokenizer": ["transformers", "T5TokenizerFast"],
        "transformer": ["diffusers", "PixArtTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    })
    config("scheduler/scheduler_config.json", {
        "_class_name": "DPMSolverMultistepScheduler", "num_train_timesteps": 1000, "prediction_type": "flow_prediction",
        "use_flow_sigmas": True, "flow_shift": 1.0, "solver_order": 2, "final_sigmas_type": "zero"})
    config("transformer/config.json", model.transformer.config)
    config("vae/config.json", {**autoencoder.CONFIG, "scaling_factor": scale})
    config("text_encoder/config.json", model.text_encoder.config)
    config("tokenizer/tokenizer.json", tokenizer())
    config("tokenizer/tokenizer_config.json", {
        "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "model_max_length": 120,
        "tokenizer_class": "T5TokenizerFast"})
    config("generation_config.json", {"num_inference_steps": 20, "guidance_scale": 3.5})
    config("captions.json", unseen_captions(500, 1))
    save_file(tensors(model.text_encoder), out / "text_encoder/model.safetensors")
    save_file(tensors(model.transformer), out / "transformer/diffusion_pytorch_model.safetensors")
    save_file(tensors(vae), out / "vae/diffusion_pytorch_model.safetensors")
    (out / "MODEL_CARD.md").write_text(card)


def start_finer(model, coarse):
    """From what is kept of a training with patches."""
    weights = torch.load(coarse, weights_only=True)["average"]
    under = "transformer."
    mine = {k.removeprefix(under): weights.pop(k) for k in list(weights) if k.startswith(under)}
    by_places(mine, CONFIG["patch_size"], CONFIG["out_channels"])
    model.load_state_dict({**weights, **{under + k: v for k, v in mine.items()}})


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", type=Path, default=Path("models/scenes"))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--patch", type=int, choices=(1, 2), required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    args.work.mkdir(parents=True, exist_ok=True)
    vae, teacher, shift, scale = shipped(args.start)
    shown = centred(vae, shift)
    model, coarse = Model(args.patch), args.work / "state-2.pt"
    if args.patch == 1 and coarse.exists():
        start_finer(model, coarse)
    optimiser, average = Muon(model, lr=0.012 if args.patch == 2 else 0.006, blocks="blocks."), Average(model, 0.99)
    parts = Parts(args.work / f"state-{args.patch}.pt", model, optimiser, average)
    seed = args.seed + parts.steps
    data = Distillation(vae, teacher, shift, scale, random.Random(seed), torch.Generator().manual_seed(seed))

    def keep(steps, minutes):
        card = CARD.format(steps=steps, minutes=minutes, batch=args.batch, seed=args.seed, tokens=model.transformer.side**2)
        save(args.out, round_to_bf16(copy.deepcopy(average.model)), shown, scale, card)

    parts.train(lambda: data.loss(args.batch, model), args.minutes, "pixart", keep)


if __name__ == "__main__":
    main()
