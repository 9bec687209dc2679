#!/usr/bin/env python3
"""A folder with the experts in int8: the bits of --dtype int8, and nothing half-written."""

import json
import resource
import signal
import subprocess
import time
import unittest

from program import DATA, PROGRAM, SHAPES, SOURCE, ProgramTest, read_safetensors, write_safetensors

TWO = DATA / "moe/llada2/model"


class Quantise(ProgramTest):
    def quantised(self, model, name="q", *words):
        done = self.run_here("quantise", model, "-o", name, "--progress", "none", *words)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, name + "\n", ""))
        return self.folder / name

    def answer(self, *arguments):
        done = self.run_here("complete", *arguments, "--prompt", "sort hello=", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_the_folder_runs_as_int8_at_load_does(self):
        folder = self.quantised("tasks-b")
        stored, load = self.answer(folder), self.answer("tasks-b", "--dtype", "int8")
        self.assertEqual(stored["completions"], load["completions"])
        self.assertEqual(stored["completions"][0]["text"], "ehllo")
        self.assertEqual(self.answer(folder, "--dtype", "int8")["completions"], load["completions"])

    def test_the_form_of_the_files(self):
        folder = self.quantised(TWO)
        before, _ = read_safetensors(TWO / "model.safetensors")
        after, _ = read_safetensors(folder / "model.safetensors")
        scales = {name for name in after if name.endswith("_scale")}
        whole = {name.removesuffix("_scale") for name in scales}
        self.assertEqual(set(after) - scales, set(before))
        self.assertEqual(whole, {name for name, (dtype, _, _) in after.items() if dtype == "I8"})
        self.assertTrue(all("mlp.experts." in name for name in whole))
        for name, (dtype, shape, data) in before.items():
            if name not in whole:
                self.assertEqual(after[name], (dtype, shape, data), name)
            else:
                self.assertEqual(after[name][1], shape)
                self.assertEqual(after[name + "_scale"][:2], ("F32", shape[:1]))
        config, was = (json.loads((f / "config.json").read_text()) for f in (folder, TWO))
        self.assertEqual(config.pop("quantization_config"), {"quant_method": "tessera", "experts": "int8"})
        self.assertEqual(config, was)

    def test_int4(self):
        done = self.run_here("quantise", TWO, "-o", "q", "--progress", "none", "--experts", "int4", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        made, folder = json.loads(done.stdout), self.folder / "q"
        before, _ = read_safetensors(TWO / "model.safetensors")
        after, _ = read_safetensors(folder / "model.safetensors")
        matrices = {one["name"] for one in made["matrices"]}
        self.assertEqual(matrices, {name for name in before if "mlp.experts." in name})
        self.assertTrue(all(one["bits"] == 4 and 0.02 < one["relative_error"] < 0.12 for one in made["matrices"]))
        self.assertLess(made["bytes"], made["bytes_before"])
        self.assertEqual(set(after), set(before) | {name + "_scale" for name in matrices})
        for name, (dtype, shape, data) in before.items():
            if name not in matrices:
                self.assertEqual(after[name], (dtype, shape, data), name)
            else:
                rows, k = shape
                self.assertEqual(after[name][:2], ("U8", [rows, k // 2]))
                self.assertEqual(after[name + "_scale"][:2], ("BF16", [rows, -(-k // 32)]))
        config = json.loads((folder / "config.json").read_text())
        self.assertEqual(config["quantization_config"], {"quant_method": "tessera", "experts": "int4"})
        self.assertIn("int4, with a scale for each 32", self.run_here("inspect", folder).stdout)
        self.refused(2, "quantise", folder, "-o", "x", says="in int4 already")
        self.refused(2, "complete", folder, "--dtype", "int4", "--prompt-ids", "5", says="--dtype")
        self.refused(2, "quantise", TWO, "-o", "x", "--dense", "int4", says="--dense")
        ask = ("complete", folder, "--prompt-ids", "5", "--max-tokens", 4)
        self.assertEqual(self.run_here(*ask).returncode, 0)
        self.refused(4, *ask, "--plan", "tensor=2", says=["down_proj", "expert="])
        config.pop("quantization_config")
        (folder / "config.json").write_text(json.dumps(config))
        self.refused(3, *ask, says="is quantised (U8)")

    def test_what_int4_says_of_itself(self):
        done = self.run_here("quantise", "tasks-b", "-o", "q", "--experts", "int4", "--dense", "int8",
                             "--progress", "plain")
        self.assertEqual((done.returncode, done.stdout), (0, "q\n"))
        self.assertRegex(done.stderr, r"matrices are in int4 and int8: .* of weights, which were .*; "
                                      r"off by \d\.\d\d % of their size on average, [78]\.\d\d % at most \(.*\)")
        self.assertEqual(self.answer("q")["completions"][0]["text"], "ehllo")
        tensors, _ = read_safetensors(self.folder / "q" / "model.safetensors")
        panels = [name for name, (dtype, shape, _) in tensors.items() if dtype == "U8" and len(shape) == 3]
        self.assertTrue(panels)
        self.assertFalse([name for name in panels if name + "_scale" in tensors], "they lie within")

    def test_damaged_int4(self):
        folder = self.quantised(TWO, "q", "--experts", "int4")
        tensors, _ = read_safetensors(folder / "model.safetensors")
        ask = ("complete", folder, "--prompt-ids", "5", "--max-tokens", 4)
        scale = next(name for name in tensors if name.endswith("_scale"))
        matrix = scale.removesuffix("_scale")
        (_, shape, data), (_, groups, scales) = tensors[matrix], tensors[scale]
        for says, change in (("missing", {matrix: None}), (matrix, {scale: None}),
                             ("another shape", {scale: ("BF16", [1, 1], b"\0\0")}),
                             ("another shape", {matrix: ("U8", [shape[0], 1], data[:shape[0]])}),
                             (matrix, {scale: ("F32", groups, scales * 2)}),
                             (matrix, {matrix: ("I8", shape, data)}),
                             ("no numbers", {scale: ("BF16", groups, b"\xff" * len(scales))})):
            changed = {k: v for k, v in {**tensors, **change}.items() if v}
            write_safetensors(folder / "model.safetensors", changed)
            self.refused(3, *ask, says=says)

    def test_pipelines(self):
        folder = self.quantised("scenes", "q", "--dtype", "int8", "--quantise-rules", "mlp=int4,text=bf16")
        config = json.loads((folder / "transformer/config.json").read_text())
        form = config["quantization_config"]
        self.assertEqual({key: form[key] for key in ("quant_method", "rows")}, {"quant_method": "tessera", "rows": "int8"})
        self.assertNotIn("experts", form)
        self.assertNotIn("quantization_config", json.loads((folder / "text_encoder/config.json").read_text()))
        tensors, _ = read_safetensors(folder / "transformer/diffusion_pytorch_model.safetensors")
        kinds = {name: dtype for name, (dtype, _, _) in tensors.items()}
        self.assertEqual(kinds["transformer_blocks.0.attn.to_q.weight"], "I8")
        self.assertEqual(kinds["transformer_blocks.0.ff.net.2.weight"], "U8")
        self.assertNotIn("transformer_blocks.0.norm1.linear.weight_scale", kinds)
        ask = ("--prompt", "a red circle left of a blue square", "--steps", "2", "--latents-only", "--progress", "none")
        for name, words in (("stored", (folder,)),
                            ("load", ("scenes", "--dtype", "int8", "--quantise-rules", "mlp=int4,text=bf16"))):
            done = self.run_here("generate", *words, *ask, "--save-latents", name)
            self.assertEqual(done.returncode, 0, done.stderr)
        stored, load = (read_safetensors(self.folder / name)[0]["latents"] for name in ("stored", "load"))
        self.assertEqual(stored, load)
        self.assertIn("int8 activations", self.run_here("inspect", folder).stdout)
        self.refused(2, "quantise", folder, "-o", "x", "--dtype", "int8", says="is quantised already")
        self.refused(2, "quantise", "tasks-b", "-o", "x", "--dtype", "int8", says="--experts and --dense")
        self.refused(2, "quantise", TWO, "-o", "x", "--dtype", "int8", "--experts", "int4", says="experts=FORM")
        self.refused(2, "quantise", TWO, "-o", "x", "--dtype", "int8", "--dense", "int8", says="--dense does not go")
        self.refused(2, "quantise", "scenes", "-o", "x", "--dtype", "f32", says="--dtype")
        config["quantization_config"].pop("rules")
        (folder / "transformer/config.json").write_text(json.dumps(config))
        self.refused(3, "inspect", folder, says="has no 'rules'")

    def test_smoothing(self):
        run = ("--dtype", "int4", "--smooth", "--steps", "2", "--width", "64", "--height", "64")
        folder = self.quantised("scenes", "q", *run, "--prompt", "a red circle left of a blue square")
        tensors, _ = read_safetensors(folder / "transformer/diffusion_pytorch_model.safetensors")
        scaled = {name for name in tensors if name.endswith("_input_scale")}
        self.assertTrue(scaled)
        for name in scaled:
            dtype, shape, _ = tensors[name]
            self.assertIn(name.removesuffix("_input_scale"), tensors)
            self.assertEqual((dtype, len(shape)), ("F32", 1))
        done = self.run_here("generate", folder, "--prompt", "a red circle left of a blue square", "--steps", "2",
                             "--latents-only", "--save-latents", "l", "--progress", "none")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.quantised("shapes", "s", "--dtype", "int8", "--smooth", "--class", "1", "--class", "2", "--steps", "1")
        self.refused(2, "quantise", "scenes", "-o", "x", *run, says=["--smooth", "--prompt"])
        self.refused(2, "quantise", "scenes", "-o", "x", "--dtype", "int8", "--prompt", "x", says="--smooth")
        self.refused(2, "quantise", "scenes", "-o", "x", "--smooth", "--prompt", "x", says="--smooth smooths the products")

    def test_what_is_dense_too(self):
        folder = self.quantised(TWO, "all", "--dense", "int8")
        after, _ = read_safetensors(folder / "model.safetensors")
        whole = {name for name, (dtype, _, _) in after.items() if dtype == "I8"}
        for name in ("lm_head.weight", "model.layers.0.attention.query_key_value.weight",
                     "model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.shared_experts.down_proj.weight"):
            self.assertIn(name, whole)
        for name in ("model.layers.1.mlp.gate.weight", "model.word_embeddings.weight", "model.norm.weight"):
            self.assertNotIn(name, whole & set(after))
        config = json.loads((folder / "config.json").read_text())
        self.assertEqual(config["quantization_config"], {"quant_method": "tessera", "experts": "int8", "dense": "int8", "order": "panels"})
        self.assertIn("dense  ", self.run_here("inspect", folder).stdout)
        ask = ("complete", folder, "--prompt-ids", "5", "--max-tokens", 4)
        self.assertEqual(self.run_here(*ask).returncode, 0)
        self.change_json(folder / "config.json", quantization_config={"quant_method": "tessera", "experts": "int8"})
        self.refused(3, *ask, says=["is quantised (I8)", "does not say"])  # what config.json does not name is not read
        self.change_json(folder / "config.json",
                         quantization_config={"quant_method": "tessera", "experts": "int8", "dense": "int4"})
        self.refused(3, *ask, says=["'dense'", 'reads "int8"'])
        self.refused(2, "quantise", "shapes", "-o", "x", "--dense", "int8", says="--dense is for language models")
        self.refused(2, "quantise", "tasks-b", "-o", "x", "--dense", "bf16", says="--dense")

    def test_images_too(self):
        folder = self.quantised("shapes")
        for name, words in (("a", [folder]), ("b", ["shapes", "--dtype", "int8", "--quantise-rules", "attn=bf16,mlp=bf16"])):
            done = self.run_here("generate", *words, "--class", 3, "--steps", 2, "--latents-only",
                                 "--save-latents", name, "--report", name + ".json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads((self.folder / (name + ".json")).read_text())["precision"],
                             "bf16, experts i8")
        self.assertEqual((self.folder / "a").read_bytes(), (self.folder / "b").read_bytes())
        done = self.run_here("inspect", folder)
        self.assertIn("int8, with a scale a row", done.stdout)
        self.assertEqual((folder / "vae/config.json").read_bytes(), (SHAPES / "vae/config.json").read_bytes())

    def test_shards_become_one_file_and_what_is_hidden_or_a_pickle_stays(self):
        model = self.copy_model(source=TWO)
        tensors, _ = read_safetensors(model / "model.safetensors")
        (model / "model.safetensors").unlink()
        names, index = sorted(tensors), {"metadata": {}, "weight_map": {}}
        for i in range(2):
            file = f"model-0000{i + 1}-of-00002.safetensors"
            mine = {name: tensors[name] for name in names[i::2]}
            write_safetensors(model / file, mine)
            index["weight_map"].update({name: file for name in mine})
        (model / "model.safetensors.index.json").write_text(json.dumps(index))
        for name in (".git", "assets"):
            (model / name).mkdir()
            (model / name / "file").write_text("x")
        (model / "pytorch_model.bin").write_text("x")
        folder = self.quantised(model)
        self.assertEqual(sorted(str(f.relative_to(folder)) for f in folder.rglob("*")),
                         ["assets", "assets/file", "config.json", "model.safetensors"])
        alone = self.quantised(TWO, "alone")
        self.assertEqual(*(read_safetensors(f / "model.safetensors")[0] for f in (folder, alone)))

    def test_canvases_from_shards(self):
        whole = DATA / "moe/diffusion_gemma_canvas256/model"
        model = self.copy_model("shards", whole)
        tensors, _ = read_safetensors(whole / "model.safetensors")
        index = {name: f"model-{1 + i % 3:05d}-of-00003.safetensors" for i, name in enumerate(tensors)}
        for file in set(index.values()):
            write_safetensors(model / file, {name: tensors[name] for name in tensors if index[name] == file})
        (model / "model.safetensors").unlink()
        (model / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
        ask = ("--prompt-ids", "5,17,99", "--prompt-ids", "8", "--block", 16, "--max-tokens", 20, "--steps", 4, "--json")

        def answers(folder, *more):
            done = self.run_here("complete", folder, *ask, *more)
            self.assertEqual((done.returncode, done.stderr), (0, ""), more)
            return json.loads(done.stdout)["completions"]

        exact, forms = answers(model), {}
        for name, words in (("q8", ()), ("q4", ("--experts", "int4")), ("all", ("--experts", "int4", "--dense", "int8"))):
            made = self.quantised(model, name, *words)
            self.quantised(whole, name + "w", *words)
            self.assertEqual(read_safetensors(made / "model.safetensors")[0],
                             read_safetensors(self.folder / (name + "w") / "model.safetensors")[0], name)
            forms[name] = answers(made)
            self.assertNotEqual([one["confidences"] for one in forms[name]], [one["confidences"] for one in exact])
            for more in (("--map-weights",), ("--threads", 1), ("--plan", "expert=2"), ("--plan", "expert=3", "--map-weights")):
                self.assertEqual(answers(made, *more), forms[name], (name, more))
        self.assertEqual(forms["q8"], answers(model, "--dtype", "int8"))
        self.assertEqual(answers("q4", "--dtype", "int8"), forms["q4"], "what is int4 stays")

    def test_links_are_not_followed_out_of_the_folder(self):
        model = self.copy_model(source=TWO)
        secret = self.folder / "secret"
        (secret / "inner").mkdir(parents=True)
        (secret / "id_rsa").write_text("private")
        (model / "assets").mkdir()
        (model / "assets/real.txt").write_text("public")
        for name, target in (("docs", "../secret"), ("notes.txt", "../secret/id_rsa"), ("root", "/"), ("loop", "."),
                             ("within.txt", "assets/real.txt"), ("assets/up.txt", "../../secret/id_rsa"),
                             ("assets/folder", "."), ("nowhere", "../none"), ("chain", "notes.txt")):
            (model / name).symlink_to(target)
        done = self.run_here("quantise", model, "-o", "q", "--progress", "plain")
        self.assertEqual(done.returncode, 0, done.stderr)
        made = sorted(str(f.relative_to(self.folder / "q")) for f in (self.folder / "q").rglob("*"))
        self.assertEqual(made, ["assets", "assets/real.txt", "config.json", "model.safetensors", "within.txt"])
        for name in ("docs", "notes.txt", "root", "loop", "assets/up.txt", "assets/folder", "nowhere", "chain"):
            self.assertIn(f"'{name}' was left out: it is a link out of the model's folder", done.stderr)
        model = self.copy_model("pipeline", SHAPES)
        (model / "vae").rename(self.folder / "vae")
        (model / "vae").symlink_to("../vae")
        self.refused(2, "quantise", model, "-o", "q2", says=["'vae'", "put the files themselves there"])

    def test_links_of_the_hubs_cache_are_followed_to_its_blobs(self):
        repository = self.folder / "models--a--b"
        snapshot, blobs = repository / "snapshots/1", repository / "blobs"
        snapshot.mkdir(parents=True)
        blobs.mkdir()
        for file in TWO.iterdir():
            (blobs / file.name).write_bytes(file.read_bytes())
            (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
        (blobs / "hash").write_text("public")
        (snapshot / "README.md").symlink_to("../../blobs/hash")
        (repository / "refs").mkdir()
        (repository / "refs/main").write_text("1")
        (snapshot / "refs").symlink_to("../../refs/main")
        done = self.run_here("quantise", snapshot, "-o", "q", "--progress", "none")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.folder / "q/README.md").read_text(), "public")
        self.assertFalse((self.folder / "q/README.md").is_symlink())
        self.assertFalse((self.folder / "q/refs").exists())

    def test_mistakes_leave_nothing(self):
        self.quantised("tasks-b")
        self.refused(2, "quantise", "tasks-b", "-o", "q", says="'q' exists already")
        self.refused(2, "quantise", "q", "-o", "x", says="in int8 already")
        self.refused(2, "quantise", "q", "-o", "q/x", says="own folder")
        self.refused(2, "quantise", "scenes", "-o", "x", says="no routed experts")
        self.refused(2, "quantise", "tasks-b", "-o", "no/where", says="make its folder first")
        self.refused(2, "quantise", "tasks-b", "-o", "", says="the value is empty")
        self.refused(2, "quantise", "tasks-b", "-o", "x" * 300, says="name too long")
        self.refused(2, "quantise", "tasks-b", "-o", "x", "--experts", "int2", says="--experts")
        self.refused(2, "quantise", "tasks-b", says="--output")
        self.refused(3, "quantise", "no-model", "-o", "x", says="no-model")
        model = self.copy_model(source=SOURCE / "models/tasks-b")
        self.refused(2, "quantise", model, "-o", model / "x", says="own folder")

    def test_damaged_folders(self):
        folder = self.quantised(TWO)
        tensors, _ = read_safetensors(folder / "model.safetensors")
        ask = ("complete", folder, "--prompt-ids", "5", "--max-tokens", 4)
        scale = next(name for name in tensors if name.endswith("_scale"))
        matrix = scale.removesuffix("_scale")
        for says, change in (("missing", {matrix: None}), (matrix, {scale: None}),
                             ("another shape", {scale: ("F32", [1], b"\0\0\0\0")}),
                             ("no numbers", {scale: ("F32", tensors[scale][1], b"\xff" * len(tensors[scale][2]))})):
            changed = {k: v for k, v in {**tensors, **change}.items() if v}
            write_safetensors(folder / "model.safetensors", changed)
            self.refused(3, *ask, says=says)
        write_safetensors(folder / "model.safetensors", tensors)
        config = json.loads((folder / "config.json").read_text())
        for experts in ("int2", None, 3):
            self.change_json(folder / "config.json", quantization_config={"quant_method": "tessera", "experts": experts})
            self.refused(3, *ask, says=["quantization_config", 'reads "int8"'])
        config.pop("quantization_config")
        (folder / "config.json").write_text(json.dumps(config))
        self.refused(3, *ask, says="is quantised (I8)")

    def test_a_full_disk(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))  # noqa: E731
        self.refused(2, "quantise", "tasks-b", "-o", "x", "--progress", "none", says="File too large", preexec_fn=limit)

    def test_ctrl_c(self):
        model = self.copy_model(source=TWO)
        (model / "large").write_bytes(bytes(300_000_000))  # takes a moment
        process = subprocess.Popen([PROGRAM, "quantise", model, "-o", "x"], cwd=self.folder, stderr=subprocess.PIPE)
        while process.poll() is None and not list(self.folder.glob(".tessera-*")):
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        if process.returncode == 0:
            self.assertEqual(sorted(f.name for f in self.folder.iterdir()), ["model", "x"])  # it was done
        else:
            self.assertEqual(process.returncode, 130, err)
            self.assertEqual([f.name for f in self.folder.iterdir()], ["model"])


if __name__ == "__main__":
    unittest.main()
