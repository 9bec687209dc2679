"""A small AutoencoderKL with the module names of diffusers, so that its folder loads there too."""

import torch
from torch import nn
from torch.nn import functional as F

CONFIG = {
    "_class_name": "AutoencoderKL",
    "act_fn": "silu",
    "block_out_channels": [8, 16, 32, 64],
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
    "in_channels": 3,
    "out_channels": 3,
    "latent_channels": 4,
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "sample_size": 128,
    "scaling_factor": 1.0,
}
GROUPS = CONFIG["norm_num_groups"]


class Resnet(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(GROUPS, i, eps=1e-6), nn.Conv2d(i, o, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(GROUPS, o, eps=1e-6), nn.Conv2d(o, o, 3, padding=1)
        if i != o:
            self.conv_shortcut = nn.Conv2d(i, o, 1)

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.conv2(F.silu(self.norm2(h)))
        return (self.conv_shortcut(x) if hasattr(self, "conv_shortcut") else x) + h


class SelfAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.group_norm = nn.GroupNorm(GROUPS, c, eps=1e-6)
        self.to_q, self.to_k, self.to_v = nn.Linear(c, c), nn.Linear(c, c), nn.Linear(c, c)
        self.to_out = nn.ModuleList([nn.Linear(c, c)])

    def forward(self, x):
        n, c, h, w = x.shape
        t = self.group_norm(x).flatten(2).transpose(1, 2)
        t = F.scaled_dot_product_attention(*(f(t)[:, None] for f in (self.to_q, self.to_k, self.to_v)))
        return x + self.to_out[0](t[:, 0]).transpose(1, 2).reshape(n, c, h, w)


class Middle(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.resnets = nn.ModuleList([Resnet(c, c), Resnet(c, c)])
        self.attentions = nn.ModuleList([SelfAttention(c)])

    def forward(self, x):
        return self.resnets[1](self.attentions[0](self.resnets[0](x)))


class Sampling(nn.Module):
    """A convolution under the name that diffusers gives its up- and down-samplers."""

    def __init__(self, c, down):
        super().__init__()
        self.down = down
        self.conv = nn.Conv2d(c, c, 3, stride=2) if down else nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        x = F.pad(x, (0, 1, 0, 1)) if self.down else F.interpolate(x, scale_factor=2)
        return self.conv(x)


class Level(nn.Module):
    def __init__(self, i, o, layers, kind):
        super().__init__()
        self.resnets = nn.ModuleList([Resnet(i if n == 0 else o, o) for n in range(layers)])
        if kind:
            setattr(self, f"{kind}samplers", nn.ModuleList([Sampling(o, kind == "down")]))

    def forward(self, x):
        for resnet in self.resnets:
            x = resnet(x)
        for sampler in getattr(self, "downsamplers", []) or getattr(self, "upsamplers", []):
            x = sampler(x)
        return x


class Encoder(nn.Module):
    def __init__(self, widths, layers, latent):
        super().__init__()
        self.conv_in = nn.Conv2d(3, widths[0], 3, padding=1)
        pairs = zip([widths[0]] + widths[:-1], widths)
        self.down_blocks = nn.ModuleList(
            [Level(i, o, layers, "down" if n + 1 < len(widths) else "") for n, (i, o) in enumerate(pairs)]
        )
        self.mid_block = Middle(widths[-1])
        self.conv_norm_out = nn.GroupNorm(GROUPS, widths[-1], eps=1e-6)
        self.conv_out = nn.Conv2d(widths[-1], 2 * latent, 3, padding=1)

    def forward(self, x):
        x = self.conv_in(x)
        for block in self.down_blocks:
            x = block(x)
        return self.conv_out(F.silu(self.conv_norm_out(self.mid_block(x))))


class Decoder(nn.Module):
    def __init__(self, widths, layers, latent):
        super().__init__()
        back = widths[::-1]
        self.conv_in = nn.Conv2d(latent, back[0], 3, padding=1)
        self.mid_block = Middle(back[0])
        pairs = zip([back[0]] + back[:-1], back)
        self.up_blocks = nn.ModuleList(
            [Level(i, o, layers + 1, "up" if n + 1 < len(back) else "") for n, (i, o) in enumerate(pairs)]
        )
        self.conv_norm_out = nn.GroupNorm(GROUPS, back[-1], eps=1e-6)
        self.conv_out = nn.Conv2d(back[-1], 3, 3, padding=1)

    def forward(self, x):
        x = self.mid_block(self.conv_in(x))
        for block in self.up_blocks:
            x = block(x)
        return self.conv_out(F.silu(self.conv_norm_out(x)))


class AutoencoderKL(nn.Module):
    def __init__(self):
        super().__init__()
        widths, latent = CONFIG["block_out_channels"], CONFIG["latent_channels"]
        layers = CONFIG["layers_per_block"]
        self.encoder = Encoder(widths, layers, latent)
        self.decoder = Decoder(widths, layers, latent)
        self.quant_conv = nn.Conv2d(2 * latent, 2 * latent, 1)
        self.post_quant_conv = nn.Conv2d(latent, latent, 1)

    def encode(self, images):
        """[n, 3, 128, 128] in [0, 1] -> mean and log variance of the latents [n, 4, 16, 16]."""
        mean, log_variance = self.quant_conv(self.encoder(images * 2 - 1)).chunk(2, dim=1)
        return mean, log_variance.clamp(-30, 20)

    def decode(self, latents):
        """[n, 4, 16, 16] -> images in [-1, 1]."""
        return self.decoder(self.post_quant_conv(latents))


def loss(model, images, generator):
    mean, log_variance = model.encode(images)
    noise = torch.randn(mean.shape, generator=generator)
    z = mean + (0.5 * log_variance).exp() * noise
    error = model.decode(z) - (images * 2 - 1)
    kl = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).mean()
    return error.abs().mean() + 2 * (error**2).mean() + 1e-4 * kl
