"""One forward pass of LLaDA-MoE (random weights of the published widths, logits of every position) in llama.cpp,
beside Tessera's; one of llama.cpp's diffusion program costs that and its sampling.

First both compute logits of the same ids from the same weights: a line says how far they are apart. Then
llada_bench (the same shapes, its own random weights) and llama.cpp run in turn, in bf16, and with experts in int8
beside all weights in Q8_0.

    pip install numpy gguf llama-cpp-python    # LLAMA_CPP_LIB_PATH: a folder with another build of llama.cpp
    python bench/models/random_llada_moe.py moe 4
    TESSERA=build/release/tessera TESSERA_BENCH=build/release/bench \\
        python bench/peers/llama_cpp_peer.py moe [threads] [tokens,...] [rounds]
"""
import ctypes
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import gguf
import llama_cpp
import numpy as np

from alternate import print_json, print_line, program

TESSERA = os.environ.get("TESSERA", "build/release/tessera")


def tensors_of(folder):
    """{name: bf16 bits} of the folder's weights, where they lie in the file."""
    path = folder / "model.safetensors"
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
    whole = np.memmap(path, dtype=np.uint16, mode="r", offset=8 + size)
    return {name: whole[entry["data_offsets"][0] // 2:entry["data_offsets"][1] // 2].reshape(entry["shape"])
            for name, entry in header.items()}


def floats(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def write_gguf(folder, config, path, quantised):
    """The folder in llama.cpp's form: norms and routers in f32, all else in bf16 or Q8_0."""
    out = gguf.GGUFWriter(str(path), "llada-moe")
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_block_count(config["num_hidden_layers"])
    out.add_feed_forward_length(config["expert_intermediate_size"])
    out.add_expert_feed_forward_length(config["expert_intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_rope_freq_base(config["rope_theta"])
    out.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    out.add_expert_count(config["num_experts"])
    out.add_expert_used_count(config["num_experts_per_tok"])
    out.add_causal_attention(False)
    out.add_vocab_size(config["vocab_size"])
    out.add_tokenizer_model("no_vocab")
    held = tensors_of(folder)
    kind = gguf.GGMLQuantizationType.Q8_0 if quantised else gguf.GGMLQuantizationType.BF16

    def add(name, bits, plain=False):
        if plain:
            out.add_tensor(name, floats(bits))
        elif quantised:
            out.add_tensor(name, gguf.quants.quantize(floats(bits), kind), raw_dtype=kind)
        else:
            out.add_tensor(name, np.ascontiguousarray(bits).view(np.uint8), raw_dtype=kind)

    add("token_embd.weight", held["model.embed_tokens.weight"])
    add("output_norm.weight", held["model.norm.weight"], plain=True)
    add("output.weight", held["lm_head.weight"])
    for layer in range(config["num_hidden_layers"]):
        ours, theirs = f"model.layers.{layer}.", f"blk.{layer}."
        for name, of in (("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm"),
                         ("attn_q_norm", "self_attn.q_norm"), ("attn_k_norm", "self_attn.k_norm"),
                         ("ffn_gate_inp", "mlp.gate")):
            add(f"{theirs}{name}.weight", held[f"{ours}{of}.weight"], plain=True)
        for name, of in (("attn_q", "q"), ("attn_k", "k"), ("attn_v", "v"), ("attn_output", "o")):
            add(f"{theirs}{name}.weight", held[f"{ours}self_attn.{of}_proj.weight"])
        for name in ("gate", "up", "down"):
            all_of = [held[f"{ours}mlp.experts.{e}.{name}_proj.weight"] for e in range(config["num_experts"])]
            add(f"{theirs}ffn_{name}_exps.weight", np.stack(all_of))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


class Llama:
    """A model of llama.cpp and its passes over so many tokens."""

    def __init__(self, path, threads, ids):
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.model:
            sys.exit(f"llama.cpp cannot read {path}; delete it, so that it is written again")
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = context.n_batch = context.n_ubatch = len(ids)
        context.n_threads = context.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        llama_cpp.llama_set_causal_attn(self.context, False)
        self.batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        self.batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            self.batch.token[i], self.batch.pos[i], self.batch.logits[i] = token, i, 1
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = 0
        self.shape = (len(ids), llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model)))

    def run(self):
        start = time.perf_counter()
        status = llama_cpp.llama_decode(self.context, self.batch)
        llama_cpp.llama_synchronize(self.context)
        if status:
            sys.exit(f"llama_decode ended with {status}")
        return time.perf_counter() - start

    def logits(self):
        self.run()
        at = ctypes.cast(llama_cpp.llama_get_logits(self.context), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(at, shape=self.shape)

    def close(self):
        llama_cpp.llama_batch_free(self.batch)
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)


def our_logits(folder, ids, threads, dtype):
    """By `tessera forward`, from and to safetensors files."""
    with tempfile.TemporaryDirectory() as place:
        header = json.dumps({"input_ids": {"dtype": "I32", "shape": [len(ids)],
                                           "data_offsets": [0, 4 * len(ids)]}}).encode()
        asked = pathlib.Path(place) / "in.safetensors"
        asked.write_bytes(struct.pack("<Q", len(header)) + header + np.array(ids, np.int32).tobytes())
        made = pathlib.Path(place) / "out.safetensors"
        subprocess.run([TESSERA, "forward", folder, "--component", "model", "--inputs", asked, "--outputs", made,
                        "--threads", str(threads), "--dtype", dtype],
                       check=True, stdout=subprocess.DEVNULL)
        data = made.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        entry = json.loads(data[8:8 + size])["logits"]
        begin, end = entry["data_offsets"]
        return np.frombuffer(data[8 + size + begin:8 + size + end], np.float32).reshape(entry["shape"])


def agree(folder, path, ids, threads, form):
    theirs = Llama(path, threads, ids)
    a, b = theirs.logits().copy(), our_logits(folder, ids, threads, "bf16")
    theirs.close()
    print_json({"agreement": form, "tokens": len(ids),
                "relative_l2": round(float(np.linalg.norm(a - b) / np.linalg.norm(b)), 5),
                "equal_argmax": round(float((a.argmax(1) == b.argmax(1)).mean()), 4)})


def ours_ms(threads, shape, form):
    out = subprocess.run([program("llada_bench"), str(threads), shape, "vanilla", form, "3"], check=True,
                         capture_output=True, text=True)
    return json.loads(out.stdout.strip().splitlines()[-1])["median_ms"]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    threads = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    lengths = [int(n) for n in (sys.argv[3] if len(sys.argv) > 3 else "64,128").split(",")]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    config = json.loads((folder / "config.json").read_text())
    quiet = llama_cpp.llama_log_callback(lambda *_: None)  # has to outlive all calls
    llama_cpp.llama_log_set(quiet, None)
    llama_cpp.llama_backend_init()
    for form, ours in (("bf16", "bf16"), ("q8_0", "i8")):
        path = folder.parent / f"{folder.name}-{form}.gguf"
        if not path.exists():
            write_gguf(folder, config, path, form == "q8_0")
        for tokens in lengths:
            ids = [i * 977 % config["vocab_size"] for i in range(tokens)]
            agree(folder, path, ids, threads, form)
            theirs = Llama(path, threads, ids)
            theirs.run()
            shape, times = f"{tokens}x{config['num_hidden_layers']}x{config['vocab_size']}", {"t": [], "l": []}
            for _ in range(rounds):
                times["t"].append(ours_ms(threads, shape, ours))
                times["l"].append(statistics.median(theirs.run() for _ in range(3)) * 1e3)
            theirs.close()
            print_line(shape, statistics.median(times["t"]), {"llama_cpp": statistics.median(times["l"])},
                       form=f"{ours} beside {form}", threads=threads, rounds=rounds)


if __name__ == "__main__":
    main()
