"""LLaDA-MoE and LLaDA2 networks (Zhu et al. 2025, Ant 2025), small; experts of a layer in one tensor."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tasks_data import END, MASK, VOCABULARY

COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "mask_token_id": MASK,
    "eos_token_id": END,
    "pad_token_id": END,
}
LLADA_MOE = {
    "model_type": "llada",
    "architectures": ["LLaDAMoEModelLM"],
    **COMMON,
    "expert_intermediate_size": 16,
    "moe_layer_freq": [1, 1, 1, 1],
    "norm_topk_prob": False,
    "qk_layernorm": True,
    "moe_router_score_function": "softmax",
    "routed_scaling_factor": 1,
}
LLADA2 = {
    "model_type": "llada2_moe",
    "architectures": ["LLaDA2MoeModelLM"],
    **COMMON,
    "intermediate_size": 256,
    "num_key_value_heads": 2,
    "moe_intermediate_size": 16,
    "num_shared_experts": 1,
    "moe_shared_expert_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "partial_rotary_factor": 0.5,
    "use_qk_norm": True,
    "use_qkv_bias": False,
    "use_bias": False,
    "n_group": 8,
    "topk_group": 4,
    "norm_topk_prob": True,
    "score_function": "sigmoid",
    "moe_router_enable_expert_bias": True,
    "routed_scaling_factor": 2.5,
    "block_length": 32,
}


class Dispatch(torch.autograd.Function):
    """Rows of the tokens in the order of the experts; token_of [slots], slot_of [tokens, k]."""

    @staticmethod
    def forward(ctx, x, token_of, slot_of):
        ctx.save_for_backward(slot_of)
        return x.index_select(0, token_of)

    @staticmethod
    def backward(ctx, g):
        return F.embedding_bag(ctx.saved_tensors[0], g.contiguous(), mode="sum"), None, None


class Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, token_of, slot_of):
        ctx.save_for_backward(token_of)
        return F.embedding_bag(slot_of, rows, mode="sum")

    @staticmethod
    def backward(ctx, g):
        return g.index_select(0, ctx.saved_tensors[0]), None, None


class Mlp(nn.Module):
    """SwiGLU, or the same with another activation."""

    def __init__(self, d, width, activation=F.silu):
        super().__init__()
        self.activation = activation
        self.gate_proj, self.up_proj = nn.Linear(d, width, bias=False), nn.Linear(d, width, bias=False)
        self.down_proj = nn.Linear(width, d, bias=False)

    def forward(self, x):
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class Gate(nn.Module):
    def __init__(self, c):
        super().__init__()
        experts, d = c["num_experts"], c["hidden_size"]
        self.c = c
        self.weight = nn.Parameter(torch.randn(experts, d) / math.sqrt(d))
        self.sigmoid = c.get("score_function") == "sigmoid"
        if self.sigmoid:
            self.register_buffer("expert_bias", torch.zeros(experts))

    def forward(self, x):
        """Scores of all experts; ids and weights of the chosen."""
        c, k = self.c, self.c["num_experts_per_tok"]
        logits = x @ self.weight.T
        if not self.sigmoid:
            scores = logits.softmax(-1)
            weights, ids = scores.topk(k, dim=-1)
            return scores, ids, weights
        scores = logits.sigmoid()
        rank = scores.detach() + self.expert_bias
        groups = rank.view(len(x), c["n_group"], -1)
        best = groups.topk(2, dim=-1)[0].sum(-1).topk(c["topk_group"], dim=-1)[1]
        closed = torch.ones(len(x), c["n_group"], dtype=torch.bool).scatter(1, best, False)
        ids = groups.masked_fill(closed[..., None], -math.inf).flatten(1).topk(k, dim=-1)[1]
        weights = scores.gather(1, ids)
        return scores, ids, weights / (weights.sum(-1, keepdim=True) + 1e-20) * c["routed_scaling_factor"]


class Moe(nn.Module):
    def __init__(self, c, gate=None, activation=F.silu):
        super().__init__()
        d, count = c["hidden_size"], c["num_experts"]
        width = c.get("expert_intermediate_size") or c["moe_intermediate_size"]
        self.gate, self.activation = gate or Gate(c), activation
        self.gate_proj = nn.Parameter(torch.randn(count, width, d) / math.sqrt(d))
        self.up_proj = nn.Parameter(torch.randn(count, width, d) / math.sqrt(d))
        self.down_proj = nn.Parameter(torch.randn(count, d, width) / math.sqrt(width))
        if c.get("num_shared_experts"):
            self.shared_experts = Mlp(d, c["moe_shared_expert_intermediate_size"])
        self.balance = torch.zeros(())

    def forward(self, x, routed_by=None):
        """`routed_by`: rows that the router sees in place of x."""
        scores, ids, weights = self.gate(x if routed_by is None else routed_by)
        count, (tokens, k) = len(self.gate_proj), ids.shape
        flat = ids.reshape(-1)
        order = flat.argsort(stable=True)
        loads = torch.bincount(flat, minlength=count)
        share = scores / scores.sum(-1, keepdim=True)
        self.balance = count * (share.mean(0) * loads / len(flat)).sum()
        self.loads = loads
        room = int(loads.max())
        expert = flat[order]
        slot = expert * room + torch.arange(len(flat)) - (loads.cumsum(0) - loads)[expert]
        token_of = torch.zeros(count * room, dtype=torch.long).index_copy_(0, slot, order // k)
        slot_of = torch.empty_like(flat).index_copy_(0, order, slot).view(tokens, k)
        weight = torch.zeros(count * room).index_copy(0, slot, weights.reshape(-1)[order])
        rows = Dispatch.apply(x, token_of, slot_of).view(count, room, -1)
        inner = torch.bmm(rows, torch.cat([self.gate_proj, self.up_proj], 1).transpose(1, 2))
        gate, up = inner.chunk(2, dim=-1)
        inner = self.activation(gate) * up * weight.view(count, room, 1)
        made = torch.bmm(inner, self.down_proj.transpose(1, 2)).flatten(0, 1)
        out = Combine.apply(made, token_of, slot_of)
        return out + self.shared_experts(x) if hasattr(self, "shared_experts") else out


def rotate(x, angles):
    """x [n, heads, tokens, head_dim], angles [..., tokens, pairs]: halves of the first channels."""
    pairs = angles.shape[-1]
    a, b, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


class Block(nn.Module):
    def __init__(self, c, dense):
        super().__init__()
        d, self.eps = c["hidden_size"], c["rms_norm_eps"]
        self.heads, self.kv, self.size = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        self.attention_norm, self.feed_norm = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))
        self.q_norm, self.k_norm = nn.Parameter(torch.ones(self.size)), nn.Parameter(torch.ones(self.size))
        self.q = nn.Linear(d, self.heads * self.size, bias=False)
        self.k = nn.Linear(d, self.kv * self.size, bias=False)
        self.v = nn.Linear(d, self.kv * self.size, bias=False)
        self.o = nn.Linear(self.heads * self.size, d, bias=False)
        self.mlp = Mlp(d, c["intermediate_size"]) if dense else Moe(c)

    def norm(self, x, weight):
        return F.rms_norm(x, x.shape[-1:], weight, self.eps)

    def forward(self, x, angles, visible):
        n, t, d = x.shape
        y = self.norm(x, self.attention_norm)
        split = lambda z, heads: z.view(n, t, heads, self.size).transpose(1, 2)
        q = rotate(self.norm(split(self.q(y), self.heads), self.q_norm), angles)
        k = rotate(self.norm(split(self.k(y), self.kv), self.k_norm), angles)
        v = split(self.v(y), self.kv)
        if self.kv != self.heads:
            k, v = (z.repeat_interleave(self.heads // self.kv, 1) for z in (k, v))
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        x = x + self.o(a.transpose(1, 2).reshape(n, t, -1))
        return x + self.mlp(self.norm(x, self.feed_norm).view(n * t, d)).view(n, t, d)


class TokenMoe(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = c = dict(config)
        self.block_causal = c.get("block_length", 0)
        d = c["hidden_size"]
        self.embedding = nn.Embedding(c["vocab_size"], d)
        dense = c.get("first_k_dense_replace", 0)
        self.blocks = nn.ModuleList([Block(c, i < dense) for i in range(c["num_hidden_layers"])])
        self.norm = nn.Parameter(torch.ones(d))
        self.head = nn.Linear(d, c["vocab_size"], bias=False)
        nn.init.normal_(self.embedding.weight, std=0.5)
        nn.init.zeros_(self.head.weight)

    def moes(self):
        return [b.mlp for b in self.blocks if isinstance(b.mlp, Moe)]

    def forward(self, ids, lengths=None):
        """ids [n, tokens], of row i the first lengths[i] exist -> logits [n, tokens, vocabulary]."""
        n, t = ids.shape
        pairs = int(self.config["head_dim"] * self.config.get("partial_rotary_factor", 1)) // 2
        place = torch.arange(t)
        angles = place[:, None] * self.config["rope_theta"] ** (-torch.arange(pairs) / pairs)
        visible = None
        if lengths is not None:
            visible = (place < lengths[:, None])[:, None, None, :]
        if self.block_causal:
            part = place // self.block_causal
            causal = (part[None, :] <= part[:, None])[None, None]
            visible = causal if visible is None else visible & causal
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, angles, visible)
        return self.head(F.rms_norm(x, x.shape[-1:], self.norm, self.config["rms_norm_eps"]))


def checkpoint(model):
    """The tensors under the names of the released checkpoints."""
    ling = bool(model.block_causal)
    out = {"model.word_embeddings.weight" if ling else "model.embed_tokens.weight": model.embedding.weight,
           "model.norm.weight": model.norm, "lm_head.weight": model.head.weight}
    for i, b in enumerate(model.blocks):
        at = f"model.layers.{i}."
        out[at + "input_layernorm.weight"] = b.attention_norm
        out[at + "post_attention_layernorm.weight"] = b.feed_norm
        if ling:
            out[at + "attention.query_key_value.weight"] = torch.cat([b.q.weight, b.k.weight, b.v.weight])
            out[at + "attention.dense.weight"] = b.o.weight
            out[at + "attention.query_layernorm.weight"] = b.q_norm
            out[at + "attention.key_layernorm.weight"] = b.k_norm
        else:
            for name in "qkvo":
                out[f"{at}self_attn.{name}_proj.weight"] = getattr(b, name).weight
            out[at + "self_attn.q_norm.weight"], out[at + "self_attn.k_norm.weight"] = b.q_norm, b.k_norm
        m = b.mlp
        if isinstance(m, Mlp):
            out.update({f"{at}mlp.{k}": v for k, v in m.state_dict().items()})
            continue
        out[at + "mlp.gate.weight"] = m.gate.weight
        if m.gate.sigmoid:
            out[at + "mlp.gate.expert_bias"] = m.gate.expert_bias
        out[at + "mlp.experts.gate_up_proj"] = torch.cat([m.gate_proj, m.up_proj], 1)
        out[at + "mlp.experts.down_proj"] = m.down_proj
        if hasattr(m, "shared_experts"):
            out.update({f"{at}mlp.shared_experts.{k}": v for k, v in m.shared_experts.state_dict().items()})
    return {k: v.detach().bfloat16().contiguous() for k, v in out.items()}
