"""Compares a pass of DiffusionGemma over a canvas in PyTorch with Tessera's: published widths, random weights, few layers,
self-conditioning, and a text in the KV cache.

eager: transformers' own model, which runs experts one by one; grouped: its `grouped_mm`; compiled: grouped through torch.compile; packed:
rows grouped once and oneDNN's packed weights in every product. With FORM int8 or int4 also PyTorch's own products of weights in
int8 (with a scale for a row), and for int4 of experts in int4 (groups of 32). The head stays in bf16 everywhere.

    TESSERA_BENCH=build/release/bench python bench/peers/diffusion_gemma_peer.py [threads,...] [TEXT+CANVAS,...] [layers] [ids] [FORM] [rounds]
        [names of what is measured in PyTorch,...]

Each round measures all in turn. A line holds medians of the rounds, for passes and for their blocks alone; ratios are medians of those
of each round, with the lowest and highest. `layers_30` puts 30 layers together from both.
"""
import pathlib
import statistics
import sys

import torch
from transformers import DynamicCache
from transformers.models.diffusion_gemma.configuration_diffusion_gemma import DiffusionGemmaConfig
from transformers.models.diffusion_gemma.modeling_diffusion_gemma import DiffusionGemmaDecoderModel

from alternate import Resident, cpu_seconds, print_json, program, runnable
from dit_moe_peer import Packed

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "models"))
from random_diffusion_gemma import config  # noqa: E402

PUBLISHED = 30  # layers
GROUP = 32  # elements of a scale in int4


class Int8:
    def __init__(self, w):
        scale = (w.float().abs().amax(1) / 127).clamp(min=1e-8)
        self.w, self.scale = (w.float() / scale[:, None]).round().to(torch.int8), scale.bfloat16()

    def __call__(self, x):
        return torch._weight_int8pack_mm(x, self.w, self.scale)


class Int4:
    def __init__(self, w):
        groups = w.float().unflatten(1, (-1, GROUP))
        scale = (groups.abs().amax(-1) / 7).clamp(min=1e-8)
        codes = (groups / scale[..., None]).round().add(8).clamp(0, 15).flatten(1).int()
        self.w = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
        self.scales = torch.stack([scale, torch.zeros_like(scale)], -1).transpose(0, 1).contiguous().bfloat16()

    def __call__(self, x):
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.w, GROUP, self.scales)


class Experts(torch.nn.Module):
    """Rows grouped once, and products of another form."""

    def __init__(self, experts, form):
        super().__init__()
        self.up, self.down = ([form(w) for w in part] for part in (experts.gate_up_proj, experts.down_proj))
        self.act = experts.act_fn

    def forward(self, x, ids, weights):
        flat = ids.view(-1)
        order = flat.argsort()
        rows, out, begin = x[order // ids.shape[1]], torch.empty(len(flat), x.shape[1], dtype=x.dtype), 0
        for e, count in enumerate(flat.bincount(minlength=len(self.up)).tolist()):
            if count:
                gate, up = self.up[e](rows[begin:begin + count]).chunk(2, dim=-1)
                out[order[begin:begin + count]] = self.down[e](self.act(gate) * up)
                begin += count
        return torch.bmm(weights.to(x.dtype).unsqueeze(1), out.view(*ids.shape, -1)).squeeze(1)


class Dense(torch.nn.Module):
    """A linear layer by products of another form."""

    def __init__(self, linear, form):
        super().__init__()
        self.product = form(linear.weight)

    def forward(self, x):
        return self.product(x.flatten(0, -2)).unflatten(0, x.shape[:-1])


class Model:
    """The decoder and its head, with interchangeable experts and linear layers."""

    def __init__(self, layers, ids):
        made = config(layers, "bf16")
        made["text_config"]["vocab_size"] = ids
        self.config = DiffusionGemmaConfig(**{k: v for k, v in made.items() if k not in ("model_type", "architectures")})
        self.config.text_config._attn_implementation = "sdpa"
        torch.set_default_dtype(torch.bfloat16)
        self.decoder = DiffusionGemmaDecoderModel(self.config).eval()
        torch.set_default_dtype(torch.float32)
        self.head = torch.nn.Linear(1, 1, bias=False)
        self.head.weight = self.decoder.embed_tokens.weight
        self.cap = self.config.text_config.final_logit_softcapping
        self.own = self.parts()

    def at(self, text, canvas):
        """Sets a canvas behind a cached text."""
        self.cache = DynamicCache(config=self.config.text_config)
        for layer, block in enumerate(self.decoder.layers):
            at = block.self_attn
            heads = self.config.text_config.num_attention_heads // at.num_key_value_groups
            kept = min(text, at.sliding_window - 1) if at.sliding_window else text
            self.cache.update(*(torch.randn(1, heads, kept, at.head_dim).bfloat16() for _ in range(2)), layer)
        self.ids = (torch.arange(canvas) * 977 % self.config.text_config.vocab_size)[None]
        self.earlier = torch.zeros(1, canvas, self.config.text_config.vocab_size)
        self.positions = torch.arange(text, text + canvas)[None]

    def linears(self):
        for module in (*(m for b in self.decoder.layers for m in (b.self_attn, b.mlp)), self.decoder.self_conditioning):
            for name, part in list(module.named_children()):
                if isinstance(part, (torch.nn.Linear, Dense)):
                    yield module, name, part

    def parts(self):
        """Returns the present experts, linear layers and head."""
        return [b.experts for b in self.decoder.layers], [part for *_, part in self.linears()], self.head

    def other(self, experts, dense, head=None):
        return ([Experts(e, experts) for e in self.own[0]], [Dense(part, dense) for part in self.own[1]],
                Dense(self.head, head) if head else self.head)

    def use(self, parts):
        experts, linears, self.head = parts
        for block, one in zip(self.decoder.layers, experts):
            block.experts = one
        for (module, name, _), one in zip(list(self.linears()), linears):
            setattr(module, name, one)

    def run(self):
        hidden = self.decoder(decoder_input_ids=self.ids, cache=self.cache, self_conditioning_logits=self.earlier,
                              decoder_position_ids=self.positions).last_hidden_state
        return torch.tanh(self.head(hidden).float() / self.cap) * self.cap

    def blocks(self, hidden, rotary):
        for kind, block in zip(self.config.text_config.layer_types, self.decoder.layers):
            hidden = block(hidden, position_embeddings=rotary[kind], attention_mask=None, position_ids=self.positions, cache=self.cache)
        return hidden

    def block_inputs(self):
        hidden = torch.randn(1, self.ids.shape[1], self.config.text_config.hidden_size).bfloat16()
        return hidden, {kind: self.decoder.rotary_emb(hidden, self.positions, kind) for kind in set(self.config.text_config.layer_types)}


def variants(model, form, names):
    """Returns {name: (a function for a pass, one for its blocks)}."""
    inputs = model.block_inputs()

    def way(parts, implementation="eager", compiled=False):
        run, blocks = (torch.compile(f, dynamic=False) if compiled else f for f in (model.run, model.blocks))

        def chosen(f, *words):
            def call():
                model.config.text_config._experts_implementation = implementation
                model.use(parts)
                return f(*words)
            return call
        return chosen(run), chosen(blocks, *inputs)

    rows = model.ids.shape[1]
    each = max(1, rows * model.config.text_config.top_k_experts // model.config.text_config.num_experts)
    few = {"int8": lambda: way(model.other(Int8, Int8)), "int4": lambda: way(model.other(Int4, Int8))}
    ways = {"eager": lambda: way(model.own), "compiled": lambda: way(model.own, "grouped_mm", True),
            "packed": lambda: way(model.other(lambda w: Packed(w.contiguous(), None, each), *2 * [lambda w: Packed(w, None, rows)]))}
    ways = ways if form == "bf16" else dict(list(few.items())[:1 if form == "int8" else 2])
    model.use(model.own)
    return {"grouped": way(model.own, "grouped_mm"), **{name: make() for name, make in ways.items() if not names or name in names}}


def spread(ratios):
    return [round(f(ratios), 3) for f in (statistics.median, min, max)]


def compare(threads, shape, form, ways, layers, rounds):
    """Prints a JSON line for a shape."""
    right = ways["grouped"][0]()
    kept, failed = runnable({name: one[0] for name, one in ways.items()})
    for name, run in kept.items():
        gap = ((run() - right).norm() / right.norm()).item()
        assert gap < (0.2 if form == "bf16" else 0.5), f"{name} differs by {gap}"
    ours, theirs = [], {name: [] for name in kept}
    with Resident(program("diffusion_gemma_bench"), threads, f"{shape}:{form}", "cpu") as tessera:
        for i in range(rounds + 1):
            line = tessera.line()
            times = {name: [cpu_seconds(f, threads, 1) * 1e3 for f in ways[name]] for name in kept}
            if i == 0:
                continue
            ours.append(line)
            for name in kept:
                theirs[name].append(times[name])
    whole = lambda ms, blocks: ms + blocks * (PUBLISHED / layers - 1)
    medians = {name: statistics.median(line[name] for line in ours) for name in ours[0] if isinstance(ours[0][name], float)}
    line = {"shape": shape, "form": form, "threads": threads, "torch": torch.__version__, **{n: round(v, 3) for n, v in medians.items()}}
    line["layers_30_ms"] = round(statistics.median(whole(o["ms"], o["blocks_ms"]) for o in ours), 1)
    for name, rows in theirs.items():
        line[name] = {"ms": round(statistics.median(a for a, _ in rows), 2), "blocks_ms": round(statistics.median(b for _, b in rows), 2),
                      "over_tessera": spread([a / o["ms"] for (a, _), o in zip(rows, ours)]),
                      "blocks_over_tessera": spread([b / o["blocks_ms"] for (_, b), o in zip(rows, ours)]),
                      "layers_30_over_tessera": spread([whole(a, b) / whole(o["ms"], o["blocks_ms"]) for (a, b), o in zip(rows, ours)])}
    if failed:
        line["cannot"] = failed
    print_json(line)


def main():
    word = lambda at, usual: sys.argv[at] if len(sys.argv) > at else usual
    layers, ids, rounds = (int(word(*one)) for one in ((3, 2), (4, 262144), (6, 3)))
    form, names = word(5, "bf16"), [name for name in word(7, "").split(",") if name]
    with torch.inference_mode():
        model = Model(layers, ids)
        for shape in word(2, "256+32,256+256").split(","):
            model.at(*map(int, shape.split("+")))
            ways = variants(model, form, names)
            for threads in map(int, word(1, "1").split(",")):
                torch.set_num_threads(threads)
                compare(threads, f"{shape}x{layers}x{ids}", form, ways, layers, rounds)


if __name__ == "__main__":
    main()
