#!/usr/bin/env python3
"""Pipelines from folders: sizes, frames, memory, tiles, and the kinds of files that come out."""

import json
import os
import shutil
import struct
import unittest

from program import DATA, SOURCE, ProgramTest, read_safetensors, write_safetensors

VIDEO = DATA / "diffusers/cogvideox_2b/model"
PIXART = DATA / "diffusers/pixart_alpha/model"
WAVES = ("generate", VIDEO, "--prompt", "waves", "--width", "48", "--height", "32", "--steps", "1",
         "--guidance", "1")
SHAPE = ("generate", "shapes", "--class", "1", "--steps", "1")


def png_size(path):
    return struct.unpack(">II", path.read_bytes()[16:24])


class Files(ProgramTest):
    def test_images_by_their_ends(self):
        done = self.run_here(*SHAPE, "--count", "2", "-o", "a.webp")
        self.assertEqual((done.returncode, done.stdout), (0, "a-0000.webp\na-0001.webp\n"), done.stderr)
        raw = (self.folder / "a-0000.webp").read_bytes()
        self.assertEqual((raw[:4], raw[8:12]), (b"RIFF", b"WEBP"))
        self.assertIn(b"Seed: 0", raw)
        self.assertEqual(self.run_here(*SHAPE, "-o", "B.WEBP").stdout, "B.WEBP\n")

    def test_videos_by_their_ends(self):
        done = self.run_here(*WAVES, "--frames", "9", "--count", "2", "--fps", "12.5", "-o", "v.mp4")
        self.assertEqual((done.returncode, done.stdout), (0, "v-0000.mp4\nv-0001.mp4\n"), done.stderr)
        raw = (self.folder / "v-0000.mp4").read_bytes()
        self.assertEqual(raw[4:8], b"ftyp")
        self.assertIn(b"waves\nSteps: 1, Sampler: CogVideoXDDIMScheduler, CFG scale: 1, Seed: 0, Size: 48x32", raw)
        self.assertEqual(self.run_here(*WAVES, "--frames", "9").stdout, "tessera.mp4\n")
        done = self.run_here(*WAVES, "--frames", "9", "-o", "frames/")
        self.assertEqual(len(done.stdout.split()), 9)

    def test_kinds_that_do_not_fit(self):
        self.refused(2, *SHAPE, "-o", "x.mp4", says=["'x.mp4'", "makes images", ".webp"])
        for name in ("x.png", "x.webp"):
            self.refused(2, *WAVES, "--frames", "9", "-o", name, says=[name, "makes videos", ".mp4"])
        self.refused(2, *WAVES, "--frames", "9", "-o", "x.avi", says=["'x.avi'", ".mp4"])
        self.refused(2, *WAVES, "--frames", "9", "-o", "/dev/stdout", says="makes videos")
        self.refused(2, *WAVES, "--frames", "9", "-o", "none/x.mp4", says="make its folder first")
        for version in range(57, 70):  # of libavutil and its kin: none that can be loaded
            (self.folder / f"libavutil.so.{version}").write_text("")
        self.refused(2, *WAVES, "--frames", "9", "-o", "v.mp4", says=["videos need libavutil", "install Debian's"],
                     env={**os.environ, "LD_LIBRARY_PATH": str(self.folder)})

    def test_frame_rates(self):
        self.refused(2, *WAVES, "--frames", "9", "--fps", "8", "-o", "f/", says=["--fps", ".mp4"])
        self.refused(2, *SHAPE, "--fps", "8", says=["--fps", ".mp4"])
        for rate in ("0", "-1", "1000", "nan"):
            self.refused(2, *WAVES, "--frames", "9", "--fps", rate, says="0.1 to 240")


class Frames(ProgramTest):
    def test_three_more_are_announced(self):
        done = self.run_here(*WAVES, "--frames", "5", "-o", "f/")
        self.assertEqual(len(done.stdout.split()), 8, done.stderr)
        self.assertIn("note: --frames 5 gives 8", done.stderr)
        self.refused(2, *WAVES, "--frames", "5", "-o", "f/", says=["holds frames already, such as 0", "--overwrite"])
        done = self.run_here(*WAVES, "--frames", "9", "-o", "g/", "--progress", "plain")
        self.assertNotIn("note: --frames", done.stderr)
        done = self.run_here(*WAVES, "--frames", "5", "-o", "f/", "--overwrite", "--progress", "none")
        self.assertEqual(done.stderr, "")

    def test_others_are_refused(self):
        for frames in ("2", "8", "48"):
            self.refused(2, *WAVES, "--frames", frames, says=["--frames " + frames, "4n + 1"])


class Pixart(ProgramTest):
    def setUp(self):
        super().setUp()
        io, _ = read_safetensors(DATA / "diffusers/pixart_alpha/io_text.safetensors")
        names = ("prompt_embeds", "prompt_attention_mask")
        write_safetensors(self.folder / "text.safetensors",
                          {**{n: io["prompt.0." + n] for n in names},
                           **{"negative_" + n: io["prompt.1." + n] for n in names}})
        self.run_it = ("generate", PIXART, "--embeddings", "text.safetensors", "--steps", "1")

    def test_binning(self):
        done = self.run_here(*self.run_it, "--width", "70", "--height", "50", "--binning", "on",
                             "--save-latents", "l.safetensors", "-o", "p.png", "--guidance", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("note: computes 1152 x 832 pixels", done.stderr)
        self.assertEqual(png_size(self.folder / "p.png"), (70, 50))
        latents, _ = read_safetensors(self.folder / "l.safetensors")
        self.assertEqual(latents["latents"][1], [1, 4, 104, 144])

    def test_fit_computes_more_and_crops(self):
        done = self.run_here(*self.run_it, "--width", "70", "--height", "50", "--fit", "--save-latents", "l.safetensors", "-o", "p.png",
                             "--guidance", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("note: computes 80 x 64 pixels (width x height), and crops to 70 x 50", done.stderr)
        self.assertEqual(png_size(self.folder / "p.png"), (70, 50))
        self.assertEqual(read_safetensors(self.folder / "l.safetensors")[0]["latents"][1], [1, 4, 8, 10])
        self.assertNotIn("crops", self.run_here(*SHAPE, "--fit", "--width", "64", "-o", "s.png").stderr)
        self.assertEqual(self.run_here(*SHAPE, "--fit", "--width", "30", "-o", "s.png").returncode, 0)
        self.assertEqual(png_size(self.folder / "s.png"), (30, 128))
        self.refused(2, *SHAPE, "--fit", "--width", "20000", says="1 to 16384 pixels with --fit")
        self.refused(2, *self.run_it, "--fit", "--binning", "on", says="give one of them")

    def test_videos_are_cropped_too(self):
        ask = ("generate", VIDEO, "--prompt", "waves", "--steps", "1", "--frames", "9", "--height", "30", "--fit")
        done = self.run_here(*ask, "--width", "44", "-o", "f/")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({png_size(path) for path in (self.folder / "f").iterdir()}, {(44, 30)})
        self.refused(2, *ask, "--width", "45", says="a video has even sides")

    def test_sizes_without_binning_mean_what_they_say(self):
        self.refused(2, *self.run_it, "--width", "70", "--height", "48", says="--width 70: expected a multiple of 16: 64 or 80")
        self.refused(2, *self.run_it, "--width", "70", "--binning", "maybe", says=["maybe", "on or off"])
        self.refused(2, *self.run_it, "--width", "8", "--height", "50", "--binning", "on",
                     says="16 to 16384")
        self.refused(2, *SHAPE, "--binning", "on", says=["--binning on", "no table"])

    def test_guidance_rescale(self):
        size = ("--width", "64", "--height", "64", "--latents-only", "--save-latents")
        for name, more in {"a": (), "b": ("--guidance-rescale", "0"),
                           "c": ("--guidance-rescale", "0.7")}.items():
            done = self.run_here(*self.run_it, *size, name, *more)
            self.assertEqual(done.returncode, 0, done.stderr)
        a, b, c = ((self.folder / name).read_bytes() for name in "abc")
        self.assertEqual(a, b)
        self.assertNotEqual(a, c)
        self.refused(2, *self.run_it, *size, "d", "--guidance-rescale", "1.5", says="0 to 1")
        self.refused(2, *self.run_it, *size, "d", "--guidance-rescale", "0.5", "--guidance", "1",
                     says=["--guidance-rescale 0.5", "--guidance above 1"])

    def test_another_scheduler(self):
        size = ("--width", "64", "--height", "64", "--latents-only", "--steps", "3", "--save-latents")
        made = {}
        for name in ("auto", "dpm++", "unipc", "UniPCMultistepScheduler", "euler-ancestral", "lcm"):
            done = self.run_here(*self.run_it[:-2], *size, "l", "--scheduler", name)
            self.assertEqual(done.returncode, 0, done.stderr)
            made[name] = (self.folder / "l").read_bytes()
        self.assertEqual(made["auto"], made["dpm++"])
        self.assertEqual(made["unipc"], made["UniPCMultistepScheduler"])
        self.assertEqual(len(set(made.values())), 4)
        done = self.run_here(*self.run_it[:-2], *size, "l", "--scheduler", "heun", "--report", "r.json")
        self.assertIn("note: 3 steps of this scheduler are 5 forward passes", done.stderr)
        self.assertEqual(json.loads((self.folder / "r.json").read_text())["forwards"], 5)
        self.refused(2, *self.run_it[:-2], *size, "l", "--scheduler", "hein", says=["--scheduler 'hein'", "heun"])
        for name in ("flow-euler", "cogvideox-ddim", "rectified-flow"):
            self.refused(2, *self.run_it[:-2], *size, "l", "--scheduler", name,
                         says=["--scheduler " + name, "auto", "unipc"])

    def test_thresholding_needs_whole_images(self):
        size = ("--width", "64", "--height", "64", "--latents-only", "--steps", "3", "--save-latents")
        model = self.copy_model(source=PIXART)
        self.change_json(model / "scheduler/scheduler_config.json", thresholding=True)
        run = ("generate", model, "--embeddings", "text.safetensors", *size, "l")
        self.assertEqual(self.run_here(*run).returncode, 0)
        self.refused(4, *run, "--plan", "distrifusion=2", says=["thresholding", "distrifusion=2"])

    def test_a_plan_that_cuts_images_cannot_rescale(self):
        self.refused(4, "generate", "shapes", "--class", "1", "--guidance-rescale", "0.5", "--plan",
                     "distrifusion=2", says=["--guidance-rescale", "distrifusion=2"])

    def test_memory_budget(self):
        size = ("--width", "64", "--height", "64", "--latents-only", "--save-latents")
        self.run_here(*self.run_it, *size, "a", "--report", "r.json")
        peak = json.loads((self.folder / "r.json").read_text())["peak_bytes"]["total"]
        done = self.run_here(*self.run_it, *size, "b", "--report", "r.json", "--memory-budget",
                             f"{peak * 0.9 / 1e6}MB")
        self.assertIn("note: streams the transformer", done.stderr)
        report = json.loads((self.folder / "r.json").read_text())
        self.assertLessEqual(report["peak_bytes"]["total"], 0.9 * peak)
        self.assertEqual(len(report["notes"]), 1)
        self.assertEqual((self.folder / "a").read_bytes(), (self.folder / "b").read_bytes())
        self.refused(6, *self.run_it, *size, "c", "--memory-budget", "10kB",
                     says=["would need", "--memory-budget allows"])
        for text in ("0", "-1GB", "4XB", "GB", "nan", "1e30GB"):
            self.refused(2, *self.run_it, *size, "c", "--memory-budget", text,
                         says=["--memory-budget " + text, "4GB"])

    def test_tiles(self):
        size = ("--width", "128", "--height", "96", "--guidance", "1", "-o")
        done = self.run_here(*self.run_it, *size, "a.png", "--vae-tiling", "on")
        self.assertIn("note: decodes in tiles with blended seams, of 64 x 64 pixels", done.stderr)
        self.assertEqual(png_size(self.folder / "a.png"), (128, 96))
        self.run_here(*self.run_it, *size, "b.png")
        self.run_here(*self.run_it, *size, "c.png", "--vae-tiling", "1024")
        self.assertEqual((self.folder / "b.png").read_bytes(), (self.folder / "c.png").read_bytes())
        for text in ("many", "0", "-64", "32", "99999", "64x"):
            self.refused(2, *self.run_it, *size, "d.png", "--vae-tiling", text,
                         says=["--vae-tiling " + text, "64 to 16384"])

    def test_a_chunk_of_lines(self):
        size = ("--width", "128", "--height", "96", "--guidance", "1", "-o")
        for chunk, *plan in (("7",), ("96",), ("5", "--plan", "ulysses=2,vae=2"), ("5", "--plan", "vae=+1")):
            self.run_here(*self.run_it, *size, "a.png", *plan)
            done = self.run_here(*self.run_it, *size, "b.png", *plan, "--vae-chunk", chunk)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((self.folder / "a.png").read_bytes(), (self.folder / "b.png").read_bytes(), plan)
        for text in ("0", "-3", "many", "97", "1e9"):
            self.refused(2, *self.run_it, *size, "d.png", "--vae-chunk", text, says=["--vae-chunk"])


class Captions(ProgramTest):
    """PixArt with the T5 of another toy, which is of the width that it reads."""

    def setUp(self):
        super().setUp()
        self.model = self.copy_model(source=PIXART)
        for part, kind in (("text_encoder", "T5EncoderModel"), ("tokenizer", "T5Tokenizer")):
            shutil.copytree(VIDEO / part, self.model / part)
            self.change_json(self.model / "model_index.json", **{part: ["transformers", kind]})

    def latents(self, prompt, *more):
        done = self.run_here("generate", self.model, "--prompt", prompt, "--steps", "1", "--width", "64",
                             "--height", "64", "--latents-only", "--save-latents", "l", *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return (self.folder / "l").read_bytes(), done.stderr

    def test_prompts_are_cleaned_unless_told(self):
        shop = "A <b>CAT</b> &amp; a dog: http://a.com cat.png"
        cleaned, said = self.latents("a cat a dog", "--clean-caption", "off")
        self.assertNotIn("note:", said)
        self.assertEqual(self.latents(shop)[0], cleaned)
        self.assertEqual(self.latents(shop, "--clean-caption", "on")[0], cleaned)
        self.assertNotEqual(self.latents(shop, "--clean-caption", "off")[0], cleaned)
        self.refused(2, "generate", self.model, "--prompt", "a", "--clean-caption", "maybe", says="maybe")

    def test_what_cleaning_does_to_a_prompt_is_said(self):
        self.assertIn("note: cleaning leaves nothing of the prompt", self.latents("\u9ed2\u732b")[1])
        self.assertIn("read in another encoding", self.latents("caf\u00e2\u20ac\u00a6")[1])
        self.refused(2, "generate", self.model, "--prompt", "a" * 10001, says=["10001 bytes", "--clean-caption off"])

    def test_other_pipelines_clean_nothing(self):
        done = self.run_here(*WAVES, "--frames", "9", "--clean-caption", "on", "--latents-only", "--save-latents", "l")
        self.assertIn("note: --clean-caption has no effect", done.stderr)


class Effects(ProgramTest):
    """Options that change nothing are said."""

    def notes(self, *arguments):
        done = self.run_here(*arguments, "--latents-only", "--save-latents", "l")
        self.assertEqual(done.returncode, 0, done.stderr)
        return [line for line in done.stderr.splitlines() if line.startswith("note:")]

    def test_a_negative_prompt_needs_a_second_branch(self):
        self.assertEqual(self.notes(*WAVES, "--frames", "9"), [])
        self.assertEqual(self.notes(*WAVES, "--frames", "9", "--negative-prompt", "mist"),
                         ["note: --negative-prompt has no effect: it needs --guidance above 1, which is 1"])
        self.assertEqual(self.notes(*WAVES, "--frames", "9", "--true-guidance", "3"),
                         ["note: --true-guidance has no effect: the guidance of this model is --guidance"])

    def test_true_guidance_needs_something_negative(self):
        tensors, _ = read_safetensors(DATA / "diffusers/flux_dev/io_text.safetensors")
        prompt = {name[9:]: told for name, told in tensors.items()
                  if name.startswith("prompt.0.") and name[9:] in ("prompt_embeds", "pooled_prompt_embeds")}
        self.assertEqual(len(prompt), 2)
        write_safetensors(self.folder / "one.st", prompt)
        write_safetensors(self.folder / "two.st", {**prompt, **{"negative_" + name: told for name, told in prompt.items()}})
        flux = ("generate", DATA / "diffusers/flux_dev/model", "--width", "64", "--height", "64", "--steps", "1", "--embeddings")
        self.assertEqual(self.notes(*flux, "one.st"), [])
        plain = (self.folder / "l").read_bytes()
        self.assertEqual(self.notes(*flux, "one.st", "--true-guidance", "2"),
                         ["note: --true-guidance 2 has no effect: --embeddings holds nothing negative, which it needs, "
                          "as in diffusers"])
        self.assertEqual((self.folder / "l").read_bytes(), plain)
        self.assertEqual(self.notes(*flux, "two.st", "--true-guidance", "2"), [])

    def test_a_dtype_that_would_change_nothing_is_refused(self):
        vae = DATA / "diffusers/flux_dev/model/vae"
        for command in (("generate", vae, "--prompt", "x", "--latents-only", "--save-latents", "l"), ("inspect", vae)):
            for dtype in ("int8", "int4"):
                self.refused(2, *command, "--dtype", dtype, says="has no products that are quantised")
        self.assertEqual(self.notes(*SHAPE, "--dtype", "int8", "--report", "r.json"), [])
        self.assertEqual(json.loads((self.folder / "r.json").read_text())["precision"], "bf16, experts i8, products i8")
        self.assertEqual(self.notes(*SHAPE, "--dtype", "int4", "--quantise-rules", "attn=int8", "--report", "r4.json"), [])
        report = json.loads((self.folder / "r4.json").read_text())
        self.assertEqual(report["precision"], "bf16, experts i4, products i4 and i8")
        self.assertEqual(set(report["products"]["transformer"]), {"int4", "int8"})
        self.refused(2, *SHAPE, "--quantise-rules", "attn=int2", says="'int2'")
        self.refused(2, *SHAPE, "--quantise-rules", "no*=int8", says="'no*' names no product")
        self.assertEqual(self.notes(*SHAPE, "-o", "x.png"),
                         ["note: -o has no effect: --latents-only makes no image"])


class Scenes(ProgramTest):
    def test_a_prompt_becomes_an_image(self):
        done = self.run_here("generate", "scenes", "--prompt", "a red circle left of a blue square", "--steps", "2",
                             "-o", "a.png")
        self.assertEqual((done.returncode, done.stdout), (0, "a.png\n"), done.stderr)
        self.assertEqual(png_size(self.folder / "a.png"), (128, 128))
        self.refused(2, "generate", "scenes", "--class", "1", says="--prompt")

    def test_either_half_of_a_vae_in_tiles(self):
        write_safetensors(self.folder / "z", {"sample": ("F32", (1, 4, 16, 16), bytes(4 * 4 * 256))})
        run = ("forward", "scenes", "--component", "vae.decode", "--inputs", "z", "--outputs", "x")
        done = self.run_here(*run, "--vae-tiling", "64")
        self.assertEqual((done.returncode, done.stdout), (0, "x\n"), done.stderr)
        self.assertEqual(read_safetensors(self.folder / "x")[0]["out"][1], [1, 3, 128, 128])
        for text in ("many", "0", "32"):
            self.refused(2, *run, "--vae-tiling", text, says=["--vae-tiling " + text, "64 to 16384"])
        self.refused(2, *run, "--vae-tiling", "64", "--trace", says=["--trace", "--vae-tiling"])

    def test_a_flow_needs_its_solvers(self):
        run = ("generate", "scenes", "--prompt", "a red circle", "--steps", "2", "--latents-only",
               "--save-latents", "l")
        for name, differs in (("auto", False), ("flow-euler", False), ("unipc", True)):
            done = self.run_here(*run[:-1], name, "--scheduler", name)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((self.folder / name).read_bytes() != (self.folder / "auto").read_bytes(),
                             differs)
        self.refused(2, *run, "--scheduler", "heun", says=["--scheduler heun", "unipc"])
        model = self.copy_model(source=SOURCE / "models/scenes")
        config = model / "scheduler/scheduler_config.json"
        index = json.loads((model / "model_index.json").read_text())
        for name in ("EulerDiscreteScheduler", "DPMSolverMultistepScheduler"):
            index["scheduler"][1] = name
            (model / "model_index.json").write_text(json.dumps(index))
            self.change_json(config, _class_name=name)
            self.refused(3, run[0], model, *run[2:], says=[f"'{name}' does not solve a flow"])
        self.change_json(config, use_flow_sigmas=True, prediction_type="flow_prediction",
                         algorithm_type="sde-dpmsolver++")
        done = self.run_here(run[0], model, *run[2:])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("note: the noise of the steps follows --seed", done.stderr)

    def test_images_of_captions_are_judged(self):
        model = self.folder / "model"
        shutil.copytree(SOURCE / "models/scenes", model)
        run = ("eval", model, "--images", "2", "--steps", "2", "--json")
        (model / "captions.json").write_text('["a red circle above a black cross"]')
        done = self.run_here(*run[:-2], "12", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreaterEqual(json.loads(done.stdout)["recognised"], 0.5)
        for captions, says in (('["a pink circle"]', "'pink' where a colour"), ("[]", "1 to 100000 captions"),
                               ("[7]", "no text"), ("[", "captions.json")):
            (model / "captions.json").write_text(captions)
            self.refused(3, *run, says=says)
        (model / "captions.json").unlink()
        self.refused(3, *run, says=["no classes to draw from", "no captions.json"])


if __name__ == "__main__":
    unittest.main()
