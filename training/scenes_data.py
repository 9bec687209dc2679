"""Procedural images of two or three coloured shapes in a stated relation, and their captions."""

import random
import zlib

import torch

SHAPES = ["circle", "square", "triangle", "cross"]
COLOURS = {
    "red": (0.88, 0.12, 0.12),
    "green": (0.10, 0.68, 0.20),
    "blue": (0.14, 0.26, 0.90),
    "yellow": (0.96, 0.84, 0.10),
    "black": (0.05, 0.05, 0.05),
}
RELATIONS = {"left of": (-1, 0), "right of": (1, 0), "above": (0, -1), "below": (0, 1)}
SIZE = 128


def caption_of(things, relations):
    """[("red", "circle"), ("blue", "square")], ["left of"] -> "a red circle left of a blue square"."""
    names = [f"a {colour} {shape}" for colour, shape in things]
    return " ".join(part for pair in zip(names, relations + [""]) for part in pair if part)


def held_out(caption):
    """One caption in ten is never trained on."""
    return zlib.crc32(caption.encode()) % 10 == 0


def random_scene(rng):
    """Things of different colours, and the relation of each to the next; three stand in a line or around a corner."""
    count = rng.choice((2, 3))
    things = [(colour, rng.choice(SHAPES)) for colour in rng.sample(list(COLOURS), count)]
    first = rng.choice(list(RELATIONS))
    relations = [first]
    if count == 3:
        across = [r for r in RELATIONS if RELATIONS[r][0] * RELATIONS[first][0] + RELATIONS[r][1] * RELATIONS[first][1] == 0]
        relations.append(rng.choice([first, *across]))
    return things, relations


def scene(rng, unseen=False):
    while True:
        things, relations = random_scene(rng)
        if held_out(caption_of(things, relations)) == unseen:
            return things, relations


def places(relations, rng):
    """Middles of the things in [-1, 1], and a size for them: a step apart as the relations ask, jittered."""
    spots = [(0.0, 0.0)]
    for relation in relations:  # it says where the last thing lies, seen from the next
        dx, dy = RELATIONS[relation]
        spots.append((spots[-1][0] - dx, spots[-1][1] - dy))
    low, high = ([f(axis) for axis in zip(*spots)] for f in (min, max))
    line = max(b - a for a, b in zip(low, high)) == 2  # three in a line have no room to move
    step, jitter = (0.66, 0.03) if line else (rng.uniform(0.75, 0.95), 0.07)
    sway = [rng.uniform(-0.1, 0.1) if b - a < 2 else 0.0 for a, b in zip(low, high)]
    middles = [
        tuple((v - (a + b) / 2) * step + s + rng.uniform(-jitter, jitter) for v, a, b, s in zip(spot, low, high, sway))
        for spot in spots
    ]
    return middles, (0.21, 0.25) if line else (0.23, 0.29)


def _distance(shape, x, y):
    """Signed, in units of the shape's size."""
    if shape == "circle":
        return torch.sqrt(x * x + y * y) - 1
    if shape == "square":
        return torch.maximum(x.abs(), y.abs()) - 0.9
    if shape == "triangle":  # stands on its base
        return torch.maximum(y - 0.9, (x.abs() * 1.8 - y - 0.9) / 2.06)
    wide, narrow = 1.0, 0.34
    bars = [torch.maximum(x.abs() - w, y.abs() - h) for w, h in ((wide, narrow), (narrow, wide))]
    return torch.minimum(*bars)


def draw(scenes, rng):
    """Scenes -> images [n, 3, 128, 128] in [0, 1]; places, sizes and the ground vary."""
    axis = (torch.arange(SIZE) + 0.5) / SIZE * 2 - 1
    images = []
    for things, relations in scenes:
        ground = rng.uniform(0.72, 0.92)
        image = torch.full((3, SIZE, SIZE), ground)
        middles, sizes = places(relations, rng)
        for (colour, shape), (cx, cy) in zip(things, middles):
            size = rng.uniform(*sizes)
            distance = _distance(shape, (axis[None, :] - cx) / size, (axis[:, None] - cy) / size)
            mask = (0.5 - distance * size * SIZE / 2).clamp(0, 1)
            tint = torch.tensor([c + rng.uniform(-0.03, 0.03) for c in COLOURS[colour]]).clamp(0, 1)
            image += mask * (tint[:, None, None] - image)
        images.append(image)
    return torch.stack(images)


def unseen_captions(count, seed):
    """Different captions of the held-out tenth."""
    rng, found = random.Random(seed), {}
    while len(found) < count:
        found.setdefault(caption_of(*scene(rng, unseen=True)))
    return list(found)
