"""Muon (Jordan et al. 2024): momentum made orthogonal for matrices, Adam for everything else."""

import torch


@torch.no_grad()
def orthogonal(matrices):
    """Newton-Schulz iteration on [n, rows, columns]: singular values near 1."""
    wide = matrices.transpose(1, 2) if matrices.shape[1] > matrices.shape[2] else matrices
    x = wide / (wide.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.transpose(1, 2) if wide is not matrices else x


class Muon(torch.optim.Optimizer):
    """The matrices of the blocks of a model by Muon (of a tensor [n, rows, columns] each of the n),
    its other parameters by Adam. `blocks` is part of the names of the blocks' parameters."""

    def __init__(self, model, lr=0.012, adam_lr=1.5e-3, blocks="blocks."):
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        outside = ("gate.weight", "scale_shift_table")
        inner = [p for name, p in named if blocks in name and p.ndim >= 2 and not name.endswith(outside)]
        chosen = {id(p) for p in inner}
        outer = [p for _, p in named if id(p) not in chosen]
        super().__init__([{"params": inner, "lr": lr}], {})
        self.adam = torch.optim.Adam(outer, lr=adam_lr, betas=(0.9, 0.98))
        self.param_groups.append(self.adam.param_groups[0])
        self.by_shape = {}
        for p in inner:
            self.by_shape.setdefault(p.shape, []).append(p)
        self.momentum = {shape: torch.zeros(len(ps), *shape) for shape, ps in self.by_shape.items()}

    @torch.no_grad()
    def step(self):
        self.adam.step()
        lr = self.param_groups[0]["lr"]
        for shape, ps in self.by_shape.items():
            gradient = torch.stack([torch.zeros_like(p) if p.grad is None else p.grad for p in ps])
            momentum = self.momentum[shape].lerp_(gradient, 0.05)
            update = orthogonal(gradient.lerp(momentum, 0.95).flatten(0, -3)).view_as(gradient)
            update *= max(1, shape[-2] / shape[-1]) ** 0.5
            for p, change in zip(ps, update):
                p.mul_(1 - 0.01 * lr).sub_(lr * change)

    def kept(self):
        """What a later run goes on from, beside the weights."""
        return {"adam": self.adam.state_dict()["state"], "momentum": list(self.momentum.values())}

    def take(self, kept):
        groups = self.adam.state_dict()["param_groups"]
        self.adam.load_state_dict({"state": kept["adam"], "param_groups": groups})
        self.param_groups[1] = self.adam.param_groups[0]
        self.momentum = dict(zip(self.momentum, kept["momentum"]))
