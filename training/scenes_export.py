"""Writes models/scenes as the folder of a StableDiffusion3Pipeline."""

import json

from safetensors.torch import save_file

import autoencoder
from scenes_data import COLOURS, RELATIONS, SHAPES, unseen_captions

LENGTH = 16  # tokens of a caption, its begin and its end
WORDS = ["a", *COLOURS, *SHAPES, *" ".join(RELATIONS).split()]

CARD = """# scenes

A text-to-image MM-DiT of SD3's form (8 blocks, width 128) with two small CLIP text encoders and an AutoencoderKL:
128 x 128 images of two or three coloured shapes in a stated relation, bf16. Captions read like "a red circle left of
a blue square" or "a black cross above a green circle right of a yellow triangle".

| | |
|---|---|
| words | {words} |
| data | drawn by `training/scenes_data.py`; one caption in ten is never trained on; places, sizes and the ground vary |
| recipe | `training/train_scenes.py`: AdamW for the autoencoder (from that of `shapes`), Muon for the transformer and its text encoders together; rectified flow with logit-normal times, 10 % of captions dropped, exponential average of the weights |
| time | {minutes} minutes (autoencoder, the rest) on {threads} thread of a shared machine |
| seed | {seed} |
| check it | `tessera eval scenes --images 500 --steps 20` |

Train it again: `python3 training/train_scenes.py --out models/scenes --start models/shapes/vae --seed {seed}`
"""


def byte_symbols():
    """The characters that stand for the 256 bytes in a byte-level BPE (Radford et al. 2019)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(rest))]


def trained_merges(words):
    """Byte-pair encoding until every word is one token."""
    splits = [[*word[:-1], word[-1] + "</w>"] for word in words]
    merges = []
    while True:
        counts = {}
        for split in splits:
            for pair in zip(split, split[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            return merges
        best = max(sorted(counts), key=counts.get)
        merges.append(best)
        for i, split in enumerate(splits):
            merged = []
            for symbol in split:
                if merged and (merged[-1], symbol) == best:
                    merged[-1] += symbol
                else:
                    merged.append(symbol)
            splits[i] = merged


MERGES = trained_merges(WORDS)
VOCABULARY = {token: i for i, token in enumerate(
    [*byte_symbols(), *(s + "</w>" for s in byte_symbols()), *dict.fromkeys(a + b for a, b in MERGES),
     "<|startoftext|>", "<|endoftext|>"])}


def ids_of(caption):
    end = VOCABULARY["<|endoftext|>"]
    ids = [VOCABULARY["<|startoftext|>"], *(VOCABULARY[word + "</w>"] for word in caption.split()), end]
    return ids + [end] * (LENGTH - len(ids))


def tensors(module):
    return {k: v.detach().bfloat16().contiguous() for k, v in module.state_dict().items()}


def save(out, model, vae, shift, scale, card, empty=None):
    """`empty`: how many tokens of empty text the model has learnt to read, where that is not what is usual."""
    def config(name, value):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(json.dumps(value, indent=1) + "\n")

    config("model_index.json", {
        "_class_name": "StableDiffusion3Pipeline",
        "feature_extractor": [None, None],
        "image_encoder": [None, None],
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "CLIPTextModelWithProjection"],
        "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
        "text_encoder_3": [None, None],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "tokenizer_2": ["transformers", "CLIPTokenizer"],
        "tokenizer_3": [None, None],
        "transformer": ["diffusers", "SD3Transformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    })
    config("scheduler/scheduler_config.json", {
        "_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 1.0})
    config("transformer/config.json", model.transformer.config)
    config("vae/config.json", {**autoencoder.CONFIG, "scaling_factor": scale, "shift_factor": shift})
    for encoder, tokenizer in (("text_encoder", "tokenizer"), ("text_encoder_2", "tokenizer_2")):
        config(f"{encoder}/config.json", getattr(model, encoder).config)
        save_file(tensors(getattr(model, encoder)), out / encoder / "model.safetensors")
        config(f"{tokenizer}/vocab.json", VOCABULARY)
        (out / tokenizer / "merges.txt").write_text(
            "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in MERGES))
        roles = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>",
                 "pad_token": "<|endoftext|>"}
        config(f"{tokenizer}/tokenizer_config.json",
               {**roles, "model_max_length": LENGTH, "tokenizer_class": "CLIPTokenizer"})
        config(f"{tokenizer}/special_tokens_map.json", roles)
    save_file(tensors(model.transformer), out / "transformer/diffusion_pytorch_model.safetensors")
    save_file(tensors(vae), out / "vae/diffusion_pytorch_model.safetensors")
    config("generation_config.json", {"num_inference_steps": 20, "guidance_scale": 3.5,
                                      **({"max_sequence_length": empty} if empty else {})})
    config("captions.json", unseen_captions(500, 1))
    (out / "MODEL_CARD.md").write_text(card)


def card(facts):
    return CARD.format(words=", ".join(dict.fromkeys(WORDS)), minutes=" + ".join(map(str, facts["minutes"])),
                       **{k: facts[k] for k in ("seed", "threads")})
