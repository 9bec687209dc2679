#!/usr/bin/env python3
"""Missing, damaged and mismatched model files: status 3, and one line naming the file and the fault."""

import json
import shutil
import struct
import unittest

from program import DATA, SHAPES, SOURCE, ProgramTest, read_safetensors, write_safetensors

SAVE = ("--class", "1", "--steps", "2", "--latents-only", "--save-latents", "out.safetensors")


class Folders(ProgramTest):
    def refused_model(self, model, *says):
        self.refused(3, "generate", model, *SAVE, says=says)
        self.refused(3, "inspect", model, says=says)

    def test_missing(self):
        self.refused_model("nowhere", "no model folder 'nowhere'", "shipped: ", "shapes")
        self.refused_model("no/where", "'no/where' does not exist")
        (self.folder / "empty").mkdir()
        self.refused_model("empty", "'empty'", "model_index.json")

    def test_files_instead_of_folders(self):
        for name, says in [("a.pt", "convert_dit_moe.py"), ("a.gguf", "GGUF"),
                           ("a.safetensors", "single weights file"), ("a.txt", "folder")]:
            (self.folder / name).write_text("x")
            self.refused_model(name, name, says)

    def test_weights_missing(self):
        model = self.copy_model()
        (model / "model.safetensors").unlink()
        self.refused(3, "generate", model, *SAVE, says=[str(model), "model.safetensors"])

    def test_a_component_that_a_run_does_not_need_may_be_missing(self):
        model = self.copy_model(source=SHAPES)
        (model / "vae").rename(self.folder / "elsewhere")
        self.refused(3, "generate", model, "--class", "1",
                     says=["'vae' ('AutoencoderKL') is missing", "download it too", "--latents-only"])
        self.refused(3, "forward", model, "--component", "vae.decode", "--inputs", "x", "--outputs", "y",
                     says="'vae' ('AutoencoderKL') is missing")
        done = self.run_here("generate", model, *SAVE)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.run_here("inspect", model)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("weights are not here yet", done.stdout)
        (model / "transformer").rename(self.folder / "elsewhere2")
        for command in ("generate", "inspect"):
            self.refused(3, command, model, *(SAVE if command == "generate" else ()),
                         says=["'transformer' ('DiTMoE') is missing", "download it too"])

    def test_parts_that_no_run_needs(self):
        model = self.copy_model(source=SHAPES)
        self.change_json(model / "model_index.json", safety_checker=["stable_diffusion", "SafetyChecker"],
                         feature_extractor=["transformers", "CLIPImageProcessor"], image_encoder=[None, None])
        (model / "safety_checker").mkdir()
        (model / "safety_checker/pytorch_model.bin").write_text("x")
        done = self.run_here("generate", model, *SAVE)
        self.assertEqual((done.returncode, done.stderr.count("note")), (0, 0), done.stderr)
        done = self.run_here("inspect", model)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no run reads it", done.stdout)
        self.assertIn("weights are not here yet", done.stdout)

    def test_a_text_encoder_that_the_index_names_is_not_left_out(self):
        model = self.copy_model(source=SOURCE / "models/scenes")
        run = ("generate", model, "--prompt", "a red circle", "--steps", "1", "--latents-only",
               "--save-latents", "x")
        self.assertEqual(self.run_here(*run).returncode, 0)
        for part, kind in (("text_encoder_3", "T5EncoderModel"), ("tokenizer_3", "T5TokenizerFast")):
            self.change_json(model / "model_index.json", **{part: ["transformers", kind]})
        line = self.refused(3, *run, says=["_3' (", "is missing", "--embeddings"])
        self.assertIn("download it too", line)

    def test_quantised_weights(self):
        model = self.copy_model()
        self.change_json(model / "config.json", quantization_config={"quant_method": "bitsandbytes"})
        self.refused_model(model, str(model / "config.json"), "'bitsandbytes'", "bf16, f16 or f32")

    def test_configs(self):
        model = self.copy_model()
        config = model / "config.json"
        whole = config.read_text()
        for text, says in [("", "JSON"), (whole[:40], "JSON"), ("[1]", "object"), ("{}", "model_type")]:
            config.write_text(text)
            self.refused_model(model, str(config), says)
        config.write_text('{"model_type": "unet"}')
        self.refused_model(model, str(model), "'unet'", "supported are")
        for key, value in [("hidden_size", None), ("hidden_size", "many"), ("depth", -1),
                           ("depth", 10**12), ("num_experts_per_tok", 9), ("patch_size", 3),
                           ("num_heads", 5), ("attention", "fast"), ("mlp_ratio", 1e300)]:
            config.write_text(whole)
            self.change_json(config, **{key: value})
            self.refused_model(model, str(config), key if key != "num_heads" else "num_heads 5")

    def test_class_names_that_do_not_fit(self):
        model = self.copy_model(source=SHAPES)
        (model / "classes.json").write_text('["a", "b"]')
        self.refused_model(model, "2 classes", "32")
        (model / "classes.json").write_text('{"a": 1}')
        self.refused_model(model, "classes.json")

    def test_schedulers(self):
        model = self.copy_model(source=SHAPES)
        (model / "model_index.json").write_text(
            (model / "model_index.json").read_text().replace("RectifiedFlow", "Heun"))
        self.refused(3, "generate", model, *SAVE, says=["'Heun'", "RectifiedFlow"])


class Safetensors(ProgramTest):
    def setUp(self):
        super().setUp()
        self.model = self.copy_model()
        self.file = self.model / "model.safetensors"
        self.raw = self.file.read_bytes()
        self.length = struct.unpack("<Q", self.raw[:8])[0]
        self.header = json.loads(self.raw[8:8 + self.length])
        self.first, self.second = sorted(self.header, key=lambda n: self.header[n].get(
            "data_offsets", [-1]))[-2:]

    def refused_file(self, *says):
        for command in (("generate", self.model, *SAVE), ("inspect", self.model)):
            self.refused(3, *command, says=[str(self.file), *says])

    def with_header(self, header):
        text = json.dumps(header).encode()
        self.file.write_bytes(struct.pack("<Q", len(text)) + text + self.raw[8 + self.length:])

    def test_lengths(self):
        for raw, says in [(b"", "0 bytes"), (self.raw[:5], "5 bytes"),
                          (self.raw[:100], "header claims"), (self.raw[:-1], "data_offsets"),
                          (self.raw + b"\0", "no rest"),
                          (struct.pack("<Q", 2**63) + self.raw[8:], "header claims"),
                          (b"<!DOCTYPE html><html><body>Not Found", "an HTML page"),
                          (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
                           "git lfs pull"), (b"PK\3\4" + b"\0" * 90, "a PyTorch pickle"),
                          (b"Entry not found", "text that begins with 'Entry not found'")]:
            self.file.write_bytes(raw)
            self.refused_file(says)

    def test_headers(self):
        entry = self.header[self.second]
        for change, says in [
                ({"data_offsets": [entry["data_offsets"][0], 2**62]}, "data_offsets"),
                ({"data_offsets": [entry["data_offsets"][1], entry["data_offsets"][0]]}, "data_offsets"),
                ({"data_offsets": self.header[self.first]["data_offsets"],
                  "shape": self.header[self.first]["shape"]}, "overlap"),
                ({"data_offsets": [-1, 3]}, "-1"),
                ({"shape": [2**40, 2**40]}, "overflows"), ({"shape": [3, 5, 7]}, "bytes of data"),
                ({"shape": [1.5]}, "1.5"), ({"dtype": "F17"}, "F17"), ({"dtype": 3}, "3")]:
            self.with_header({**self.header, self.second: {**entry, **change}})
            self.refused_file(says, self.second)

    def test_holes(self):
        header = {k: v for k, v in self.header.items() if k != self.first}
        self.with_header(header)
        self.refused_file("hole")

    def test_metadata_may_be_null(self):
        self.with_header({**self.header, "__metadata__": None})
        done = self.run_here("inspect", self.model)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.with_header({**self.header, "__metadata__": {"format": None}})
        self.refused_file("null")

    def test_broken_json(self):
        self.file.write_bytes(self.raw[:8] + b"}" + self.raw[9:])
        self.refused_file("header")

    def test_integers_as_weights(self):
        tensors, _ = read_safetensors(self.file)
        name = "blocks.0.attn.out_proj.bias"
        dtype, shape, data = tensors[name]
        tensors[name] = ("I32", shape, data)
        write_safetensors(self.file, tensors)
        self.refused(3, "generate", self.model, *SAVE, says=[name, "i32"])


class Numbers(ProgramTest):
    def damaged(self, folder, name, value=float("nan")):
        path = next(p for p in (folder / "model.safetensors", folder / "diffusion_pytorch_model.safetensors")
                    if p.exists())
        tensors, _ = read_safetensors(path)
        dtype, shape, data = tensors[name]
        one = struct.pack("<f", value)
        one = {"F32": one, "BF16": one[2:], "F16": struct.pack("<e", value)}[dtype]
        tensors[name] = (dtype, shape, one + data[len(one):])
        write_safetensors(path, tensors)

    def test_the_block_that_makes_the_first_nan_is_named(self):
        for plan in ((), ("--plan", "expert=2")):
            for name, says in (("blocks.1.attn.Wqkv.weight", "block 1 "),
                               ("blocks.2.moe.gate.weight", "block 2 "),
                               ("x_embedder.proj.bias", "the embedding"),
                               ("final_layer.linear.bias", "the head")):
                model = self.copy_model(f"{name}{len(plan)}")
                self.damaged(model, name)
                self.refused(3, "generate", model, *SAVE, *plan, says=[says, "NaN", "again"])

    def test_infinity_too(self):
        model = self.copy_model()
        self.damaged(model, "final_layer.linear.bias", float("inf"))
        self.refused(3, "generate", model, *SAVE, says="the head")

    def test_the_other_parts(self):
        model = self.copy_model("shapes", SHAPES)
        self.damaged(model / "vae", "decoder.mid_block.resnets.0.conv1.bias")
        self.refused(3, "generate", model, "--class", "1", "--steps", "1", "-o", "x.png",
                     says=["the VAE's 'mid_block'", "NaN"])
        model = self.copy_model("video", DATA / "diffusers/cogvideox_2b/model")
        self.damaged(model / "text_encoder", "encoder.block.1.layer.1.DenseReluDense.wo.weight")
        self.refused(3, "generate", model, "--prompt", "a", "--steps", "1", "--width", "48", "--height", "32",
                     "--frames", "9", says=["text_encoder's 'hidden.2'", "NaN"])

    def test_numbers_that_are_given(self):
        model = DATA / "moe/dit_moe_flash/model"
        write_safetensors(self.folder / "l", {"latents": ("F32", [1, 4, 8, 8], struct.pack("<f", float("nan")) * 256)})
        self.refused(2, "generate", model, *SAVE, "--initial-latents", "l", says=["'l'", "'latents' holds NaN"])


class Names(ProgramTest):
    def test_extra_tensors_are_a_note(self):
        model = self.copy_model()
        path = model / "model.safetensors"
        before = self.run_here("generate", model, *SAVE)
        expected = (self.folder / "out.safetensors").read_bytes()
        tensors, _ = read_safetensors(path)
        for i in range(40):
            tensors[f"ema.{i}.weight"] = ("F32", [1], b"\0" * 4)
        tensors["step"] = ("I64", [1], b"\0" * 8)
        write_safetensors(path, tensors)
        done = self.run_here("generate", model, *SAVE, "--report", "r.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        notes = [line for line in done.stderr.splitlines() if line.startswith("note:")]
        self.assertEqual(notes, [f"note: '{model}' holds 41 tensors that nothing here reads: "
                                 "'ema.{0-39}.weight', 'step'"])
        self.assertEqual((self.folder / "out.safetensors").read_bytes(), expected, before.stderr)
        self.assertEqual(len(json.loads((self.folder / "r.json").read_text())["notes"]), 1)
        done = self.run_here("inspect", model)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("'ema.{0-39}.weight'", done.stderr)

    def test_a_stray_scale_is_refused(self):
        model = self.copy_model()
        path = model / "model.safetensors"
        tensors, _ = read_safetensors(path)
        for name in ("blocks.0.attn.out_proj.weight_scale", "blocks.0.attn.out_proj.scale_weight",
                     "blocks.0.attn.out_proj.comfy_quant"):
            write_safetensors(path, {**tensors, name: ("F32", [1], b"\0" * 4)})
            for command in (("generate", model, *SAVE), ("inspect", model)):
                self.refused(3, *command, says=["quantised by another program", f"'{name}'"])

    def test_pointers_and_pages_in_the_place_of_any_file(self):
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 581368\n"
        page = b"<!DOCTYPE html>\n<html><body>Sign in</body></html>"
        source = DATA / "diffusers/cogvideox_2b/model"
        for name in ("model_index.json", "transformer/config.json", "scheduler/scheduler_config.json",
                     "transformer/diffusion_pytorch_model.safetensors", "vae/diffusion_pytorch_model.safetensors",
                     "text_encoder/model.safetensors", "tokenizer/spiece.model", "tokenizer/tokenizer_config.json"):
            if not (source / name).exists():
                continue
            for bytes_, says in ((pointer, "a Git LFS pointer"), (page, "an HTML page")):
                model = self.copy_model(f"m{len(list(self.folder.iterdir()))}", source)
                (model / name).write_bytes(bytes_)
                self.refused(3, "generate", model, "--prompt", "waves", "--width", 32, "--height", 32, "--frames", 1,
                             "--steps", 1, "-o", "x.mp4", says=[says, name, "hf download"])

    def test_eight_bit_floats(self):
        model = self.copy_model()
        path = model / "model.safetensors"
        tensors, _ = read_safetensors(path)
        dtype, shape, data = tensors["pos_embed"]
        tensors["pos_embed"] = ("F8_E4M3", shape, b"\x7f" * (len(data) // 4))  # no numbers
        write_safetensors(path, tensors)
        self.refused(3, "generate", model, *SAVE, says=["'pos_embed' (F8_E4M3)", "no number"])

    def test_all_that_do_not_fit_are_named(self):
        model = self.copy_model()
        path = model / "model.safetensors"
        tensors, _ = read_safetensors(path)
        del tensors["final_layer.linear.bias"]
        for block in range(3):
            del tensors[f"blocks.{block}.moe.gate.weight"]
        dtype, shape, data = tensors["pos_embed"]
        tensors["pos_embed"] = (dtype, [shape[0], shape[2], shape[1]], data)
        tensors["surplus"] = ("F32", [1], b"\0" * 4)
        tensors["optimizer.step"] = ("F32", [1], b"\0" * 4)
        write_safetensors(path, tensors)
        for command in (("generate", model, *SAVE), ("inspect", model)):
            self.refused(3, *command, says=[
                "4 missing", "'final_layer.linear.bias'", "'blocks.{0-2}.moe.gate.weight' [4, 32]",
                "1 of another shape", "'pos_embed' is [1, 32, 16], expected [1, 16, 32]",
                "2 that the model does not know", "'surplus'", "'optimizer.step'"])

    def test_another_size_names_everything_shortly(self):
        model = self.copy_model()
        self.change_json(model / "config.json", hidden_size=64, num_heads=4)
        line = self.refused(3, "inspect", model, says=["blocks.{0-2}.moe.experts.{0-3}.", "pos_embed"])
        self.assertLess(len(line), 4000)

    def test_a_vae_is_checked_before_the_work(self):
        model = self.copy_model(source=SHAPES)
        path = model / "vae/diffusion_pytorch_model.safetensors"
        tensors, _ = read_safetensors(path)
        del tensors["decoder.conv_in.weight"], tensors["decoder.conv_out.bias"]
        write_safetensors(path, tensors)
        self.refused(3, "generate", model, "--class", "1", "--steps", "100000",
                     says=["2 missing", "'decoder.conv_in.weight'", "'decoder.conv_out.bias'"])


class Shards(ProgramTest):
    def setUp(self):
        super().setUp()
        self.vae = self.copy_model("vae", DATA / "diffusers/flux_dev/model/vae")
        self.index = self.vae / "diffusion_pytorch_model.safetensors.index.json"

    def test_a_missing_shard(self):
        (self.vae / "diffusion_pytorch_model-00002-of-00003.safetensors").unlink()
        self.refused(3, "inspect", self.vae, says=["1 of 3 shards", "00002-of-00003"])

    def test_shards_and_a_single_file(self):
        tensors = {}
        for shard in self.vae.glob("*.safetensors"):
            tensors.update(read_safetensors(shard)[0])
        single = {name: (dtype, shape, b"\0" * len(data)) for name, (dtype, shape, data) in tensors.items()}
        write_safetensors(self.vae / "diffusion_pytorch_model.safetensors", single)
        done = self.run_here("inspect", self.vae)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the shards of diffusion_pytorch_model.safetensors.index.json are read, as diffusers does, and "
                      "not diffusion_pytorch_model.safetensors", done.stderr)

    def test_an_index_that_leaves_its_folder(self):
        content = json.loads(self.index.read_text())
        name = next(iter(content["weight_map"]))
        content["weight_map"][name] = "../../etc/passwd"
        self.index.write_text(json.dumps(content))
        self.refused(3, "inspect", self.vae, says="no plain file name")

    def test_an_index_that_lies(self):
        content = json.loads(self.index.read_text())
        del content["weight_map"][next(iter(content["weight_map"]))]
        self.index.write_text(json.dumps(content))
        self.refused(3, "inspect", self.vae, says="do not belong together")


class Inputs(ProgramTest):
    """Files that `forward` and --initial-latents read."""

    def setUp(self):
        super().setUp()
        self.model = DATA / "moe/dit_moe_flash/model"
        io, _ = read_safetensors(DATA / "moe/dit_moe_flash/io.safetensors")
        self.inputs = {k: io["forward.0." + k] for k in ("x", "t", "y")}

    def forward(self, status, says, **changes):
        tensors = {k: v for k, v in {**self.inputs, **changes}.items() if v}
        write_safetensors(self.folder / "in.safetensors", tensors)
        self.refused(status, "forward", self.model, "--inputs", "in.safetensors", "--outputs",
                     "out.safetensors", says=says)

    def test_forward(self):
        self.refused(3, "forward", self.model, "--inputs", "none.safetensors", "--outputs", "o",
                     says="none.safetensors")
        self.forward(2, ["no tensor 't'", "x, t, y"], t=None)
        dtype, shape, data = self.inputs["x"]
        self.forward(2, ["'x'", "[batch, channels, height, width]"], x=(dtype, shape[1:], data[:len(data) // 2]))
        self.forward(2, "1 values for a batch of 2", t=("F32", [1], b"\0" * 4))
        self.forward(2, "class 11 does not exist", y=("I32", [2], struct.pack("<2i", 0, 11)))
        self.forward(2, "class -1 does not exist", y=("I32", [2], struct.pack("<2i", 0, -1)))
        self.forward(2, "'y'", y=("I32", [1], struct.pack("<i", 0)))

    def test_initial_latents(self):
        write_safetensors(self.folder / "l.safetensors", {"x": ("F32", [1], b"\0" * 4)})
        use = ("generate", self.model, *SAVE, "--initial-latents", "l.safetensors")
        self.refused(2, *use, says="no tensor 'latents'")
        write_safetensors(self.folder / "l.safetensors", {"latents": ("F32", [1], b"\0" * 4)})
        self.refused(2, *use, says=["'latents' is f32 [1]", "[1, 4, 8, 8]"])


if __name__ == "__main__":
    unittest.main()
