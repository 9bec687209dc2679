#!/usr/bin/env python3
"""Text from a language model: golden ids, batches, JSON, and one line for what does not fit."""

import json
import os
import pty
import re
import subprocess
import unittest

from program import DATA, PROGRAM, SHAPES, ProgramTest, read_safetensors, write_safetensors

MOE, TWO = DATA / "moe/llada_moe", DATA / "moe/llada2"


def golden(case, name):
    return next(r for r in json.loads((case / "case.json").read_text())["runs"] if r["name"] == name)


def ids(values):
    return ",".join(map(str, values))


class Complete(ProgramTest):
    def complete(self, case, *arguments):
        done = self.run_here("complete", case / "model", "--dtype", "f32", *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_golden_ids(self):
        run = golden(MOE, "dual_credit")
        out = self.complete(MOE, "--prompt-ids", ids(run["prompt"]), "--max-tokens", 32, "--block", 8,
                            "--decode", "credit:0.9", "--cache", "dual", "--stop-at-eos", "none")
        self.assertEqual(out.strip(), ids(run["tokens"][len(run["prompt"]):]))
        run = golden(TWO, "half_steps_cached")
        out = self.complete(TWO, "--prompt-ids", ids(run["prompt"]), "--max-tokens", 32, "--block", 8,
                            "--threshold", 0.9, "--steps", 4, "--stop-at-eos", "none")
        self.assertEqual(out.strip(), ids(run["tokens"]))

    def test_json_of_a_batch(self):
        out = json.loads(self.complete(TWO, "--prompt-ids", "1,2,3", "--prompt-ids", "4", "--json",
                                       "--max-tokens", 9, "--select", "des-vote:0.5"))
        self.assertEqual(len(out["completions"]), 2)
        self.assertEqual(out["select"], "des-vote:0.5")
        for one in out["completions"]:
            self.assertEqual(one["forwards"], len(one["passes"]))

    def test_shipped_models_know_their_tasks(self):
        for model in ("tasks-a", "tasks-b"):
            done = self.run_here("complete", model, "--prompt", "rev stone=", "--prompt", "sort hello=", "--json")
            out = json.loads(done.stdout)
            self.assertEqual([c["text"] for c in out["completions"]], ["enots", "ehllo"])
            self.assertEqual({c["finish"] for c in out["completions"]}, {"end"})
            scores = self.run_here("eval", "tasks", model, "--limit", 120, "--select", "des-seq:4", "--json")
            for rule in map(json.loads, scores.stdout.splitlines()):
                self.assertGreaterEqual(rule["accuracy"], 0.9, rule)
            self.refused(2, "complete", model, "--prompt", "Sort", says=["no token for 'S'", "tokenizer.json"])

    def test_drawing(self):
        ask = ("complete", "tasks-b", "--prompt", "rev stone=", "--max-tokens", 8)
        done = self.run_here(*ask, "--temperature", 20, "--seed", 4, "--n", 3, "--json", "--logprobs", 2)
        out = json.loads(done.stdout)["completions"]
        self.assertEqual([(c["prompt"], c["seed"]) for c in out], [(0, 4), (0, 5), (0, 6)])
        self.assertGreater(len({c["text"] for c in out}), 1)
        for one in out:
            self.assertEqual([said["id"] for said in one["logprobs"]], one["ids"])
            self.assertEqual({len(said["top"]) for said in one["logprobs"]}, {2})
        done = self.run_here(*ask, "--temperature", 20, "--seed", 4, "--n", 3)
        self.assertEqual(done.stdout, "\n---\n".join(c["text"] for c in out) + "\n")
        alone = self.run_here(*ask, "--temperature", 20, "--seed", 6)
        self.assertEqual(alone.stdout, out[2]["text"] + "\n")
        for few in (("--top-k", 1), ("--top-p", "0.000001")):
            self.assertEqual(self.run_here(*ask, "--temperature", 20, *few).stdout, "enots\n")
        self.refused(2, *ask, "--top-k", 3, says=["temperature 0 draws nothing", "--temperature"])
        self.refused(2, *ask, "--n", 2, says=["one and the same", "--temperature"])
        self.refused(2, *ask, "--temperature", 1, "--top-p", 2, says="--top-p 2")
        self.refused(2, *ask, "--repetition-penalty", 0, says="repetition_penalty 0")
        self.refused(2, *ask, "--top-k", -1, says="--top-k")

    def test_options_without_effect_are_noted(self):
        ask = ("complete", "tasks-a", "--prompt", "sort hello=")
        for more, note in ((("--seed", "5"), "note: --seed has no effect: at temperature 0"),
                           (("--logprobs", "2"), "note: --logprobs has no effect"),
                           (("--seed", "5", "--temperature", "1"), ""), (("--logprobs", "2", "--json"), ""),
                           (("--logprobs", "2", "--report", "r.json"), "")):
            done = self.run_here(*ask, *more)
            self.assertEqual((done.returncode, "has no effect" in done.stderr), (0, bool(note)), more)
            self.assertIn(note, done.stderr)
        canvas = ("complete", DATA / "moe/diffusion_gemma_canvas256/model", "--prompt-ids", "5,17", "--block", "16", "--max-tokens", "16", "--steps", "1")
        done = self.run_here(*canvas, "--seed", "5")
        self.assertEqual((done.returncode, "has no effect" in done.stderr), (0, False), done.stderr)

    def test_length_of_an_answer_is_the_models(self):
        for name in ("tokenizer.json", "tokenizer_config.json", "config.json", "model.safetensors"):
            (self.folder / "model").mkdir(exist_ok=True)
            (self.folder / "model" / name).write_bytes((SHAPES.parent / "tasks-a" / name).read_bytes())
        (self.folder / "model/generation_config.json").write_text('{"max_new_tokens": 3}')
        done = self.run_here("complete", "model", "--prompt", "rev stone=", "--json", "--block", 3)
        self.assertEqual(len(json.loads(done.stdout)["completions"][0]["ids"]), 3)
        (self.folder / "model/generation_config.json").write_text('{"max_new_tokens": "many"}')
        self.refused(3, "complete", "model", "--prompt", "rev stone=",
                     says=["generation_config.json", "max_new_tokens"])

    def test_canvases_of_a_trained_model(self):
        tasks = [json.loads(line) for line in (SHAPES.parent / "tasks-c/tasks.jsonl").read_text().splitlines()[:4]]
        prompts = [word for task in tasks for word in ("--prompt", task["prompt"])]
        for more in ((), ("--seed", 7), ("--plan", "expert=2"), ("--select", "des-max:0.25"), ("--dtype", "int8")):
            done = self.run_here("complete", "tasks-c", *prompts, *more)
            self.assertEqual(done.stdout.split("\n---\n"), [task["answer"] for task in tasks[:3]] + [tasks[3]["answer"] + "\n"], more)
        said = json.loads(self.run_here("complete", "tasks-c", "--prompt", tasks[0]["prompt"], "--json").stdout)
        self.assertEqual((said["completions"][0]["finish"], said["ruled_share"]), ("end", 1))

    def test_whose_limit_ended_an_answer_is_said(self):
        canvas = ("complete", DATA / "moe/diffusion_gemma_canvas256/model", "--prompt-ids", "5,17", "--block", "16", "--steps", "1")
        for more, limit, tokens, noted in (((), "generation_config.json", 256, True), (("--max-tokens", 300), "request", 300, False)):
            done = self.run_here(*canvas, *more, "--json")
            said = json.loads(done.stdout)
            finish = said["completions"][0]["finish"]
            self.assertEqual((said["limit"], said["max_tokens"]), (limit, tokens))
            self.assertEqual("'max_new_tokens' of generation_config.json" in done.stderr, noted and finish == "length", done.stderr)
        done = self.run_here(*canvas, "--max-tokens", 16, "--n", 2, "--json")
        self.assertEqual([one["seed"] for one in json.loads(done.stdout)["completions"]], [0, 1], done.stderr)

    def test_a_folder_may_say_how_tokens_are_edited(self):
        model = self.copy_model("editing", DATA / "moe/llada21_editing/model")
        run = golden(DATA / "moe/llada21_editing", "quality_cached")
        settings = {"threshold": 0.65, "editing_threshold": 0.45, "max_post_steps": 12}
        (model / "generation_config.json").write_text(json.dumps(settings))
        ask = ("--dtype", "f32", "--prompt-ids", ids(run["prompt"]), "--max-tokens", 20,
               "--stop-at-eos", "none")
        self.assertEqual(self.run_here("complete", model, *ask).stdout.strip(), ids(run["tokens"]))
        usual = self.run_here("complete", model, *ask, "--decode", "threshold:0.65").stdout
        self.assertNotEqual(usual.strip(), ids(run["tokens"]))
        (model / "generation_config.json").write_text('{"editing_threshold": "low"}')
        self.refused(3, "complete", model, *ask, says=["generation_config.json", "editing_threshold"])
        self.refused(2, "complete", MOE / "model", "--prompt-ids", "1", "--decode", "edit:speed",
                     says=["block-causal", "threshold:T"])

    def test_bad_input(self):
        model = MOE / "model"
        self.refused(2, "complete", model, says="no prompt")
        self.refused(2, "complete", model, "--prompt-ids", "1,x", says="numbers joined by commas")
        self.refused(2, "complete", model, "--prompt-ids", "1", "--select", "des-best:2",
                     says=["des-best", "known are"])
        self.refused(2, "complete", model, "--prompt-ids", "1", "--decode", "guess", says="threshold:T")
        self.refused(2, "complete", model, "--prompt-ids", "1", "--cache", "block", says="bidirectional")
        self.refused(2, "complete", model, "--chat", "none.json", says="none.json")
        self.refused(3, "complete", model, "--prompt", "hi", says="tokenizer.json")
        self.refused(2, "complete", "shapes", "--prompt", "hi", says="no language model")
        self.refused(2, "generate", model, "--class", "1", says="it completes texts")

    def test_models_that_are_not_what_they_say(self):
        ask = ("--prompt-ids", "1", "--max-tokens", 4)
        model = self.copy_model("unknown", MOE / "model")
        self.change_json(model / "config.json", architectures=["LlamaForCausalLM"], model_type="llama")
        self.refused(3, "complete", model, *ask, says=["LlamaForCausalLM", "LLaDAMoEModelLM"])
        self.refused(3, "complete", self.folder / "nowhere", *ask, says="nowhere")
        model = self.copy_model("maskless", MOE / "model")
        self.change_json(model / "config.json", mask_token_id=None)
        self.refused(3, "complete", model, *ask, says=["mask_token_id", "config.json"])
        model = self.copy_model("torn", MOE / "model")
        (model / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": [')
        self.refused(3, "complete", model, *ask, says="tokenizer.json")
        (model / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": 3}}')
        self.refused(3, "complete", model, *ask, says="tokenizer.json")
        model = self.copy_model("heads", MOE / "model")
        self.change_json(model / "config.json", num_experts=3, num_experts_per_tok=4)
        self.refused(3, "complete", model, *ask, says="num_experts_per_tok")

    def test_weights_that_are_no_numbers(self):
        odd = {"nan": b"\x00\x00\xc0\x7f", "inf": b"\x00\x00\x80\xff"}
        ask = ("--prompt-ids", "1,2,3", "--max-tokens", 8, "--dtype")
        for case, name, part in ((MOE, "model.layers.1.self_attn.o_proj.weight", "block 1 of the model"),
                                 (MOE, "model.layers.2.mlp.gate.weight", "the router of block 2"),
                                 (TWO, "model.layers.0.mlp.down_proj.weight", "block 0 of the model"),
                                 (TWO, "model.word_embeddings.weight", "the embedding of the model"),
                                 (TWO, "lm_head.weight", "the head of the model")):
            for kind, value in odd.items():
                model = self.copy_model(f"{case.name}-{name}-{kind}", case / "model")
                tensors, _ = read_safetensors(model / "model.safetensors")
                dtype, shape, data = tensors[name]
                self.assertEqual(dtype, "F32")
                tensors[name] = (dtype, shape, value * (len(data) // 4))
                write_safetensors(model / "model.safetensors", tensors)
                self.refused(3, "complete", model, *ask, "bf16" if kind == "inf" else "f32",
                             says=[part, "no numbers"])

    def test_requests_that_do_not_fit(self):
        model = MOE / "model"
        ask = ("complete", model, "--prompt-ids", "1,2,3", "--max-tokens", 8)
        self.refused(2, "complete", model, "--prompt-ids", ids([1] * 300), "--max-tokens", 8,
                     says=["300 tokens", "context of 256"])
        for tokens in (-3, 0):
            self.refused(2, "complete", model, "--prompt-ids", "1", "--max-tokens", tokens,
                         says=["--max-tokens", str(tokens), "1 to 1048576"])
        self.refused(2, "complete", "tasks-a", "--prompt", "", says=["--prompt ''", "asks for nothing"])
        self.refused(2, "complete", model, "--prompt-ids", "", says="--prompt-ids")
        self.refused(2, *ask, "--block", 500, says=["block of 500", "context of 256"])
        self.refused(2, *ask, "--block", 0, says="--block")
        self.refused(2, *ask, "--select", "topk:17", says="the model has 16")
        self.refused(2, *ask, "--select", "des-seq:17", says="the model has 16")
        self.refused(2, *ask, "--select", "des-vote:0.5,k=17", says="the model has 16")
        self.refused(2, *ask, "--select", "des-vote:0.01", says=["leaves no expert", "beta >= 0.0625"])
        self.refused(2, *ask, "--select", "des-cover:0", says="des-cover")
        self.refused(2, *ask, "--select", "naee:0.2,weights=A", says=["'weights' changes nothing of 'naee'"])
        self.refused(2, *ask, "--select", "vanilla,k=2", says=["'k' changes nothing of 'vanilla'"])
        self.refused(2, *ask, "--decode", "hierarchy:0.4,0.9", says=["LOW 0.9", "LOW below T"])
        self.refused(2, *ask, "--select", "des-vote:2", says="des-vote")
        self.refused(2, "complete", model, "--prompt-ids", "95", says="mask token 95")
        self.refused(2, "complete", model, "--prompt-ids", "96", says="vocabulary of 96")
        self.refused(2, *ask, "--decode", "steps:4", "--steps", 3, says="contradict")

    def test_malformed_chats(self):
        model = self.copy_model("chatty", MOE / "model")
        vocab = {chr(c): c - 32 for c in range(33, 127)} | {"\u0120": 0}
        (model / "tokenizer.json").write_text(json.dumps(
            {"model": {"type": "BPE", "vocab": vocab, "merges": []},
             "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}))
        (model / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        chat = self.folder / "chat.json"
        for text, says in (("[{", ["chat", "breaks off"]), ("[]", "role"), ('[{"role": "user"}]', "message 0"),
                           ('{"messages": 3}', "role"), ("", ["'" + str(chat) + "' holds nothing", '"role"']),
                           (" \n", "holds nothing"), ("Hello there", ["at byte 1, at 'Hello there'", '"role"'])):
            chat.write_text(text)
            said = self.refused(2, "complete", model, "--chat", chat, "--max-tokens", 4, says=says)
            self.assertNotIn("download", said)
        self.refused(2, "complete", model, "--chat", "-", "--max-tokens", 4, input="",
                     says=["--chat: standard input holds nothing", '"role"'])
        chat.write_text('[{"role": "user", "content": "hi"}]')
        (model / "chat_template.jinja").write_text("{% include 'x' %}")
        self.refused(3, "complete", model, "--chat", chat, "--max-tokens", 4, says="include")

    def test_evaluation_of_tasks(self):
        self.refused(2, "eval", says="MODEL is required")
        self.refused(2, "eval", "tasks", says=["MODEL is required", "eval tasks --help"])
        self.refused(2, "eval", "tasks", MOE / "model", "--slect", "topk:1",
                     says=["did you mean '--select'", "eval tasks --help"])
        self.refused(2, "eval", "tasks", MOE / "model", says="--data")
        self.refused(3, "eval", "tasks", "shapes", says="no language model")
        self.refused(2, "eval", "experts", MOE / "model", says="--data")
        self.refused(4, "eval", "experts", MOE / "model", "--data", "x.jsonl", "--plan", "expert=2")

    def test_examples_from_standard_input(self):
        lines = "".join(json.dumps({"prompt": p, "answer": "x"}) + "\n" for p in ("sort cab=", "reverse hello="))
        (self.folder / "x.jsonl").write_text(lines)
        for command in (("tasks", "--select", "des-vote:0.5", "--batch", "2"), ("experts", "--select", "des-vote:0.5")):
            def found(data, text):
                done = self.run_here("eval", command[0], "tasks-a", *command[1:], "--data", data,
                                     "--max-tokens", 8, "--json", input=text)
                self.assertEqual((done.returncode, done.stderr), (0, ""), command)
                return re.sub(r'"(milliseconds|seconds_per_assignment|seconds_per_expert|explained)":[^,}\n]*', "", done.stdout)
            self.assertEqual(found("-", lines), found("x.jsonl", ""))
            for text, says in (("", "standard input: there is no example"), ("{", "standard input: line 1 is not JSON"),
                               ('{"prompt": 3}', "standard input: line 1"), ("x" * (17 << 20), ["--data", "16 MB"])):
                self.refused(2, "eval", command[0], "tasks-a", "--data", "-", says=says, input=text)

    def test_ranks(self):
        words = ("--prompt-ids", "5,17,30", "--prompt-ids", "8", "--max-tokens", 9, "--json",
                 "--select", "des-vote:0.5")
        for case, plans in ((MOE, ("expert=2", "expert=3,placement=strided", "tensor=4")),
                            (TWO, ("expert=4", "tensor=2"))):
            one = json.loads(self.complete(case, *words))
            for plan in plans:
                many = json.loads(self.complete(case, *words, "--plan", plan))
                for mine, other in zip(many["completions"], one["completions"]):
                    for a, b in zip(mine.pop("confidences"), other["confidences"]):
                        self.assertAlmostEqual(a, b, 4)  # sums of tensor=N have another order
                    self.assertEqual(mine, {k: v for k, v in other.items() if k != "confidences"}, plan)
                self.assertEqual(many["experts_read"], one["experts_read"], plan)
                self.assertGreater(many["bytes_sent"], 0)

    def test_int8_experts(self):
        words = ("complete", MOE / "model", "--prompt-ids", "5,17,30", "--max-tokens", 9, "--json", "--dtype")
        whole = json.loads(self.run_here(*words, "bf16").stdout)
        small = json.loads(self.run_here(*words, "int8").stdout)
        self.assertNotEqual(small["bytes_read"], whole["bytes_read"])  # half, in wider models
        self.refused(2, *words, "int4", says="--experts int4")
        tasks = ("eval", "tasks", "tasks-a", "--limit", "12", "--json", "--dtype")
        lines = [json.loads(self.run_here(*tasks, dtype).stdout) for dtype in ("bf16", "int8")]
        self.assertGreaterEqual(lines[1]["accuracy"], 0.9)
        self.assertLess(lines[1]["bytes"], lines[0]["bytes"])  # half, in wider models
        done = self.run_here("generate", DATA / "moe/dit_moe_flash/model", "--class", "1", "--steps", "2",
                             "--dtype", "int8", "--latents-only", "--save-latents", "x.safetensors",
                             "--report", "x.json", "--progress", "none")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(json.loads((self.folder / "x.json").read_text())["precision"], "bf16, experts i8, products i8")

    def test_plans_that_cannot_run(self):
        words = ("complete", TWO / "model", "--prompt-ids", "1", "--plan")
        self.refused(4, *words, "expert=17", says="use at most 16")
        self.refused(4, *words, "tensor=3", says=["4 heads", "valid are: 1, 2"])
        self.refused(4, *words, "data=2", says="prompts are not spread")
        self.refused(4, *words, "expert=2,schedule=displaced", says="nothing is stale")
        self.refused(4, *words, "distrifusion=2", says="for images")
        self.refused(4, *words, "expert=2,data=2,tensor=2", says="leave out expert=")
        self.refused(4, *words, "expert=2", "--ranks", 3, says="needs 2 ranks")
        self.refused(4, *words, "pipefusion=2", says="pipefusion= and patches= are for images")
        self.refused(4, *words, "pipeline=2", says="unknown plan entry 'pipeline'")
        self.refused(4, *words, "ulysses=2", says="are for images")

    def test_visualise_shows_blocks_on_standard_error(self):
        ask = ("complete", MOE / "model", "--max-tokens", "8", "--block", "4", "--stop-at-eos", "none",
               "--visualise", "--prompt-ids", "5")
        done = self.run_here(*ask)
        self.assertEqual(done.returncode, 0)
        lines = done.stderr.splitlines()  # a line a block
        self.assertEqual([line[:14] for line in lines], ["tokens from 1,", "tokens from 5,"])
        self.assertNotIn("\u2591", done.stderr)  # they are done
        self.assertEqual(done.stdout.count(","), 7)
        done = self.run_here(*ask, "--prompt-ids", "6,7")
        self.assertEqual(sorted(line[:18] for line in done.stderr.splitlines()),
                         ["[0] tokens from 1,", "[0] tokens from 5,", "[1] tokens from 2,", "[1] tokens from 6,"])
        done = self.run_here("complete", "tasks-a", "--prompt", "sort hello=", "--visualise")
        self.assertEqual(done.stdout, "ehllo\n")
        self.assertRegex(done.stderr, r"^tokens from 11, pass \d+: ehllo<\|endoftext\|> x\d+ \n$")

    def test_a_terminal_sees_a_block_fill_in(self):
        leader, follower = pty.openpty()
        done = subprocess.run([PROGRAM, "complete", MOE / "model", "--max-tokens", "4", "--block", "4",
                               "--stop-at-eos", "none", "--visualise", "--prompt-ids", "5", "--decode", "steps:4"],
                              env={**os.environ, "TERM": "xterm"}, stderr=follower, stdout=subprocess.DEVNULL,
                              timeout=120)
        os.close(follower)
        shown = os.read(leader, 65536).decode()
        os.close(leader)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(shown.count("\n"), 1)  # one line, written again with each pass
        self.assertEqual([part.count("\u2591") for part in shown.split("\r\x1b[K")[1:]], [3, 2, 1, 0])

    def test_answers_are_apart_and_may_be_empty(self):
        done = self.run_here("complete", "tasks-b", "--prompt", "sort hello=", "--prompt", "rev stone=")
        self.assertEqual(done.stdout, "ehllo\n---\nenots\n")
        ask = ("complete", "tasks-b", "--prompt", "sort hello=", "--stop", "e")
        done = self.run_here(*ask)
        self.assertEqual((done.returncode, done.stdout), (0, "\n"))  # no ids in place of a text
        self.assertEqual(json.loads(self.run_here(*ask, "--json").stdout)["completions"][0]["text"], "")

    def test_prompts_come_from_files_and_standard_input(self):
        (self.folder / "prompts.txt").write_text("sort hello=\r\nrev stone=\n\n")
        done = self.run_here("complete", "tasks-b", "--prompt-file", "prompts.txt")
        self.assertEqual(done.stdout, "ehllo\n---\nenots\n")
        done = self.run_here("complete", "tasks-b", "--prompt-file", "-", input="rev stone=\n")
        self.assertEqual(done.stdout, "enots\n")
        done = self.run_here("complete", "tasks-b", "--prompt", "-", input="rev stone=\n")
        self.assertEqual(done.stdout, "enots\n")
        self.refused(2, "complete", "tasks-b", "--prompt-file", "none.txt", says=["--prompt-file", "none.txt"])
        for command in ("complete", "tokenize"):
            self.refused(2, command, "tasks-b", "--prompt-file", "-", input="a\n\nb\n", says="has nothing in line 2;")
        self.refused(2, "complete", "tasks-b", "--prompt-file", "/dev/zero", says="no regular file")

    def test_json_has_a_line_an_array(self):
        text = self.run_here("complete", "tasks-a", "--prompt", "sort hello=", "--json").stdout
        one = json.loads(text)["completions"][0]
        self.assertEqual(len(one["confidences"]), len(one["ids"]))
        self.assertEqual(len(one["prompt_ids"]), one["usage"]["prompt_tokens"])
        self.assertEqual(len(json.loads(text)["pass_seconds"]), json.loads(text)["forwards"])
        for key in ("ids", "prompt_ids", "confidences", "pass_seconds"):
            line = next(line for line in text.splitlines() if line.strip().startswith(f'"{key}": '))
            self.assertRegex(line, r"\[.*\],?$")
        self.assertLess(len(text.splitlines()), 60)

    def test_tokenize(self):
        done = self.run_here("tokenize", "tasks-a", "--prompt", "sort hello=", "--prompt", "a")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        first, second = done.stdout.split("\n\n")
        self.assertTrue(first.startswith("model: 11 tokens\n"))
        self.assertEqual(first.splitlines()[-1].split()[1], '"="')
        self.assertTrue(second.startswith("model: 1 tokens\n"))
        (self.folder / "prompts.txt").write_text("sort hello=\n")
        for words, typed in ((("--prompt-file", "prompts.txt"), None), (("--prompt", "-"), "sort hello=\n")):
            same = self.run_here("tokenize", "tasks-a", *words, input=typed)
            self.assertEqual(same.stdout, first + "\n")
        two = json.loads(self.run_here("tokenize", "scenes", "--prompt", "a red circle", "--json").stdout)
        self.assertEqual([one["tokenizer"] for one in two], ["tokenizer", "tokenizer_2"])
        for one in two:
            self.assertIn("red</w>", one["pieces"])
            self.assertEqual(len(one["ids"]), len(one["pieces"]))
            self.assertGreaterEqual(one["length"], len(one["ids"]))
        self.refused(2, "tokenize", "tasks-a", says="--prompt")
        self.refused(2, "tokenize", "shapes", "--prompt", "x", says="no tokenizer")
        self.refused(2, "tokenize", "scenes", "--prompt", "x", "--tokenizer", "tokenizer_3", says="it has: tokenizer")

    def test_too_large_a_model_is_refused_before_it_is_read(self):
        model = self.copy_model("large", TWO / "model")
        self.change_json(model / "config.json", vocab_size=157184, hidden_size=8192, intermediate_size=32768,
                         moe_intermediate_size=65536, num_experts=512, n_group=8, num_hidden_layers=16,
                         num_attention_heads=64, head_dim=128, rotary_dim=None)
        self.refused(6, "complete", model, "--prompt-ids", "1", "--max-tokens", 8, leaves=True,
                     says=["a pass may ask of a layer", "would need about", "weights", "the machine has", "over machines"])

    def test_experts_that_do_not_fit_are_read_while_it_runs(self):
        ask = ("--prompt", "sort hello=", "--json")
        whole = self.run_here("complete", "tasks-b", *ask)
        self.assertEqual(whole.stderr, "")
        whole = json.loads(whole.stdout)
        self.assertNotIn("streamed_experts", whole)
        budget = whole["peak_bytes"]["total"] - 500_000
        done = self.run_here("complete", "tasks-b", *ask, "--memory-budget", f"{budget / 1e6}MB")
        self.assertRegex(done.stderr, r"^note: reads experts while it runs \(3\.\d MB of weights\) to stay within \d\.\d MB: "
                         r"\d+ of 192 stay in memory, the others are read from the folder when tokens go to them\n$")
        some = json.loads(done.stdout)
        self.assertLessEqual(some["peak_bytes"]["total"], budget)
        streamed = some.pop("streamed_experts")
        for key in ("seconds", "pass_seconds", "tokens_per_second", "peak_bytes", "per_rank"):
            del whole[key], some[key]
        self.assertEqual(some, whole)
        self.assertEqual(streamed["hits"] + streamed["misses"], whole["experts_read"])
        self.assertEqual(streamed["bytes"] % streamed["misses"], 0)
        self.refused(6, "complete", "tasks-b", *ask, "--memory-budget", "1MB",
                     says=["with the 64 experts that a pass may ask of a layer", "--memory-budget allows 1.0 MB", "it fits into"])
        scores = [self.run_here("eval", "tasks", "tasks-b", "--limit", 6, "--batch", 1, "--select", "des-vote:0.5", "--json", *more)
                  for more in ((), ("--memory-budget", f"{budget / 1e6}MB"))]
        self.assertEqual([one.returncode for one in scores], [0, 0], scores[1].stderr)
        lines = [[json.loads(line) for line in one.stdout.splitlines()] for one in scores]
        for all_there, read in zip(*lines, strict=True):
            del all_there["milliseconds"], read["milliseconds"]
            self.assertEqual(all_there, read)


if __name__ == "__main__":
    unittest.main()
