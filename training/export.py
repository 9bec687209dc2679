"""Writes a trained model as the folder that Tessera ships."""

import json

import torch
from safetensors.torch import save_file

import autoencoder
import critic as critic_module
from dit_moe import sample
from shapes_data import CLASSES, draw

CARD = """# shapes

A class-conditional DiT-MoE (8 layers, 8 experts, top-2, one shared expert) over the latents of a small
AutoencoderKL: 128 x 128 images of one coloured shape, {count} classes, bf16.

| | |
|---|---|
| data | drawn while training by `training/shapes_data.py`: {shapes}; place, size, rotation and background vary |
| recipe | `training/train_shapes.py`: AdamW for the autoencoder and the critic, Muon for the DiT-MoE; rectified flow with logit-normal times, 10 % of labels dropped, load balance 0.01, exponential average of the weights |
| time | {minutes} minutes (autoencoder, critic, DiT-MoE) on {threads} thread of a shared machine |
| seed | {seed} |
| quality | the critic recognises {score:.1%} of {of} images (25 steps, guidance 1.5); on fresh real images it is right in {real:.2%} |
| check it | `tessera eval shapes --images 1000 --steps 25` |

Train it again: `python3 training/train_shapes.py --out models/shapes --seed {seed}`
"""


def round_to_bf16(module):
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(p.bfloat16())
    return module


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _tensors(module):
    return {k: v.detach().bfloat16().contiguous() for k, v in module.state_dict().items()}


def save(out, model, vae, critic, scale, facts):
    def config(name, value):
        _write(out / name, json.dumps(value, indent=1) + "\n")

    config("model_index.json", {
        "_class_name": "DiTMoEPipeline",
        "transformer": ["tessera", "DiTMoE"],
        "vae": ["diffusers", "AutoencoderKL"],
        "scheduler": ["tessera", "RectifiedFlow"],
    })
    config("transformer/config.json", model.config)
    config("vae/config.json", {**autoencoder.CONFIG, "scaling_factor": scale})
    config("scheduler/scheduler_config.json", {"_class_name": "RectifiedFlow"})
    config("classes.json", CLASSES)
    config("critic/config.json", critic_module.config(len(CLASSES)))
    for name in ("transformer", "vae", "critic"):
        (out / name).mkdir(parents=True, exist_ok=True)
    save_file(_tensors(model), out / "transformer/model.safetensors")
    save_file(_tensors(vae), out / "vae/diffusion_pytorch_model.safetensors")
    save_file(_tensors(critic), out / "critic/model.safetensors")
    if facts.get("final"):
        reference(out / "critic/reference.safetensors", round_to_bf16(critic))
    _write(out / "MODEL_CARD.md", CARD.format(
        count=len(CLASSES), shapes=", ".join(CLASSES), minutes=" + ".join(map(str, facts["minutes"])),
        threads=facts["threads"], seed=facts["seed"], score=facts["recognised"], of=facts["of"],
        real=facts["critic_real"]))


@torch.no_grad()
def golden(path, model, vae, scale, seed=7):
    """A run of the exported weights in float32, for the engine's tests."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(2, 4, 16, 16, generator=generator)
    labels = torch.tensor([0, 13])
    z = sample(model, start, labels)
    image = (vae.decode(z / scale) * 0.5 + 0.5).clamp(0, 1)
    save_file({"start": start, "y": labels.int(), "latents": z.contiguous(), "image": (image * 255).round().byte()}, path)


@torch.no_grad()
def reference(path, critic, count=20000, kept=2000, seed=1234):
    """What the exported critic sees in real images: moments of all, features of some."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % len(CLASSES)
    features, spatial = [], []
    for y in labels.split(100):
        image, places = critic.see((draw(y, generator) * 255).round() / 255)
        features.append(image.double())
        spatial.append(places.double())
    features, spatial = torch.cat(features), torch.cat(spatial)
    tensors = {"features": features[torch.randperm(count, generator=generator)[:kept]].half()}
    for prefix, rows in (("", features), ("spatial_", spatial)):
        tensors[prefix + "mean"] = rows.mean(0).float()
        tensors[prefix + "covariance"] = torch.cov(rows.T, correction=0).float()
    save_file(tensors, path)
