"""A small CLIP text model with the names that transformers gives its parameters."""

import torch
from torch import nn
from torch.nn import functional as F


def config(vocabulary, width, layers, heads, longest):
    return {
        "architectures": ["CLIPTextModelWithProjection"],
        "model_type": "clip_text_model",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "max_position_embeddings": longest,
        "projection_dim": width,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "eos_token_id": vocabulary - 1,
        "bos_token_id": vocabulary - 2,
    }


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, wide = c["hidden_size"], c["intermediate_size"]
        self.heads = c["num_attention_heads"]
        names = ("q_proj", "k_proj", "v_proj", "out_proj")
        self.self_attn = nn.ModuleDict({name: nn.Linear(d, d) for name in names})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(d, wide), "fc2": nn.Linear(wide, d)})
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, x):
        n, t, d = x.shape
        h = self.layer_norm1(x)
        q, k, v = (self.self_attn[f"{p}_proj"](h).view(n, t, self.heads, -1).transpose(1, 2) for p in "qkv")
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, d)
        x = x + self.self_attn["out_proj"](h)
        return x + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.layer_norm2(x))))


class ClipText(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config, d = c, c["hidden_size"]
        self.text_model = nn.ModuleDict({
            "embeddings": nn.ModuleDict({
                "token_embedding": nn.Embedding(c["vocab_size"], d),
                "position_embedding": nn.Embedding(c["max_position_embeddings"], d),
            }),
            "encoder": nn.ModuleDict({"layers": nn.ModuleList([Layer(c) for _ in range(c["num_hidden_layers"])])}),
            "final_layer_norm": nn.LayerNorm(d),
        })
        self.text_projection = nn.Linear(d, c["projection_dim"], bias=False)
        for table in self.text_model["embeddings"].values():
            nn.init.normal_(table.weight, std=0.5)

    def forward(self, ids):
        """ids [n, t] -> the states before the last layer [n, t, d], and the projected state [n, d] at the first
        end of text."""
        embeddings = self.text_model["embeddings"]
        x = embeddings["token_embedding"](ids) + embeddings["position_embedding"].weight[: ids.shape[1]]
        previous = x
        for layer in self.text_model["encoder"]["layers"]:
            previous, x = x, layer(x)
        end = (ids == self.config["eos_token_id"]).int().argmax(1)
        last = self.text_model["final_layer_norm"](x)
        return previous, self.text_projection(last[torch.arange(len(ids)), end])
