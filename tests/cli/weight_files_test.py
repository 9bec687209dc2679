#!/usr/bin/env python3
"""Files in place of a folder's weights: --transformer, --text-encoder, --vae."""

import json
import pathlib
import re
import shutil
import struct
import unittest

from program import DATA, SOURCE, ProgramTest, read_safetensors, write_safetensors

VIDEO = DATA / "diffusers/cogvideox_2b/model"
RUN = ("--prompt", "waves", "--width", "48", "--height", "32", "--frames", "9", "--steps", "2", "--seed", "3")


def gguf(tensors, **keys):
    """The bytes of a GGUF file with tensors {name: (dtype, shape, bytes)} and keys."""
    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def typed(value):
        for kind, number, shown in ((bool, 7, "<?"), (int, 4, "<I"), (float, 6, "<f")):
            if isinstance(value, kind):
                return number, struct.pack(shown, value)
        if isinstance(value, str):
            return 8, text(value)
        items = [typed(one) for one in value]
        return 9, struct.pack("<IQ", items[0][0] if items else 8, len(items)) + b"".join(one for _, one in items)

    numbers = {"F32": 0, "F16": 1, "BF16": 30, "Q4_0": 2, "Q8_0": 8}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, value in keys.items():
        number, content = typed(value)
        head += text(name.replace("__", ".")) + struct.pack("<I", number) + content
    data = b""
    for name, (dtype, shape, values) in tensors.items():
        sizes = shape[::-1] or [1]
        head += text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, numbers[dtype], len(data))
        data += values + bytes(-len(values) % 32)
    return head + bytes(-len(head) % 32) + data


def as_llama_cpp(tensors):
    """A LLaDA-MoE's tensors in bf16, experts stacked, with the names of llama.cpp."""
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
             "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate": "ffn_gate_inp",
             **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"}, "self_attn.o_proj": "attn_output",
             "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
    made = {}
    for name, (dtype, shape, values) in tensors.items():
        layer = re.match(r"model\.layers\.(\d+)\.(.*)", name)
        before, own = (f"blk.{layer[1]}.", layer[2]) if layer else ("", name)
        if own == "mlp.experts.down_proj":
            made[f"{before}ffn_down_exps.weight"] = (dtype, shape, values)
        elif own == "mlp.experts.gate_up_proj":  # the rows of gate, then those of up, for each expert
            experts, rows, width = shape
            half = rows // 2 * width * 2  # bytes in bf16
            pieces = [values[at:at + half] for at in range(0, len(values), half)]
            for part, first in (("gate", 0), ("up", 1)):
                made[f"{before}ffn_{part}_exps.weight"] = (dtype, [experts, rows // 2, width], b"".join(pieces[first::2]))
        else:
            made[f"{before}{names[own.removesuffix('.weight')]}.weight"] = (dtype, shape, values)
    return made


def whole_model(folder):
    """A LLaDA-MoE's folder as one GGUF file: its keys."""
    config = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    spelled = {i: text for text, i in tokenizer["model"]["vocab"].items()}
    special = {token["id"] for token in tokenizer["added_tokens"]}
    sizes = {"block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
             "embedding_length": "hidden_size", "attention.head_count": "num_attention_heads",
             "attention.head_count_kv": "num_key_value_heads", "attention.layer_norm_rms_epsilon": "rms_norm_eps",
             "rope.freq_base": "rope_theta", "expert_count": "num_experts",
             "expert_used_count": "num_experts_per_tok", "expert_feed_forward_length": "expert_intermediate_size"}
    order = range(config["vocab_size"])
    return {"general.architecture": "llada-moe", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llada-moe",
            **{f"llada-moe.{theirs}": config[ours] for theirs, ours in sizes.items()},
            "tokenizer.ggml.tokens": [spelled.get(i, f"[PAD{i}]") for i in order],
            "tokenizer.ggml.token_type": [3 if i in special else 1 if i in spelled else 5 for i in order],
            "tokenizer.ggml.merges": tokenizer["model"]["merges"],
            "tokenizer.ggml.eos_token_id": config["eos_token_id"],
            "tokenizer.ggml.mask_token_id": config["mask_token_id"],
            "tokenizer.chat_template": json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]}


def weights(part):
    (file,) = (VIDEO / part).glob("*.safetensors")
    return read_safetensors(file)[0]


def pixels_of(png):
    """The compressed pixels of an image; its parameters name the model."""
    parts, at = b"", 8
    while at < len(png):
        size, kind = int.from_bytes(png[at:at + 4], "big"), png[at + 4:at + 8]
        parts += png[at + 8:at + 8 + size] if kind == b"IDAT" else b""
        at += 12 + size
    assert parts
    return parts


class WeightFiles(ProgramTest):
    def setUp(self):
        super().setUp()
        self.bare = self.folder / "bare"  # without a weight
        shutil.copytree(VIDEO, self.bare, ignore=shutil.ignore_patterns("*.safetensors"))

    def latents(self, model, *words):
        out = self.folder / "out.safetensors"
        done = self.run_here("generate", model, *RUN, *words, "--latents-only", "--save-latents", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        return read_safetensors(out)[0]["latents"]

    def test_blocks_stay_in_few_bits_or_give_the_file_exactly(self):
        tensors = weights("transformer")
        name = next(n for n, (_, shape, _) in tensors.items()
                    if n.startswith("transformer_blocks.0.ff.") and len(shape) == 2 and shape[1] % 32 == 0)
        rows, columns = tensors[name][1]
        tensors[name] = ("Q4_0", [rows, columns], (b"\x00\x20" + bytes(range(16))) * (rows * columns // 32))
        (self.folder / "t.gguf").write_bytes(gguf(tensors))
        ask = ("--transformer", "t.gguf")
        exact = self.latents(VIDEO, *ask, "--exact-quants")
        self.assertNotEqual(self.latents(VIDEO, *ask), exact)
        self.assertEqual(self.latents(VIDEO, *ask, "--quantise-rules", "mlp=bf16"), exact)  # no other blocks
        self.assertEqual(self.latents(VIDEO, *ask, "--dtype", "f32", "--exact-quants"),
                         self.latents(VIDEO, *ask, "--dtype", "f32"))
        done = self.run_here("generate", VIDEO, *RUN, "--exact-quants", "--latents-only", "--save-latents", "x")
        self.assertEqual(done.returncode, 2)
        self.assertIn("has no GGUF file in blocks", done.stderr)

    def test_a_quantised_folder_keeps_the_numbers_of_blocks(self):
        tensors = weights("transformer")
        blocks = {"Q4_0": b"\x00\x20" + bytes(range(16)), "Q8_0": b"\x00\x14" + bytes(range(7, 39))}
        for name, (_, shape, _) in tensors.items():
            dtype = "Q4_0" if ".ff." in name else "Q8_0" if ".attn" in name else ""
            if dtype and len(shape) == 2 and shape[1] % 32 == 0:
                tensors[name] = (dtype, shape, blocks[dtype] * (shape[0] * shape[1] // 32))
        (self.folder / "t.gguf").write_bytes(gguf(tensors))
        (self.folder / "t5.gguf").write_bytes(gguf(weights("text_encoder"), general__architecture="t5encoder"))
        files = ("--transformer", "t.gguf", "--text-encoder", "t5.gguf")
        for name, words in (("q", ()), ("q8", ("--dtype", "int8"))):
            done = self.run_here("quantise", self.bare, *files, "-o", name, "--progress", "none", *words)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, name + "\n", ""))
            expected = self.latents(self.bare, *files, *words)
            self.assertEqual(self.latents(name), expected)
            self.assertEqual(self.latents(name, "--map-weights"), expected)
        kinds = {name: dtype for name, (dtype, _, _) in
                 read_safetensors(self.folder / "q/transformer/diffusion_pytorch_model.safetensors")[0].items()}
        for name, (dtype, _, _) in tensors.items():
            self.assertEqual(kinds[name], {"Q4_0": "U8", "Q8_0": "I8"}.get(dtype, dtype), name)
        self.assertNotIn("quantization_config", json.loads((self.folder / "q/text_encoder/config.json").read_text()))
        self.refused(2, "quantise", VIDEO, "-o", "x", "--text-encoder", "t5.gguf", says="nothing would be quantised")
        self.refused(2, "quantise", SOURCE / "models/tasks-a", "-o", "x", "--transformer", "t.gguf",
                     says="quantised from its folder")

    def test_files_give_the_bits_of_the_folder(self):
        write_safetensors(self.folder / "t.safetensors",
                          {"model.diffusion_model." + name: t for name, t in weights("transformer").items()})
        (self.folder / "t5.gguf").write_bytes(gguf(weights("text_encoder"), general__architecture="t5encoder"))
        write_safetensors(self.folder / "vae.safetensors",
                          {"first_stage_model." + name: t for name, t in weights("vae").items()})
        files = ("--transformer", "t.safetensors", "--text-encoder", "t5.gguf", "--vae", "vae.safetensors")
        expected = self.latents(VIDEO)
        self.assertEqual(self.latents(self.bare, *files), expected)
        self.assertEqual(self.latents(VIDEO, *files[:2]), expected)
        self.assertEqual(self.latents(self.bare, *files, "--ranks", "2", "--plan", "cfg=2"), expected)
        images = {}
        for model, words in ((VIDEO, ()), (self.bare, files)):
            done = self.run_here("generate", model, *RUN, *words, "-o", "frames/")
            self.assertEqual(done.returncode, 0, done.stderr)
            images[model] = [pixels_of((self.folder / "frames" / pathlib.Path(name).name).read_bytes())
                             for name in done.stdout.split()]
            shutil.rmtree(self.folder / "frames")
        self.assertEqual(len(images[VIDEO]), 9)
        self.assertEqual(images[VIDEO], images[self.bare])

    def test_inspect_names_file_and_types(self):
        (self.folder / "t.gguf").write_bytes(gguf(weights("transformer")))
        done = self.run_here("inspect", self.bare, "--transformer", "t.gguf", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        parts = {part["name"]: part for part in json.loads(done.stdout)["components"]}
        self.assertTrue(parts["transformer"]["path"].endswith("t.gguf"))
        self.assertRegex(json.dumps(parts["transformer"]), r"stored as.*(F32|BF16|F16) \d+")

    def test_a_language_model_is_one_file(self):
        model = SOURCE / "models/tasks-a"
        tensors, keys = as_llama_cpp(read_safetensors(model / "model.safetensors")[0]), whole_model(model)
        (self.folder / "m.gguf").write_bytes(gguf(tensors, **keys))
        ask = ("--prompt", "rev stone=", "--max-tokens", "16")
        answers = [self.run_here("complete", *words, *ask) for words in
                   ((model,), ("m.gguf",), ("m.gguf", "--ranks", "2", "--plan", "expert=2"))]
        self.assertEqual([(done.returncode, done.stdout) for done in answers], [(0, "enots\n")] * 3, answers)
        done = self.run_here("eval", "tasks", "m.gguf", "--data", model / "tasks.jsonl", "--limit", "4", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout.splitlines()[0])["accuracy"], 1)
        done = self.run_here("inspect", "m.gguf")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("llada", done.stdout)
        for key in ("llada-moe.expert_count", "tokenizer.ggml.pre"):
            (self.folder / "less.gguf").write_bytes(gguf(tensors, **{k: v for k, v in keys.items() if k != key}))
            self.refused(3, "complete", "less.gguf", *ask, says=["less.gguf", f"the metadata lack '{key}'", "--transformer"])
        self.refused(2, "quantise", "m.gguf", "-o", "small", says="quantised from its folder")

    def test_refusals(self):
        (self.folder / "t.gguf").write_bytes(gguf(weights("transformer")))
        (self.folder / "half.gguf").write_bytes((self.folder / "t.gguf").read_bytes()[:-64])
        save = (*RUN, "--latents-only", "--save-latents", "out.safetensors")
        ask = ("generate", VIDEO, *save)
        self.refused(3, *ask, "--transformer", "half.gguf", says=["half.gguf", "no more and no rest"])
        self.refused(3, *ask, "--transformer", "none.gguf", says="none.gguf")
        self.refused(3, "generate", self.bare, *save, "--transformer", self.bare / "model_index.json",
                     says="model_index.json")
        self.refused(2, *ask, "--text-encoder", "t.gguf", says=["holds none of", "text_encoder (T5EncoderModel)"])
        few = dict(list(weights("transformer").items())[:4])
        (self.folder / "few.gguf").write_bytes(gguf(few))
        self.refused(3, *ask, "--transformer", "few.gguf", says=["few.gguf", "missing"])
        self.refused(2, "generate", VIDEO, *RUN, "--transformer", "t.gguf", "--latents-only", "--save-latents",
                     "t.gguf", "--overwrite", says="t.gguf")
        self.refused(2, "serve", VIDEO, "shapes", "--transformer", "t.gguf", says="for one model")
        self.refused(3, "generate", "t.gguf", *save, says=["GGUF", "--transformer"])


if __name__ == "__main__":
    unittest.main()
