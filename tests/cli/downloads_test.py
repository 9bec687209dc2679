#!/usr/bin/env python3
"""What is not there yet: repositories in the hub's cache, folders without weights, and the time of a run."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import unittest

from program import DATA, PROGRAM, SHAPES, SOURCE, ProgramTest

SCENES = SOURCE / "models/scenes"


class Hub(ProgramTest):
    """The folders that the hub's clients leave behind: blobs by their hash, snapshots of links."""

    def setUp(self):
        super().setUp()
        self.repository = self.folder / "hub/models--maker--shapes"
        self.snapshot("0a1b", SHAPES)
        self.environment = {**{k: v for k, v in os.environ.items() if k != "XDG_CACHE_HOME"},
                            "HF_HUB_CACHE": str(self.folder / "hub")}

    def snapshot(self, revision, source):
        blobs = self.repository / "blobs"
        blobs.mkdir(parents=True, exist_ok=True)
        for number, path in enumerate(p for p in sorted(source.rglob("*")) if p.is_file()):
            blob = blobs / f"{revision}{number}"
            shutil.copy(path, blob)
            link = self.repository / "snapshots" / revision / path.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(blob, link.parent))

    def inspected(self, **environment):
        done = self.run_here("inspect", "maker/shapes", "--json", env={**self.environment, **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        return pathlib.Path(json.loads(done.stdout)["model"]).name

    def test_a_repository_by_its_id(self):
        self.assertEqual(self.inspected(), "0a1b")
        done = self.run_here("generate", "maker/shapes", "--class", "1", "--steps", "1", env=self.environment)
        self.assertEqual((done.returncode, done.stdout), (0, "tessera.png\n"), done.stderr)

    def test_main_goes_before_the_newest(self):
        self.snapshot("2c3d", SHAPES)
        os.utime(self.repository / "snapshots/0a1b", (1, 1))
        self.assertEqual(self.inspected(), "2c3d")
        (self.repository / "refs").mkdir()
        (self.repository / "refs/main").write_text("0a1b")
        self.assertEqual(self.inspected(), "0a1b")

    def test_where_the_cache_is(self):
        del self.environment["HF_HUB_CACHE"]
        self.assertEqual(self.inspected(HF_HOME=str(self.folder)), "0a1b")
        (self.folder / ".cache/huggingface").mkdir(parents=True)
        (self.folder / ".cache/huggingface/hub").symlink_to(self.folder / "hub")
        self.environment.pop("HF_HOME", None)
        self.assertEqual(self.inspected(HOME=str(self.folder)), "0a1b")

    def test_what_is_not_there(self):
        self.refused(3, "inspect", "maker/other", env=self.environment,
                     says=["'maker/other' does not exist here", str(self.folder / "hub"),
                           "hf download maker/other"])

    def test_a_folder_here_goes_before_the_cache(self):
        (self.folder / "maker/shapes").mkdir(parents=True)
        self.refused(3, "inspect", "maker/shapes", env=self.environment, says="'maker/shapes' holds neither")


class ConfigurationsAlone(ProgramTest):
    """As `hf download ... --include "*.json" "*.txt" "*.model"` leaves a folder."""

    def without_weights(self, source):
        model = self.copy_model(source=source)
        for path in model.rglob("*.safetensors"):
            path.unlink()
        return model

    def inspected(self, model, *arguments):
        done = self.run_here("inspect", model, "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def same(self, source, *arguments):
        model = self.without_weights(source)
        alone, whole = self.inspected(model, *arguments), self.inspected(source, *arguments)
        for key in ("memory", "flops_per_step", "run"):
            self.assertEqual(alone[key], whole[key])
        for a, w in zip(alone["components"], whole["components"]):
            self.assertEqual((a["name"], a["facts"]), (w["name"], w["facts"]))
            self.assertEqual(a["parameters"], w["parameters"], a["name"])
            self.assertTrue(w["downloaded"])
            self.assertEqual(a["downloaded"], w["parameters"] == 0, a["name"])
        shutil.rmtree(model)

    def test_everything_is_known_before_the_weights_come(self):
        self.same(SHAPES)
        self.same(SCENES, "--width", "256")
        self.same(DATA / "diffusers/cogvideox_2b/model")

    def test_the_index_says_how_large_they_are(self):
        source = DATA / "diffusers/flux_dev/model/vae"
        index = json.loads((source / "diffusion_pytorch_model.safetensors.index.json").read_text())
        model = self.without_weights(source)
        part = self.inspected(model)["components"][0]
        self.assertEqual((part["downloaded"], part["file_bytes"]), (False, index["metadata"]["total_size"]))
        shown = self.run_here("inspect", model).stdout
        self.assertIn("to download  weights are not here yet", shown)
        # One shard of several is no description alone.
        name = sorted(index["weight_map"].values())[0]
        shutil.copy(source / name, model / name)
        self.refused(3, "inspect", model, says="shards are missing")

    def test_a_run_needs_them(self):
        model = self.without_weights(SHAPES)
        self.refused(3, "generate", model, "--class", "1", says=["transformer", "download the weights too"])

    def test_tokenizers_and_schedulers_are_opened(self):
        model = self.without_weights(SCENES)
        parts = {p["name"]: p for p in self.inspected(model)["components"]}
        self.assertGreater(int(parts["tokenizer"]["facts"]["vocabulary"]), 10)
        config = model / "scheduler/scheduler_config.json"
        whole = config.read_text()
        self.change_json(config, num_train_timesteps=-1)
        self.refused(3, "inspect", model, says=["scheduler_config.json", "num_train_timesteps"])
        config.write_text(whole)
        for path in (model / "tokenizer").iterdir():
            path.unlink()
        self.refused(3, "inspect", model, says="tokenizer")


class Time(ProgramTest):
    def test_inspect_says_how_long(self):
        done = self.run_here("inspect", "scenes", "--json", "--steps", "7", "--threads", "1")
        found = json.loads(done.stdout)
        seconds = found["seconds"]
        self.assertEqual(set(seconds), {"text", "load", "step", "decode", "whole"})
        self.assertAlmostEqual(seconds["whole"], seconds["text"] + seconds["load"] + 7 * seconds["step"] +
                               seconds["decode"], places=5)
        self.assertTrue(all(s > 0 for s in seconds.values()), seconds)
        shown = self.run_here("inspect", "scenes", "--steps", "7").stdout
        self.assertRegex(shown, r"time +about \S+ (m?s|min|h).* a step, .* in all \(7 steps")
        larger = json.loads(self.run_here("inspect", "scenes", "--json", "--width", "256", "--height", "256",
                                          "--threads", "1").stdout)
        self.assertGreater(larger["seconds"]["step"], 1.5 * seconds["step"])

    def test_sizes_by_name(self):
        found = json.loads(self.run_here("inspect", "dit_moe_s", "--json").stdout)
        self.assertGreater(found["seconds"]["step"], 0)

    def test_a_long_run_says_so_before_it_waits(self):
        long = ("generate", "scenes", "--prompt", "a red circle left of a blue square", "--width", "256",
                "--height", "256", "--steps", "100000", "-o", "x.png")
        process = subprocess.Popen([PROGRAM, *long], cwd=self.folder, stderr=subprocess.PIPE, text=True)
        first = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(60), 130)
        self.assertRegex(first, r"^note: expects about .* a step, .* (min|h) .* in all \(100000 steps")

    def test_a_short_one_does_not(self):
        done = self.run_here("generate", "shapes", "--class", "1", "--steps", "2")
        self.assertEqual(done.returncode, 0)
        self.assertFalse(re.search("expects", done.stderr), done.stderr)


if __name__ == "__main__":
    unittest.main()
