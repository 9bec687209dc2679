"""Procedural images of one coloured shape on a plain background, drawn from signed distances."""

import math

import torch

SHAPES = ["circle", "square", "triangle", "star", "ring", "cross", "crescent", "bar"]
COLOURS = {
    "red": (0.88, 0.12, 0.12),
    "green": (0.10, 0.68, 0.20),
    "blue": (0.14, 0.26, 0.90),
    "yellow": (0.96, 0.84, 0.10),
}
CLASSES = [f"{colour} {shape}" for shape in SHAPES for colour in COLOURS]
SIZE = 128


def _box(x, y, w, h):
    dx, dy = x.abs() - w, y.abs() - h
    outside = torch.sqrt(dx.clamp(min=0) ** 2 + dy.clamp(min=0) ** 2)
    return outside + torch.maximum(dx, dy).clamp(max=0)


def _polygon(x, y, angles, radii):
    """Distance to a star-shaped polygon around the origin: the largest or smallest half plane."""
    points = [(r * math.sin(a), -r * math.cos(a)) for a, r in zip(angles, radii)]
    best = torch.full_like(x, 1e9)
    inside = torch.zeros_like(x, dtype=torch.bool)
    for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1]):
        ex, ey = bx - ax, by - ay
        t = (((x - ax) * ex + (y - ay) * ey) / (ex * ex + ey * ey)).clamp(0, 1)
        best = torch.minimum(best, (x - ax - t * ex) ** 2 + (y - ay - t * ey) ** 2)
        crosses = ((ay > y) != (by > y)) & (x < (bx - ax) * (y - ay) / (by - ay + 1e-12) + ax)
        inside ^= crosses
    return torch.where(inside, -1.0, 1.0) * best.sqrt()


def _distance(shape, x, y):
    r = torch.sqrt(x * x + y * y)
    turn = 2 * math.pi
    if shape == "circle":
        return r - 0.9
    if shape == "square":
        return _box(x, y, 0.78, 0.78)
    if shape == "triangle":
        return _polygon(x, y, [i * turn / 3 for i in range(3)], [1.1] * 3)
    if shape == "star":
        return _polygon(x, y, [i * turn / 10 for i in range(10)], [1.1, 0.45] * 5)
    if shape == "ring":
        return (r - 0.72).abs() - 0.22
    if shape == "cross":
        return torch.minimum(_box(x, y, 1.0, 0.28), _box(x, y, 0.28, 1.0))
    if shape == "crescent":
        return torch.maximum(r - 0.95, 0.75 - torch.sqrt((x - 0.5) ** 2 + y * y))
    return _box(x, y, 1.05, 0.26)


def draw(labels, generator):
    """labels [n] -> images [n, 3, 128, 128] in [0, 1]; place, size, rotation and ground vary."""
    n = len(labels)

    def uniform(low, high, *shape):
        return low + (high - low) * torch.rand(n, *shape, generator=generator)

    axis = (torch.arange(SIZE) + 0.5) / SIZE * 2 - 1
    size = uniform(0.30, 0.52)
    reach = 0.95 - size * 1.1
    cx, cy = uniform(-1, 1) * reach, uniform(-1, 1) * reach
    angle = uniform(-0.5, 0.5)
    dx = (axis[None, None, :] - cx[:, None, None]) / size[:, None, None]
    dy = (axis[None, :, None] - cy[:, None, None]) / size[:, None, None]
    cos, sin = angle.cos()[:, None, None], angle.sin()[:, None, None]
    x, y = cos * dx + sin * dy, cos * dy - sin * dx
    names = [CLASSES[int(i)].split() for i in labels]
    distance = torch.empty(n, SIZE, SIZE)
    for shape in SHAPES:
        chosen = torch.tensor([name[1] == shape for name in names])
        if chosen.any():
            distance[chosen] = _distance(shape, x[chosen], y[chosen])
    mask = (0.5 - distance * size[:, None, None] * SIZE / 2).clamp(0, 1)[:, None]
    colour = torch.tensor([COLOURS[name[0]] for name in names])[:, :, None, None]
    colour = (colour + uniform(-0.06, 0.06, 3, 1, 1)).clamp(0, 1)
    grey = uniform(0.05, 0.95, 1, 1, 1)
    ground = grey + uniform(-0.06, 0.06, 3, 1, 1)
    slope = uniform(-0.08, 0.08, 2, 1, 1)
    ground = ground + slope[:, :1] * axis[None, None, None, :] + slope[:, 1:] * axis[None, None, :, None]
    return mask * colour + (1 - mask) * ground.clamp(0, 1)


def random_labels(n, generator):
    return torch.randint(0, len(CLASSES), (n,), generator=generator)
