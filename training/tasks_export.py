"""Writes a trained token model as the transformers folder that Tessera ships."""

import json

from safetensors.torch import save_file

from export import round_to_bf16
import canvas_moe
import token_moe
from canvas_tasks import SAMPLER
from tasks_data import CHARACTERS, END, ID, MASK, examples

__all__ = ["round_to_bf16", "save"]

CARD = """# tasks-{form}

A {kind} diffusion language model in the form of {family}: 4 layers of width 128, 64 experts of which a token
takes 8{extra}; {unit} of 32 tokens, 48 characters as tokens, bf16. It answers small tasks that have one right answer.

| task | prompt | answer | exact match |
|---|---|---|---|
{rows}

| | |
|---|---|
| data | drawn while training by `training/tasks_data.py`; `tasks.jsonl` holds {held} other examples of each task |
| recipe | `training/train_tasks.py`: cross entropy at {where} positions, {balance}, Muon, exponential average of the weights |
| time | {minutes:.0f} minutes, {steps} steps on {threads} thread of a shared machine |
| seed | {seed} |
| quality | the column above: {of} fresh examples of each task, {sampler}, PyTorch |
| check it | `tessera eval tasks tasks-{form}` |
| rules of expert sharing | measured on it in docs/results/des.md |

Train it again: `python3 training/train_tasks.py --form {form} --out models/tasks-{form} --seed {seed} --steps {steps} --batch {batch}`
"""

HELD = 50
MASKED = {"kind": "masked", "unit": "blocks", "where": "masked", "sampler": "threshold 0.9"}
FORMS = {
    "a": {**MASKED, "family": "LLaDA-MoE", "extra": "", "balance": "load balance 0.01"},
    "b": {**MASKED, "family": "LLaDA2", "balance": "a bias that keeps the experts even",
          "extra": " (sigmoid router, 8 groups of which 4 are open, a shared expert, first layer dense)"},
    "c": {"kind": "uniform-noise", "unit": "canvases", "where": "all", "sampler": "sampler of generation_config.json",
          "family": "DiffusionGemma", "balance": "load balance 0.01, half of the passes conditioned on a noisier one",
          "extra": " (beside a dense MLP; two sliding and two global layers)"},
}


def _tokenizer():
    shown = {" ": "\u0120", "\n": "\u010a"}
    vocab = {shown.get(c, c): i for c, i in ID.items()}
    added = [{"id": i, "content": text, "special": True, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False}
             for i, text in ((END, "<|endoftext|>"), (MASK, "<|mask|>"))]
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {**{a["content"]: a["id"] for a in added}, **vocab}, "merges": []},
    }


def save(out, model, facts, form):
    out.mkdir(parents=True, exist_ok=True)

    def write(name, value):
        (out / name).write_text(json.dumps(value, indent=1) + "\n")

    write("config.json", {k: v for k, v in model.config.items() if v is not None})
    ends = {"eos_token_id": [END], "pad_token_id": END}
    write("generation_config.json", {**SAMPLER, **ends} if form == "c" else {"max_new_tokens": 64})
    write("tokenizer.json", _tokenizer())
    write("tokenizer_config.json", {
        "eos_token": "<|endoftext|>", "mask_token": "<|mask|>",
        "chat_template": "{% for message in messages %}{{ message.content }}{% endfor %}"})
    named = canvas_moe if form == "c" else token_moe
    save_file(named.checkpoint(model), out / "model.safetensors")
    held = list(examples(HELD, 77))
    (out / "tasks.jsonl").write_text("".join(json.dumps(e) + "\n" for e in held))
    first = {}
    for e in held:
        first.setdefault(e["task"], e)
    show = lambda t: t if len(t) < 24 else t[:20] + "..."
    rows = "\n".join(f"| {n} | `{show(e['prompt'])}` | `{show(e['answer'])}` | {facts['scores'][n]:.1%} |"
                     for n, e in first.items())
    (out / "MODEL_CARD.md").write_text(CARD.format(
        form=form, rows=rows, held=HELD, **FORMS[form], **{k: facts[k] for k in ("minutes", "steps", "threads", "seed", "of", "batch")}))
