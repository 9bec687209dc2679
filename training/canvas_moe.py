"""DiffusionGemma (Google 2026), small: text is encoded causally, a canvas of tokens is denoised over it."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tasks_data import END, VOCABULARY
from token_moe import Mlp, Moe, rotate

DIFFUSION_GEMMA = {
    "model_type": "diffusion_gemma",
    "architectures": ["DiffusionGemmaForBlockDiffusion"],
    "canvas_length": 32,
    "tie_word_embeddings": True,
    "eos_token_id": [END],
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "diffusion_gemma_text",
        "vocab_size": VOCABULARY,
        "hidden_size": 128,
        "intermediate_size": 96,
        "moe_intermediate_size": 8,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "num_global_key_value_heads": 1,
        "global_head_dim": 64,
        "num_experts": 64,
        "top_k_experts": 8,
        "sliding_window": 48,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25},
        },
        "hidden_activation": "gelu_pytorch_tanh",
        "final_logit_softcapping": 30.0,
        "rms_norm_eps": 1e-6,
        "attention_bias": False,
        "max_position_embeddings": 512,
        "use_bidirectional_attention": "vision",
    },
}
NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm_1",
         "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2", "post_feedforward_layernorm")


def gelu(x):
    return F.gelu(x, approximate="tanh")


class Gate(nn.Module):
    """Router on the bare residual, with a scale for each channel and each expert."""

    def __init__(self, c):
        super().__init__()
        d, self.k, self.eps = c["hidden_size"], c["top_k_experts"], c["rms_norm_eps"]
        self.weight = nn.Parameter(torch.randn(c["num_experts"], d) / math.sqrt(d))
        self.scale = nn.Parameter(torch.full((d,), math.sqrt(d)))
        self.per_expert_scale = nn.Parameter(torch.ones(c["num_experts"]))

    def forward(self, x):
        """Scores of all experts; ids and weights of the chosen."""
        seen = F.rms_norm(x, x.shape[-1:], self.scale / math.sqrt(x.shape[-1]), self.eps)
        scores = (seen @ self.weight.T).softmax(-1)
        weights, ids = scores.topk(self.k, dim=-1)
        return scores, ids, weights / weights.sum(-1, keepdim=True) * self.per_expert_scale[ids]


class Block(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        d, self.eps = c["hidden_size"], c["rms_norm_eps"]
        self.window = c["sliding_window"] if c["layer_types"][index] == "sliding_attention" else 0
        self.heads = c["num_attention_heads"]
        self.kv, self.size = ((c["num_key_value_heads"], c["head_dim"]) if self.window else
                              (c["num_global_key_value_heads"], c["global_head_dim"]))
        rope = c["rope_parameters"][c["layer_types"][index]]
        self.pairs = int(rope.get("partial_rotary_factor", 1) * self.size / 2)
        self.theta = rope["rope_theta"]
        self.norms = nn.ParameterDict({name: nn.Parameter(torch.ones(d)) for name in NORMS})
        self.q_norm = nn.Parameter(torch.full((self.size,), self.size**-0.25))
        self.k_norm = nn.Parameter(torch.full((self.size,), self.size**-0.25))
        linear = lambda out, inner: nn.Linear(inner, out, bias=False)
        self.q, self.k = linear(self.heads * self.size, d), linear(self.kv * self.size, d)
        self.v = linear(self.kv * self.size, d) if self.window else None
        self.o = linear(d, self.heads * self.size)
        self.mlp = Mlp(d, c["intermediate_size"], gelu)
        self.moe = Moe({**c, "num_experts_per_tok": c["top_k_experts"]}, Gate(c), gelu)
        self.text_scalar, self.canvas_scalar = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

    def norm(self, x, weight=None):
        return F.rms_norm(x, x.shape[-1:], weight, self.eps)

    def attend(self, y, places, visible):
        """y [n, tokens, d], places [n, tokens], visible [n, 1, tokens, tokens]."""
        n, t, _ = y.shape
        frequency = self.theta ** (-2 * torch.arange(self.size // 2) / self.size)
        frequency[self.pairs:] = 0
        angles = places[:, None, :, None] * frequency
        split = lambda z, heads: z.view(n, t, heads, self.size).transpose(1, 2)
        bare = split(self.k(y), self.kv)
        q = rotate(self.norm(split(self.q(y), self.heads), self.q_norm), angles)
        k = rotate(self.norm(bare, self.k_norm), angles)
        v = self.norm(split(self.v(y), self.kv) if self.window else bare)
        k, v = (z.repeat_interleave(self.heads // self.kv, 1) for z in (k, v))
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=1)
        return self.o(a.transpose(1, 2).reshape(n, t, -1))

    def forward(self, x, places, visible, is_text, real):
        """real [n, tokens]: tokens that exist."""
        of = self.norms
        x = x + self.norm(self.attend(self.norm(x, of["input_layernorm"]), places, visible),
                          of["post_attention_layernorm"])
        dense = self.norm(self.mlp(self.norm(x, of["pre_feedforward_layernorm"])), of["post_feedforward_layernorm_1"])
        rows = x[real]
        made = torch.zeros_like(x)
        made[real] = self.moe(self.norm(rows, of["pre_feedforward_layernorm_2"]), rows)
        moe = self.norm(made, of["post_feedforward_layernorm_2"])
        x = x + self.norm(dense + moe, of["post_feedforward_layernorm"])
        return x * torch.where(is_text[None, :, None], self.text_scalar, self.canvas_scalar)


class CanvasMoe(nn.Module):
    def __init__(self, config=DIFFUSION_GEMMA):
        super().__init__()
        self.config, self.canvas = config, config["canvas_length"]
        self.c = c = config["text_config"]
        d = c["hidden_size"]
        self.embedding = nn.Embedding(c["vocab_size"], d)
        self.conditioning_norm = nn.Parameter(torch.ones(d))
        self.conditioning = Mlp(d, c["intermediate_size"], gelu)
        self.blocks = nn.ModuleList([Block(c, i) for i in range(c["num_hidden_layers"])])
        self.norm = nn.Parameter(torch.ones(d))
        nn.init.normal_(self.embedding.weight, std=d**-0.5)

    def moes(self):
        return [b.moe for b in self.blocks]

    def visible(self, lengths, tokens, window):
        """Masks of `tokens` columns of text, the first lengths[i] real, and a canvas behind: [n, 1, all, all]."""
        place = torch.arange(tokens)
        text = (place[None, :] <= place[:, None])[None] & (place < lengths[:, None])[:, None]
        kept = (place < lengths[:, None])
        if window:
            text = text & (place[None, :] > place[:, None] - window)
            kept = kept & (place > lengths[:, None] - window)
        n, c = len(lengths), self.canvas
        text = text | torch.eye(tokens, dtype=torch.bool)  # rows that do not exist see themselves
        above = torch.cat([text, torch.zeros(n, tokens, c, dtype=torch.bool)], 2)
        below = torch.cat([kept[:, None].expand(n, c, tokens), torch.ones(n, c, c, dtype=torch.bool)], 2)
        return torch.cat([above, below], 1)[:, None]

    def forward(self, text, lengths, canvas, earlier=None):
        """text [n, tokens], of row i the first lengths[i] exist; canvas [n, C]; earlier: scaled logits of the pass
        before -> logits [n, C, vocabulary]."""
        (n, t), d, eps = text.shape, self.c["hidden_size"], self.c["rms_norm_eps"]
        root = math.sqrt(d)
        y = self.embedding(canvas) * root
        if earlier is not None:
            seen = earlier.softmax(-1) @ self.embedding.weight * root
            y = y + self.conditioning(F.rms_norm(seen, (d,), self.conditioning_norm, eps))
        x = torch.cat([self.embedding(text) * root, F.rms_norm(y, (d,), eps=eps)], 1)
        places = torch.cat([torch.arange(t).expand(n, t), lengths[:, None] + torch.arange(self.canvas)], 1)
        is_text = torch.arange(t + self.canvas) < t
        real = torch.cat([torch.arange(t) < lengths[:, None], torch.ones(n, self.canvas, dtype=torch.bool)], 1)
        masks = {w: self.visible(lengths, t, w) for w in (0, self.c["sliding_window"])}
        for block in self.blocks:
            x = block(x, places, masks[block.window], is_text, real)
        cap = self.c["final_logit_softcapping"]
        return cap * torch.tanh(F.rms_norm(x[:, t:], (d,), self.norm, eps) @ self.embedding.weight.T / cap)


def checkpoint(model):
    """The tensors under the names of the released checkpoint."""
    at = "model.decoder."
    out = {at + "embed_tokens.weight": model.embedding.weight, at + "norm.weight": model.norm,
           at + "self_conditioning.pre_norm.weight": model.conditioning_norm}
    out.update({f"{at}self_conditioning.{k}": v for k, v in model.conditioning.state_dict().items()})
    for i, b in enumerate(model.blocks):
        at = f"model.decoder.layers.{i}."
        out.update({f"{at}{name}.weight": w for name, w in b.norms.items()})
        for name in "qkvo":
            if getattr(b, name) is not None:
                out[f"{at}self_attn.{name}_proj.weight"] = getattr(b, name).weight
        out[at + "self_attn.q_norm.weight"], out[at + "self_attn.k_norm.weight"] = b.q_norm, b.k_norm
        out.update({f"{at}mlp.{k}": v for k, v in b.mlp.state_dict().items()})
        gate = b.moe.gate
        out[at + "router.proj.weight"], out[at + "router.scale"] = gate.weight, gate.scale
        out[at + "router.per_expert_scale"] = gate.per_expert_scale
        out[at + "experts.gate_up_proj"] = torch.cat([b.moe.gate_proj, b.moe.up_proj], 1)
        out[at + "experts.down_proj"] = b.moe.down_proj
        out[at + "layer_scalar"] = b.canvas_scalar
        out[f"model.encoder.language_model.layers.{i}.layer_scalar"] = b.text_scalar
    return {k: v.detach().bfloat16().contiguous() for k, v in out.items()}
