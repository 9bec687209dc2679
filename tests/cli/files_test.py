#!/usr/bin/env python3
"""No output takes the place of an input, of a model's file, of another output or of what others made."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import time
import unittest

from program import DATA, PROGRAM, SHAPES, SOURCE, ProgramTest, read_safetensors, write_safetensors

TINY = DATA / "moe/dit_moe_flash/model"
TASKS = SOURCE / "models/tasks-a"
QUICK = ("generate", "shapes", "--class", "1", "--steps", "1", "--progress", "none")
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108020000009077"
                    "53de0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082")  # another's


def state_of(folder):
    """Every path below a folder with its inode and bytes."""
    return {path: (path.lstat().st_ino, path.read_bytes() if path.is_file() else None)
            for path in sorted(folder.rglob("*"))}


class Matrix(ProgramTest):
    """Every output option against every input option, every file of the model and every other output."""

    def setUp(self):
        super().setUp()
        self.pairs = 0
        (self.folder / "sub").mkdir()

    def input_file(self, name="in.png"):
        path = self.folder / name
        path.write_text("[1]\n")
        return path

    def spellings(self, path):
        """Names of one file: itself, through a folder, and two links."""
        names = [path, path.parent / "." / path.name, self.folder / "link.png", self.folder / "twin.png"]
        names[2].symlink_to(path)
        os.link(path, names[3])
        yield from names
        names[2].unlink()
        names[3].unlink()

    def stays(self, *arguments, says="", **options):
        self.pairs += 1
        before = state_of(self.folder)
        self.refused(2, *arguments, says=says, **options)
        self.assertEqual(state_of(self.folder), before, arguments)

    def links_to_model(self, command, outputs, model):
        for file in [f for f in sorted(model.rglob("*")) if f.is_file()]:
            link = self.folder / "link.png"
            link.symlink_to(file)
            for output in outputs:
                self.stays(*command, output, link, says="the model's own folder")
                self.stays(*command, "--overwrite", output, link, says="the model's own folder")
            link.unlink()

    def test_generate(self):
        model = self.copy_model(source=SHAPES)
        command = ("generate", model, "--class", "1")
        outputs = ("-o", "--save-latents", "--trace", "--report", "--preview")
        self.links_to_model(command, outputs, model)
        path = self.input_file()
        for output, option in itertools.product(outputs, ("--embeddings", "--initial-latents", "--prompt-file")):
            subject = ("generate", model) if option == "--prompt-file" else command
            for name in self.spellings(path):
                self.stays(*subject, option, path, output, name, says="is the file of " + option)
        path.unlink()
        for one, other in itertools.permutations(outputs, 2):
            self.stays(*command, one, "a.png", other, "sub/../a.png", says="written twice")
        for output in outputs[1:]:
            for numbered in ("a-0000.png", "a-0001.png"):
                self.stays(*command, "--count", 2, "-o", "a.png", output, numbered, says="a name that -o")
            for numbered in ("sub/0000.png", "sub/0041.png"):
                self.stays(*command, "-o", "sub", output, numbered, says="a name that -o")
            self.stays(*command, output, model / "new.png", says="the model's own folder")
            self.stays(*command, output, "x.png", "-o", "x.png/", says="written twice")
        self.stays(*command, "-o", str(model) + "/", says="the model's own folder")
        self.stays(*command, "-o", str(model / "vae/new") + "/", says="the model's own folder")
        self.assertGreaterEqual(self.pairs, 150)

    def test_complete(self):
        model = self.copy_model(source=TASKS)
        for option in ("--prompt-file", "--chat"):
            path = self.input_file()
            for name in self.spellings(path):
                self.stays("complete", model, option, path, "--report", name, says="is the file of " + option)
        self.links_to_model(("complete", model, "--prompt", "a"), ["--report"], model)

    def test_forward(self):
        model = self.copy_model(source=SHAPES)
        path = self.input_file()
        for name in self.spellings(path):
            self.stays("forward", model, "--inputs", path, "--outputs", name, says="is the file of --inputs")
        self.links_to_model(("forward", model, "--inputs", path), ["--outputs"], model)

    def test_bench(self):
        model = self.copy_model()
        path = self.input_file()
        for name in self.spellings(path):
            self.stays("bench", "parallel", model, "--embeddings", path, "--json", name, says="--embeddings")
        self.links_to_model(("bench", "parallel", model), ["--json"], model)

    def test_quantise(self):
        model = self.copy_model(source=TASKS)
        for name in (model, model / "new", model / "../model/new", *model.iterdir()):
            self.stays("quantise", model, "-o", name, says="the model's own folder")
        (self.folder / "alias").symlink_to(model)
        self.stays("quantise", model, "-o", "alias/new", says="the model's own folder")
        (self.folder / "file").write_text("mine")
        for name in ("sub", "file"):
            self.stays("quantise", model, "-o", name, says="exists already")

    def test_the_hubs_cache(self):
        cache = self.folder / "hub"
        snapshot = cache / "models--a--b/snapshots/1"
        shutil.copytree(TASKS, snapshot)
        environment = {**os.environ, "HF_HUB_CACHE": str(cache)}
        for model in ("a/b", "shapes", snapshot):
            for name in (cache / "x", cache / "models--a--b/x", snapshot / "config.json"):
                own = name.parent == snapshot and model != "shapes"
                self.stays("complete", model, "--prompt", "a", "--report", name, env=environment,
                           says="the model's own folder" if own else "the hub's cache")

    def test_chat(self):
        model = self.copy_model(source=TASKS)
        (self.folder / "file").write_text("mine")
        for name, says in ((model / "config.json", "own folder"), (model / "new", "own folder"),
                           ("file", "'file' exists")):
            self.stays("chat", model, input=f"/save {name}\n", says=says)

    def test_serve(self):
        model = self.copy_model()
        keys = self.folder / "keys"
        keys.write_text("me 0123456789abcdef0123456789abcdef\n")
        keys.chmod(0o600)
        (self.folder / "sub/results").mkdir()
        (self.folder / "sub/results/mine").write_text("mine")
        for store, says in ((model, "own folder"), (model / "store", "own folder"), (self.folder, "keep it elsewhere"),
                            (self.folder / "sub", "holds files")):
            self.stays("serve", model, "--port", 0, "--api-keys", keys, "--store", store, says=says)


class Existing(ProgramTest):
    """What is there is replaced where Tessera wrote it, for the same purpose."""

    def test_outputs_of_a_former_run(self):
        words = ("-o", "a.png", "--save-latents", "l", "--trace", "t", "--report", "r", "--preview", "p.webp")
        for _ in range(2):
            done = self.run_here(*QUICK[:-4], "--steps", "2", "--progress", "none", *words)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        for kind in ("jpg", "webp", "png"):
            for _ in range(2):
                self.assertEqual(self.run_here(*QUICK, "-o", "b." + kind).returncode, 0)
        for _ in range(2):
            self.assertEqual(self.run_here(*QUICK, "--count", 2, "-o", "c.png").returncode, 0)
            self.assertEqual(self.run_here("complete", "tasks-a", "--prompt", "sort ab=", "--report", "cr").returncode, 0)
        done = self.run_here("complete", "tasks-a", "--prompt", "sort ab=", "--report", "r")  # a report is a report
        self.assertEqual(done.returncode, 0, done.stderr)
        # By content, and each for its own purpose.
        for option, name in (("--report", "l"), ("--save-latents", "t"), ("--trace", "l"), ("--save-latents", "r"),
                             ("--trace", "a.png")):
            self.refused(2, *QUICK, "-o", "x.png", option, name, says=[f"'{name}' exists", "--overwrite"])
        (self.folder / "l").rename(self.folder / "l.png")
        self.refused(2, *QUICK, "-o", "l.png", says="'l.png' exists, and is no image that Tessera wrote")

    def test_forward_and_bench(self):
        io, _ = read_safetensors(DATA / "moe/dit_moe_flash/io.safetensors")
        write_safetensors(self.folder / "in", {k: io["forward.0." + k] for k in "xty"})
        shutil.copy(self.folder / "in", self.folder / "mine")
        for _ in range(2):
            done = self.run_here("forward", TINY, "--inputs", "in", "--outputs", "out")
            self.assertEqual(done.returncode, 0, done.stderr)
            done = self.run_here("bench", "parallel", TINY, "--seconds", 0, "--json", "plans")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.refused(2, "forward", TINY, "--inputs", "in", "--outputs", "mine", says="give --overwrite")
        self.refused(2, "bench", "parallel", TINY, "--seconds", 0, "--json", "mine", says="give --overwrite")
        self.refused(2, "bench", "parallel", TINY, "--seconds", 0, "--json", "out", says="give --overwrite")
        self.assertEqual(self.run_here("forward", TINY, "--inputs", "in", "--outputs", "mine", "--overwrite").returncode, 0)

    def test_what_others_made(self):
        (self.folder / "photo.png").write_bytes(PNG)
        (self.folder / "c-0001.png").write_text("mine")
        (self.folder / "mine").write_text("mine")
        before = state_of(self.folder)
        for words in (("-o", "photo.png"), ("--preview", "photo.png"), ("--count", 2, "-o", "c.png"),
                      *((option, "mine") for option in ("--save-latents", "--trace", "--report"))):
            self.refused(2, *QUICK, *words, says="give --overwrite")
        self.assertEqual(state_of(self.folder), before)
        done = self.run_here(*QUICK, "-o", "photo.png", "--report", "mine", "--overwrite")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads((self.folder / "mine").read_text())["program"], "Tessera")

    def test_an_empty_file_is_nobodys(self):
        for name in ("e.png", "r"):
            (self.folder / name).touch()
        self.assertEqual(self.run_here(*QUICK, "-o", "e.png", "--report", "r").returncode, 0)

    def test_a_file_that_the_shell_opened(self):
        for redirection in (">> mine", "2>> mine", "< mine"):
            (self.folder / "mine").write_text("{\n \"program\": \"Tessera\"\n}\n")
            done = subprocess.run(["bash", "-c", f'"$0" "$@" {redirection}', PROGRAM, *QUICK, "--report", "mine"],
                                  cwd=self.folder, capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 2, redirection)
        done = subprocess.run(["bash", "-c", '"$0" "$@" > new.png', PROGRAM, *QUICK, "-o", "/dev/stdout"],
                              cwd=self.folder, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.folder / "new.png").read_bytes().startswith(b"\x89PNG"))

    def test_chat_saves_over_its_own_file_alone(self):
        done = self.run_here("chat", "tasks-a", input="/save said\nsort ab=\n/save said\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(json.loads((self.folder / "said").read_text())), 2)
        self.refused(2, "chat", "tasks-a", input="/save said\n", says="'said' exists")


class Folders(ProgramTest):
    """Images in a folder have numbers, which go on."""

    def images(self):
        return sorted(path.name for path in (self.folder / "d").iterdir())

    def test_numbers_go_on(self):
        for first in (0, 2, 4):
            done = self.run_here(*QUICK, "--count", 2, "-o", "d/")
            self.assertEqual(done.stdout, f"d/{first:04}.png\nd/{first + 1:04}.png\n", done.stderr)
        (self.folder / "d/0099.png").write_text("mine")
        (self.folder / "d/notes.txt").write_text("mine")
        self.assertEqual(self.run_here(*QUICK, "-o", "d").stdout, "d/0100.png\n")
        self.assertEqual((self.folder / "d/0099.png").read_text(), "mine")
        first = (self.folder / "d/0000.png").stat().st_ino
        self.assertEqual(self.run_here(*QUICK, "-o", "d", "--overwrite").stdout, "d/0000.png\n")
        self.assertNotEqual((self.folder / "d/0000.png").stat().st_ino, first)

    def test_two_runs_in_one_folder(self):
        runs = [subprocess.Popen([PROGRAM, *QUICK, "--count", "12", "-o", "d/"], cwd=self.folder, text=True,
                                 stdout=subprocess.PIPE) for _ in range(3)]
        names = [name for run in runs for name in run.communicate(timeout=120)[0].split()]
        self.assertEqual(len(set(names)), 36)
        self.assertEqual(self.images(), [f"{i:04}.png" for i in range(36)])

    def test_a_number_whose_image_could_not_be_written(self):
        (self.folder / "d").mkdir()
        limited = 'ulimit -f 1; trap "" XFSZ; exec "$0" "$@"'
        done = subprocess.run(["bash", "-c", limited, PROGRAM, *QUICK, "-o", "d"], cwd=self.folder,
                              capture_output=True, timeout=60)
        self.assertEqual((done.returncode, self.images()), (2, []), done.stderr)


class Leftovers(ProgramTest):
    """A killed run leaves a file or folder beside its output; the next run there removes it."""

    def kill(self, *arguments):
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], cwd=self.folder, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until and not list(self.folder.glob(".tessera-*")):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        return list(self.folder.glob(".tessera-*"))

    def test_of_quantise(self):
        model = self.copy_model(source=TASKS)
        (model / "large").write_bytes(bytes(200_000_000))  # takes a moment
        self.assertTrue(self.kill("quantise", model, "-o", "q"))
        (model / "large").unlink()
        other = self.folder / ".tessera-mine"
        other.write_text("mine")
        done = self.run_here("quantise", model, "-o", "q2", "--progress", "none")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(self.folder.glob(".tessera-*")), [other])

    def test_of_an_image(self):
        left = self.folder / ".tessera-0123456789abcdef.part"
        left.write_text("half of an image")
        self.assertEqual(self.run_here(*QUICK, "-o", "a.png").returncode, 0)
        self.assertFalse(left.exists())


if __name__ == "__main__":
    unittest.main()
