"""Compares passes of LLaDA-MoE (random weights of the published widths) and whole answers in llama.cpp and its diffusion
program with Tessera's: the same weights, the same ids.

First checks the logits: a tiny model against the released code, then the folder against Tessera. Then times passes over
PROMPT + MASKS tokens in turn, in bf16 and in int8 against Q8_0. Tessera computes the logits of the masks; llama.cpp always
computes all, so llada_bench (other weights, the same shapes) adds a row with all logits if the program exists. The word
`torch` adds PyTorch in bf16 like llada_peer.py, logits of all tokens. LLAMA_DIFFUSION_CLI names llama.cpp's program and
adds answers with the same blocks and steps. One thread: passes count CPU time, answers wall time.

    pip install numpy gguf llama-cpp-python    # LLAMA_CPP_LIB_PATH: the folder of another build of libllama
    python bench/models/random_llada_moe.py moe 4
    PYTHONPATH=build/release/python TESSERA=build/release/tessera TESSERA_BENCH=build/release/bench \\
        python bench/peers/llama_cpp_peer.py moe [threads] [prompt+masks,...] [rounds] [forms] [torch]

forms: bf16,experts,all (int8 of experts alone, and of all matrices). A folder of 4 layers takes 4.6 GB twice, and half of
it for each form in int8. llama.cpp's program: cmake -B build -DCMAKE_BUILD_TYPE=Release, then --target llama-diffusion-cli.
"""
import ctypes
import json
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from alternate import clock, print_json, program

try:
    import gguf
    import llama_cpp
    import numpy as np
except (ImportError, RuntimeError, OSError) as error:  # the last two: libllama is missing at the given path
    sys.exit(f"llama_cpp_peer: {error}; pip install numpy gguf llama-cpp-python, which builds libllama, or set "
             "LLAMA_CPP_LIB_PATH to the folder of a build of its version")
try:
    import tessera
except ImportError as error:
    sys.exit(f"llama_cpp_peer: {error}; PYTHONPATH has to name the folder python of a build of Tessera")

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/data/moe/llada_moe"
KINDS = gguf.GGMLQuantizationType
# Tessera's options, and llama.cpp's types of experts and other matrices.
FORMS = {"bf16": ([], KINDS.BF16, KINDS.BF16), "experts": (["--experts", "int8"], KINDS.Q8_0, KINDS.BF16),
         "all": (["--experts", "int8", "--dense", "int8"], KINDS.Q8_0, KINDS.Q8_0)}
BENCH_WORDS = {"bf16": "bf16", "experts": "i8"}  # llada_bench supports only these forms
NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "ffn_gate_inp": "mlp.gate", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj"}


def safetensors(path):
    """Returns {name: array} as views of the file; bf16 as raw bits."""
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
    types = {"BF16": np.uint16, "F32": np.float32, "I32": np.int32, "I64": np.int64}
    return {name: np.memmap(path, types[e["dtype"]], "r", 8 + size + e["data_offsets"][0], tuple(e["shape"]))
            for name, e in header.items() if name != "__metadata__"}


def floats(x):
    return np.array(x, np.float32) if x.dtype == np.float32 else (x.astype(np.uint32) << 16).view(np.float32)


def in_kind(x, kind):
    """The bytes of a matrix in one of llama.cpp's types."""
    if kind == KINDS.BF16 and x.dtype == np.uint16:
        return np.ascontiguousarray(x).view(np.uint8)
    return gguf.quants.quantize(floats(x), kind)


def tensors_of(folder, config, experts, dense):
    """Yields name, type, shape and source of each tensor of llama.cpp."""
    held = safetensors(folder / "model.safetensors")
    one = lambda name, of, kind: (name, kind, held[of].shape, lambda: held[of])
    yield one("token_embd.weight", "model.embed_tokens.weight", dense)
    yield one("output_norm.weight", "model.norm.weight", KINDS.F32)
    yield one("output.weight", "lm_head.weight", dense)
    for layer in range(config["num_hidden_layers"]):
        at, to = f"model.layers.{layer}.", f"blk.{layer}."
        for name, of in NAMES.items():
            plain = "norm" in name or name == "ffn_gate_inp"
            yield one(f"{to}{name}.weight", f"{at}{of}.weight", KINDS.F32 if plain else dense)
        for name in ("gate", "up", "down"):
            every = [held[f"{at}mlp.experts.{e}.{name}_proj.weight"] for e in range(config["num_experts"])]
            yield (f"{to}ffn_{name}_exps.weight", experts, (len(every), *every[0].shape),
                   lambda every=every: np.stack(every))


def describe(out, config):
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
    out.add_diffusion_shift_logits(False)


def add_bytes_as_tokens(out, config):
    """Adds a byte tokenizer and an empty template, because the program does not accept ids."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]  # GPT-2's names of bytes
    others = iter(range(256, 512))
    names = [chr(b if b in plain else next(others)) for b in range(256)]
    rest = config["vocab_size"] - len(names) - 1
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("default")
    out.add_token_list(names + ["ab"] + [f"[{i}]" for i in range(rest)])
    out.add_token_types([gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.UNUSED] * rest)
    out.add_token_merges(["a b"])  # an empty list is refused
    out.add_mask_token_id(config["mask_token_id"])
    out.add_eos_token_id(config["eos_token_id"])
    out.add_add_bos_token(False)
    out.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")


def write_gguf(folder, path, experts, dense, tokenizer=True):
    """Converts the folder to GGUF: norms and routers in f32, like llama.cpp's own tools."""
    config = json.loads((folder / "config.json").read_text())
    out = gguf.GGUFWriter(str(path), "llada-moe")
    describe(out, config)
    if tokenizer:
        add_bytes_as_tokens(out, config)
    else:
        out.add_tokenizer_model("no_vocab")
    made = list(tensors_of(folder, config, experts, dense))
    for name, kind, shape, _ in made:
        row = gguf.quants.quant_shape_to_byte_shape(shape, kind)
        out.add_tensor_info(name, row, np.dtype(np.uint8), int(np.prod(row)), raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_ti_data_to_file()
    for _, kind, _, make in made:
        out.write_tensor_data(in_kind(make(), kind))
    out.close()


class Llama:
    """A model of llama.cpp, with passes over the last given ids."""

    def __init__(self, path, threads, longest, exact=False):
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.model:
            sys.exit(f"llama_cpp_peer: llama.cpp cannot read {path}; delete it, so that it is written again")
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = context.n_batch = context.n_ubatch = longest
        context.n_threads = context.n_threads_batch = threads
        if exact:  # flash attention, the default, rounds keys and values to f16
            context.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        llama_cpp.llama_set_causal_attn(self.context, False)
        self.batch = llama_cpp.llama_batch_init(longest, 0, 1)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def run(self, ids):
        """Runs a pass. Without a KV cache, as for all diffusion models, llama.cpp computes logits of all tokens."""
        self.batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            self.batch.token[i], self.batch.pos[i], self.batch.logits[i] = token, i, 1
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = 0
        status = llama_cpp.llama_decode(self.context, self.batch)
        llama_cpp.llama_synchronize(self.context)
        if status:
            sys.exit(f"llama_cpp_peer: llama_decode ended with {status}")

    def logits(self, ids):
        self.run(ids)
        at = ctypes.cast(llama_cpp.llama_get_logits(self.context), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(at, shape=(len(ids), self.vocabulary)).copy()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        llama_cpp.llama_batch_free(self.batch)
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)


class Torch:
    """Passes of llada_peer.py: other weights, the same shapes, logits of all tokens."""

    def __init__(self, threads, config, tokens):
        import llada_peer
        import torch
        torch.set_num_threads(threads)
        self.mode = torch.inference_mode
        with self.mode():
            self.runs = llada_peer.variants(tokens, config["num_hidden_layers"], config["vocab_size"])

    def run(self, name):
        with self.mode():
            self.runs[name]()


def print_agreement(what, theirs, ours, **more):
    print_json({"agreement": what, "tokens": len(ours), **more,
                "relative_l2": float(f"{np.linalg.norm(theirs - ours) / np.linalg.norm(ours):.3g}"),
                "equal_argmax": round(float((theirs.argmax(1) == ours.argmax(1)).mean()), 4)})


def agree_with_released_code(threads):
    golden = safetensors(GOLDEN / "io.safetensors")
    ids, logits = golden["forward.0.tokens"].ravel().tolist(), golden["forward.0.logits"]
    logits = logits.reshape(len(ids), -1)
    with tempfile.TemporaryDirectory() as place:
        path = pathlib.Path(place) / "tiny.gguf"
        write_gguf(GOLDEN / "model", path, KINDS.F32, KINDS.F32, tokenizer=False)
        with Llama(path, threads, len(ids), exact=True) as theirs:
            print_agreement("llama.cpp and the released code, f32", theirs.logits(ids), logits)


def our_report(model, ids, masks, **options):
    return model.generate(prompt_ids=[ids[:len(ids) - masks]], max_tokens=masks, stop_at_eos="none", **options).report


def ids_of(prompt, masks, config):
    return [i * 977 % config["vocab_size"] for i in range(prompt)] + [config["mask_token_id"]] * masks


def print_turns(shape, threads, form, turns):
    """Prints medians in ms, and the ratios of the turns: median, least and most."""
    seconds = {name: [own for _, own in taken] for name, taken in turns.items()}
    line = {"shape": shape, "form": form, "threads": threads, "rounds": len(turns["tessera"])}
    line |= {f"{name}_ms": round(statistics.median(all_of) * 1e3, 1) for name, all_of in seconds.items()}
    for theirs in (name for name in seconds if not name.startswith("tessera")):
        for own in (name for name in seconds if name.startswith("tessera")):
            ratios = sorted(t / o for t, o in zip(seconds[theirs], seconds[own]))
            line[f"{theirs}_over_{own}"] = [round(r, 2) for r in (statistics.median(ratios), ratios[0], ratios[-1])]
    shares = sorted(share for taken in turns.values() for share, _ in taken)
    print_json({**line, "others": [round(statistics.median(shares), 3), shares[-1]]})


def busy_seconds():
    """Busy seconds of all CPUs since the start, including other virtual machines; and of this process and its children."""
    ticks = list(map(int, open("/proc/stat").readline().split()[1:9]))
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK"), sum(os.times()[:4])


def watched(way):
    """Returns (other processes' share of the CPUs, seconds) of a turn."""
    start, (all_before, own_before) = time.perf_counter(), busy_seconds()
    taken = way()
    (all_after, own_after), wall = busy_seconds(), time.perf_counter() - start
    return round(max(0.0, all_after - all_before - own_after + own_before) / wall / os.cpu_count(), 3), taken


def undisturbed(way, tries):
    """Returns the least disturbed of `tries` turns; stops at a turn with a share of others below a twentieth."""
    said = []
    while len(said) < tries and (not said or min(said)[0] > 0.05):
        time.sleep(0.2)  # threads of the previous turn come to rest
        said.append(watched(way))
    return min(said)


def in_turn(ways, tries, rounds):
    """Returns {way: (share of others, seconds) for each round}."""
    turns = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            turns[name].append(undisturbed(way, tries))
    return turns


def bench_seconds(threads, shape, form):
    """Seconds of a Tessera pass with logits of all tokens in a separate process: other weights, the same shapes."""
    said = subprocess.run([program("llada_bench"), str(threads), shape, "vanilla", form, "2"], check=True,
                          capture_output=True, text=True)
    return json.loads(said.stdout.splitlines()[-1])["ms"] / 1e3


def compare_passes(form, config, ours, theirs, threads, shapes, rounds, torch):
    now = clock(threads)

    def timed(run):
        run()  # after another program's turn all caches are cold
        taken = []
        for _ in range(2):
            start = now()
            run()
            taken.append(now() - start)
        return min(taken)

    for prompt, masks in shapes:
        ids = ids_of(prompt, masks, config)
        runs = {"tessera": lambda: our_report(ours, ids, masks, block=masks, decode="steps:1", cache="none"),
                "llama_cpp": lambda: theirs.run(ids)}
        if torch and form == "bf16":
            peer = Torch(threads, config, len(ids))
            runs |= {f"torch_{name}": lambda name=name: peer.run(name) for name in peer.runs}
        ways = {name: lambda run=run: timed(run) for name, run in runs.items()}
        if form in BENCH_WORDS and os.path.exists(program("llada_bench")):
            shape = f"{len(ids)}x{config['num_hidden_layers']}x{config['vocab_size']}"
            ways["tessera_all_logits"] = lambda: bench_seconds(threads, shape, BENCH_WORDS[form])
        print_turns(f"{prompt}+{masks}", threads, form, in_turn(ways, 1 if threads == 1 else 2, rounds))


def run_program(path, threads, text, length, block, steps):
    """Returns the time of all passes with sampling reported by llama.cpp's diffusion program, and its CPU time."""
    before = sum(os.times()[2:4])
    out = subprocess.run([os.environ["LLAMA_DIFFUSION_CLI"], "-m", path, "-p", text, "-t", str(threads),
                          "-tb", str(threads), "-ub", str(length), "-b", str(length), "-c", str(length), "-ngl", "0",
                          "--temp", "0", "--diffusion-block-length", str(block), "--diffusion-steps", str(steps)],
                         stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    said = re.search(r"total time: ([0-9.]+)ms", out.stdout + out.stderr)
    if not said:
        raise RuntimeError(f"{out.args[0]} ended with {out.returncode}: {(out.stdout + out.stderr)[-300:]}")
    return float(said[1]) / 1e3, sum(os.times()[2:4]) - before


def compare_answers(form, ours, path, threads, rounds, prompt=16, masks=112, block=32, steps=8):
    """Compares answers in blocks of `steps` steps each, by confidence. The prompt must be shorter than a block;
    otherwise the program makes a pass for each block after the end."""
    text, blocks, now = "the quick brown fox"[:prompt], (prompt + masks) // block, clock(threads)
    ids = list(text.encode()) + [0] * masks

    def answer(cache):
        start = now()
        our_report(ours, ids, masks, block=block, decode=f"steps:{steps}", cache=cache)
        return now() - start

    def theirs():
        whole = run_program(path, threads, text, prompt + masks, block, steps * blocks)
        if threads > 1:
            return whole[0]
        few = run_program(path, threads, text, prompt + masks, block, blocks)  # same start-up with fewer passes
        return (whole[1] - few[1]) * steps / (steps - 1)

    turns = in_turn({"tessera": lambda: answer("none"), "tessera_dual_cache": lambda: answer("dual"),
                     "llama_cpp": theirs}, 1, rounds)
    print_turns(f"answer {prompt}+{masks}, blocks of {block}, {steps} steps each", threads, form, turns)


def main():
    words = [w for w in sys.argv[1:] if w != "torch"]
    if not words:
        sys.exit(__doc__)
    folder = pathlib.Path(words[0])
    threads = int(words[1]) if len(words) > 1 else 1
    shapes = [tuple(map(int, w.split("+"))) for w in (words[2] if len(words) > 2 else "64+64,256+256").split(",")]
    rounds = int(words[3]) if len(words) > 3 else 5
    config = json.loads((folder / "config.json").read_text())
    quiet = llama_cpp.llama_log_callback(lambda *_: None)  # must outlive all calls
    llama_cpp.llama_log_set(quiet, None)
    llama_cpp.llama_backend_init()
    print_json({"tessera": tessera.__version__, "llama_cpp_python": llama_cpp.__version__, "layers": config["num_hidden_layers"],
                "llama_cpp": llama_cpp.llama_print_system_info().decode()})
    agree_with_released_code(threads)
    for form in (words[4] if len(words) > 4 else "bf16,experts,all").split(","):
        options, experts, dense = FORMS[form]
        path = folder.parent / f"{folder.name}-{form}.gguf"
        if not path.exists():
            write_gguf(folder, path, experts, dense)
        own = folder
        if options:
            own = folder.parent / f"{folder.name}-{form}"
            if not own.exists():
                subprocess.run([os.environ.get("TESSERA", "build/release/tessera"), "quantise", folder, "-o", own,
                                *options, "--progress", "none"], check=True, stdout=subprocess.DEVNULL)
        ours = tessera.LanguageModel.from_pretrained(own, threads=threads)
        with Llama(path, threads, max(map(sum, shapes))) as theirs:
            ids = ids_of(*min(shapes), config)
            print_agreement("llama.cpp and Tessera", theirs.logits(ids),
                            ours.forward("model", {"input_ids": np.array(ids, np.int32)})["logits"], form=form)
            compare_passes(form, config, ours, theirs, threads, shapes, rounds, "torch" in sys.argv)
        if "LLAMA_DIFFUSION_CLI" in os.environ:
            compare_answers(form, ours, path, threads, rounds)


if __name__ == "__main__":
    main()
