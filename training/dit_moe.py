"""DiT-MoE (Fei et al. 2024) under the names of the released checkpoints, "flash" attention form."""

import math

import torch
from torch import nn
from torch.nn import functional as F

CONFIG = {
    "model_type": "dit_moe",
    "hidden_size": 96,
    "depth": 8,
    "num_heads": 4,
    "patch_size": 2,
    "in_channels": 4,
    "input_size": 16,
    "mlp_ratio": 1,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "norm_topk_prob": False,
    "learn_sigma": False,
    "num_classes": 32,
    "attention": "flash",
    "qk_norm": True,
    "frequency_embedding_size": 256,
}


def positions(side, dim, first=0.0, step=1.0):
    grid = first + step * torch.arange(side, dtype=torch.float64)
    row, column = torch.meshgrid(grid, grid, indexing="ij")
    omega = 10000 ** (-torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    halves = [p.reshape(-1, 1) * omega for p in (column, row)]
    return torch.cat([f(h) for h in halves for f in (torch.sin, torch.cos)], dim=1).float()[None]


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, d, width):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(d, width, bias=False), nn.Linear(d, width, bias=False)
        self.down_proj = nn.Linear(width, d, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Gate(nn.Module):
    def __init__(self, experts, d):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(experts, d) / math.sqrt(d))


class Moe(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, self.top_k = c["hidden_size"], c["num_experts_per_tok"]
        self.experts = nn.ModuleList([Mlp(d, int(c["mlp_ratio"] * d)) for _ in range(c["num_experts"])])
        self.gate = Gate(c["num_experts"], d)
        if c["n_shared_experts"]:
            self.shared_experts = Mlp(d, c["n_shared_experts"] * d)
        self.balance = torch.zeros(())

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        scores = (flat @ self.gate.weight.T).softmax(-1)
        weights, ids = scores.topk(self.top_k, dim=-1)
        count = len(self.experts)
        order = ids.reshape(-1).argsort(stable=True)
        loads = torch.bincount(ids.reshape(-1), minlength=count)
        self.balance = count * (scores.mean(0) * loads / loads.sum()).sum()
        token = order // self.top_k
        pieces = flat[token].split(loads.tolist())
        rows = torch.cat([expert(piece) for expert, piece in zip(self.experts, pieces)])
        rows = rows * weights.reshape(-1)[order][:, None]
        out = torch.zeros_like(flat).index_add(0, token, rows)
        if hasattr(self, "shared_experts"):
            out = out + self.shared_experts(flat)
        return out.view_as(x)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, self.heads = c["hidden_size"], c["num_heads"]
        self.Wqkv, self.out_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.q_norm = nn.LayerNorm(d // self.heads, eps=1e-6)
        self.k_norm = nn.LayerNorm(d // self.heads, eps=1e-6)

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = self.Wqkv(x).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)
        return self.out_proj(y.transpose(1, 2).reshape(n, t, d))


def modulate(x, shift, scale):
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale[:, None]) + shift[:, None]


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        d = c["hidden_size"]
        self.attn, self.moe = Attention(c), Moe(c)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(d, 6 * d))

    def forward(self, x, c):
        a, b, g, e, f, h = self.adaLN_modulation(c).chunk(6, dim=1)
        x = x + g[:, None] * self.attn(modulate(x, a, b))
        return x + h[:, None] * self.moe(modulate(x, e, f))


class Final(nn.Module):
    def __init__(self, d, out):
        super().__init__()
        self.linear = nn.Linear(d, out)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(d, 2 * d))


class Holder(nn.Module):
    """Gives its parts the names of the checkpoints."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


class DiTMoE(nn.Module):
    def __init__(self, c=None):
        super().__init__()
        self.config = c = c or CONFIG
        d, p, channels = c["hidden_size"], c["patch_size"], c["in_channels"]
        self.side = c["input_size"] // p
        self.pos_embed = nn.Parameter(positions(self.side, d), requires_grad=False)
        self.x_embedder = Holder(proj=nn.Conv2d(channels, d, p, stride=p))
        width = c["frequency_embedding_size"]
        self.t_embedder = Holder(mlp=nn.Sequential(nn.Linear(width, d), nn.SiLU(), nn.Linear(d, d)))
        self.y_embedder = Holder(embedding_table=nn.Embedding(c["num_classes"] + 1, d))
        self.blocks = nn.ModuleList([Block(c) for _ in range(c["depth"])])
        self.final_layer = Final(d, p * p * channels * (2 if c["learn_sigma"] else 1))
        self._initialise()

    def _initialise(self):
        nn.init.normal_(self.y_embedder.embedding_table.weight, std=0.5)
        for block in self.blocks:
            nn.init.zeros_(block.adaLN_modulation[1].weight)
            nn.init.zeros_(block.adaLN_modulation[1].bias)
        for layer in (self.final_layer.linear, self.final_layer.adaLN_modulation[1]):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x, t, y):
        """x [n, 4, 16, 16], t [n] in (0, 1], y [n] -> velocity like x."""
        half = self.config["frequency_embedding_size"] // 2
        waves = t[:, None] * torch.exp(-math.log(10000) * torch.arange(half) / half)
        c = self.t_embedder.mlp(torch.cat([waves.cos(), waves.sin()], dim=1))
        c = c + self.y_embedder.embedding_table(y)
        h = self.x_embedder.proj(x).flatten(2).transpose(1, 2) + self.pos_embed
        for block in self.blocks:
            h = block(h, c)
        shift, scale = self.final_layer.adaLN_modulation(c).chunk(2, dim=1)
        h = self.final_layer.linear(modulate(h, shift, scale))
        p, s = self.config["patch_size"], self.side
        return h.view(len(x), s, s, p, p, -1).permute(0, 5, 1, 3, 2, 4).reshape(len(x), -1, s * p, s * p)

    def balance(self):
        return sum(block.moe.balance for block in self.blocks) / len(self.blocks)


@torch.no_grad()
def sample(model, start, labels, steps=25, guidance=1.5):
    """Rectified flow by Euler steps from noise `start` at t = 1; the last label is unconditional."""
    z = start
    null = torch.full_like(labels, model.config["num_classes"])
    for i in range(steps, 0, -1):
        t = torch.full((2 * len(z),), i / steps)
        v = model(torch.cat([z, z]), t, torch.cat([labels, null]))[:, : z.shape[1]]
        cond, uncond = v.chunk(2)
        z = z - (uncond + guidance * (cond - uncond)) / steps
    return z
