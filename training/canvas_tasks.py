"""Tasks as canvases: noise for training, and the entropy-bound sampler for measurements."""

import torch
from torch.nn import functional as F

from tasks_data import END, VOCABULARY, ids_of, text_of

SAMPLER = {"max_new_tokens": 64, "max_denoising_steps": 32, "t_max": 0.8, "t_min": 0.4, "stability_threshold": 1,
           "confidence_threshold": 0.005, "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig",
                                                             "entropy_bound": 0.1}}


def rows_of(pairs, size, draw):
    """Text, its lengths, the canvas behind it, and how many of its tokens are the answer's or its end."""
    rows = []
    for prompt, answer in pairs:
        tail = ids_of(answer) + [END]
        begin = size * draw.randrange(-(-len(tail) // size))
        canvas = tail[begin : begin + size]
        rows.append((ids_of(prompt) + tail[:begin], canvas + [END] * (size - len(canvas)), len(canvas)))
    lengths = torch.tensor([len(text) for text, _, _ in rows])
    text = torch.full((len(rows), int(lengths.max())), END)
    for i, (ids, _, _) in enumerate(rows):
        text[i, : len(ids)] = torch.tensor(ids)
    return text, lengths, torch.tensor([c for _, c, _ in rows]), torch.tensor([m for _, _, m in rows])


def loss(model, pairs, draw, generator):
    """Sum of weighted cross entropies, and of weights."""
    text, lengths, clean, meant = rows_of(pairs, model.canvas, draw)
    n = len(clean)
    uniform = lambda *shape: torch.rand(*shape, generator=generator)
    noise = lambda: torch.randint(VOCABULARY, clean.shape, generator=generator)
    share = (1.15 * uniform(n, 1)).clamp(max=1)
    rank = uniform(*clean.shape)
    canvas = torch.where(rank < share, noise(), clean)
    earlier = None
    if draw.random() < 0.5:
        noisier = torch.where(rank < share + (1 - share) * uniform(n, 1), noise(), clean)
        with torch.no_grad():
            earlier = model(text, lengths, noisier) / (0.4 + 0.4 * uniform(n, 1, 1))
    logits = model(text, lengths, canvas, earlier)
    weight = torch.where(torch.arange(model.canvas) < meant[:, None], 1.0, 0.1)
    entropy = F.cross_entropy(logits.transpose(1, 2), clean, reduction="none")
    return (entropy * weight).sum(), weight.sum()


def accepted(entropy, bound):
    """The surest positions, as long as the entropies before each sum to no more than `bound`."""
    order = entropy.argsort(dim=-1, stable=True)
    ranked = entropy.gather(1, order)
    return torch.zeros_like(entropy, dtype=torch.bool).scatter(1, order, ranked.cumsum(1) - ranked <= bound)


@torch.no_grad()
def denoise(model, text, lengths, generator):
    """One canvas behind each text."""
    s = SAMPLER
    n, steps = len(text), s["max_denoising_steps"]
    noise = lambda: torch.randint(VOCABULARY, (n, model.canvas), generator=generator)
    canvas, earlier, best = noise(), None, None
    done = torch.zeros(n, dtype=torch.bool)
    out = canvas.clone()
    for step in range(steps):
        scaled = model(text, lengths, canvas, earlier) / (s["t_min"] + (s["t_max"] - s["t_min"]) * (steps - step) / steps)
        p = scaled.softmax(-1)
        entropy = -(p * scaled.log_softmax(-1)).sum(-1)
        before, best = best, scaled.argmax(-1)
        out = torch.where(done[:, None], out, best)
        if before is not None:
            done |= (best == before).all(1) & (entropy.mean(1) < s["confidence_threshold"])
        if done.all():
            break
        drawn = torch.multinomial(p.flatten(0, 1), 1, generator=generator).view(n, -1)
        canvas = torch.where(accepted(entropy, s["sampler_config"]["entropy_bound"]), drawn, noise())
        earlier = scaled
    return out


def decode(model, prompts, area):
    """Answers to prompts of one length."""
    generator = torch.Generator().manual_seed(1)
    text = torch.tensor(prompts)
    start = text.shape[1]
    for _ in range(-(-area // model.canvas)):
        lengths = torch.full((len(text),), text.shape[1])
        text = torch.cat([text, denoise(model, text, lengths, generator)], 1)
    return [text_of(row[start:].tolist()) for row in text]
