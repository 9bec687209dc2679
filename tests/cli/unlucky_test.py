#!/usr/bin/env python3
"""Files that change, are no files, or have no room: an error line and a status, never a signal or a wait."""

import os
import resource
import shutil
import signal
import stat
import subprocess
import time
import unittest

from program import DATA, PROGRAM, SHAPES, ProgramTest

QUICK = ("generate", "shapes", "--class", "1", "--steps", "1", "--progress", "none")
CHAT_MODEL = DATA / "moe/llada_moe/model"


class ChangingWeights(ProgramTest):
    def started(self, *arguments):
        return subprocess.Popen([PROGRAM, *map(str, arguments)], cwd=self.folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_a_file_that_shrinks_or_changes_under_a_streaming_run(self):
        def shrink(path):
            os.truncate(path, path.stat().st_size // 2)

        def overwrite(path):
            with open(path, "r+b") as file:
                file.write(file.read(64))

        for change in (shrink, overwrite):
            with self.subTest(change.__name__):
                shutil.rmtree(self.folder / "model", ignore_errors=True)
                model = self.copy_model(source=SHAPES)
                process = self.started("generate", model, "--class", "1", "--steps", "100000",
                                       "--memory-budget", "6MB", "--progress", "plain", "-o", "x.png")
                for line in process.stderr:
                    if line.startswith("denoise"):
                        break
                change(next((model / "transformer").glob("*.safetensors")))
                _, err = process.communicate(timeout=100)
                self.assertEqual(process.returncode, 3, err)
                self.assertRegex(err.splitlines()[-1], "^tessera: error: .*was changed while it was in use")
                self.assertFalse((self.folder / "x.png").exists())

    def test_a_file_that_shrinks_while_it_is_loaded(self):
        statuses = []
        for i in range(12):
            shutil.rmtree(self.folder / "model", ignore_errors=True)
            model = self.copy_model(source=SHAPES)
            process = self.started("generate", model, "--class", "1", "--steps", "1", "-o", "x.png",
                                   "--progress", "none")
            time.sleep(0.02 * i)
            os.truncate(next((model / "transformer").glob("*.safetensors")), 100_000)
            _, err = process.communicate(timeout=100)
            statuses.append(process.returncode)
            self.assertIn(process.returncode, (0, 3), err)
            self.assertEqual(len(err.splitlines()), int(process.returncode == 3), err)
        self.assertIn(3, statuses)


class NoFiles(ProgramTest):
    def soon_refused(self, status, *arguments, says):
        begin = time.monotonic()
        self.refused(status, *arguments, says=says, leaves=())
        self.assertLess(time.monotonic() - begin, 60)

    def test_a_pipe_in_place_of_any_file_of_a_model(self):
        for source, run in ((SHAPES, ("generate", "{}", "--class", "1", "--steps", "1", "-o", "x.png")),
                            (CHAT_MODEL, ("complete", "{}", "--prompt", "x", "--max-tokens", "4"))):
            for path in sorted(p for p in source.rglob("*") if p.suffix in (".json", ".safetensors")):
                shutil.rmtree(self.folder / "model", ignore_errors=True)
                model = self.copy_model(source=source)
                piped = model / path.relative_to(source)
                piped.unlink()
                os.mkfifo(piped)
                arguments = [str(model) if a == "{}" else a for a in run]
                done = subprocess.run([PROGRAM, *arguments], cwd=self.folder, capture_output=True,
                                      text=True, timeout=60)
                # Some files are of no use to this run, and some may be missing.
                self.assertIn(done.returncode, (0, 2, 3), f"{piped}\n{done.stderr}")

    def test_what_is_no_file_is_not_taken_for_missing(self):
        def pipe(path):
            os.mkfifo(path)

        def device(path):
            path.symlink_to("/dev/zero")

        def nothing(path):
            path.symlink_to("nowhere")

        kinds = {pipe: "it is a pipe", device: "it is a device", lambda path: path.mkdir(): "it is a folder",
                 nothing: "cannot open"}
        runs = ((SHAPES.parent / "scenes", ("generate", "{}", "--prompt", "x", "--steps", "1"),
                 ("MODEL_CARD.md", "captions.json")),
                (SHAPES, ("generate", "{}", "--class", "1", "--steps", "1"), ("MODEL_CARD.md", "critic/")),
                (SHAPES.parent / "tasks-a", ("complete", "{}", "--prompt", "x", "--max-tokens", "4"),
                 ("MODEL_CARD.md", "tasks.jsonl")))
        for number, (source, run, unread) in enumerate(runs):
            files = [p.relative_to(source) for p in sorted(source.rglob("*")) if p.is_file()]
            files = [p for p in files if not any(part in str(p) for part in unread)]
            self.assertGreater(len(files), 3)
            model = self.copy_model(f"model{number}", source)
            for i, path in enumerate(files):
                make, says = list(kinds.items())[i % len(kinds)]
                (model / path).unlink()
                make(model / path)
                arguments = [str(model) if a == "{}" else a for a in run]
                self.soon_refused(3, *arguments, says=[str(model / path), says])
                (model / path).rmdir() if (model / path).is_dir() else (model / path).unlink()
                shutil.copyfile(source / path, model / path)

    def test_pipes_devices_and_folders_as_input(self):
        os.mkfifo(self.folder / "pipe")
        model = DATA / "diffusers/pixart_alpha/model"
        for name in ("pipe", "/dev/zero", "/etc"):
            says = [name, "regular file"]
            self.soon_refused(2, "generate", model, "--prompt-file", name, "--steps", "1", says=says)
            self.soon_refused(2, "complete", CHAT_MODEL, "--chat", name, "--max-tokens", "4", says=says)
            self.soon_refused(3, *QUICK, "--initial-latents", name, says=says)
            self.soon_refused(2, "eval", "tasks", "tasks-a", "--data", name, says=says)

    def test_text_without_end(self):
        with open(self.folder / "large.txt", "wb") as file:
            file.truncate(1 << 36)
        model = DATA / "diffusers/pixart_alpha/model"
        says = ["large.txt", "more than"]
        self.soon_refused(2, "generate", model, "--prompt-file", "large.txt", says=says)
        self.soon_refused(2, "complete", CHAT_MODEL, "--chat", "large.txt", says=says)


class Outputs(ProgramTest):
    def test_a_replaced_file_keeps_its_mode_and_strangers_beside_it_do_not_matter(self):
        (self.folder / "x.png").write_text("old")
        (self.folder / "x.png").chmod(0o600)
        for pid in range(2):
            (self.folder / f"x.png.tmp-{os.getpid() + pid}-1").write_text("left by a killed run")
        self.assertEqual(self.run_here(*QUICK, "-o", "x.png", "--overwrite").returncode, 0)
        self.assertEqual((self.folder / "x.png").read_bytes()[1:4], b"PNG")
        self.assertEqual(stat.S_IMODE((self.folder / "x.png").stat().st_mode), 0o600)

    def test_a_limit_on_the_size_of_files(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        for tail in (("-o", "x.png"), ("-o", "x.webp"),
                     ("--latents-only", "--save-latents", "x.safetensors")):
            self.refused(2, *QUICK, *tail, says="raise the limit", preexec_fn=limit)

    def test_one_path_for_two_outputs(self):
        for tail in (("-o", "x.png", "--report", "./x.png"),
                     ("-o", "x.png", "--report", "r", "--trace", "r"),
                     ("-o", "x.png", "--trace", "t", "--save-latents", "../" + self.folder.name + "/t")):
            self.refused(2, *QUICK, *tail, says="would be written twice")
        self.assertEqual(self.run_here(*QUICK, "-o", "x.png", "--report", "/dev/null", "--trace",
                                       "/dev/null").returncode, 0)


class Values(ProgramTest):
    def test_no_number(self):
        for value in ("nan", "inf", "-1", "0"):
            self.refused(2, *QUICK, "--comm-timeout=" + value, says=["--comm-timeout", value])
        self.refused(2, "eval", "tasks", "tasks-a", "--select-tune", "nan", says="--select-tune")
        for option in ("--guidance", "--guidance-rescale"):
            self.refused(2, *QUICK, option, "nan", says=[option, "nan"])

    def test_an_empty_value_is_no_default(self):
        for option in ("--plan", "--memory-budget", "--report", "--trace", "--vae-tiling", "-o", "--dtype",
                       "--initial-latents", "--device", "--transport", "--scheduler"):
            self.refused(2, *QUICK, option, "", says=["''" if option != "--dtype" else "--dtype"])
        for option in ("--chat", "--select", "--decode", "--cache"):
            self.refused(2, "complete", "tasks-a", "--prompt", "x", option, "", says=[option, "''"])
        self.refused(2, "eval", "tasks", "tasks-a", "--data", "", says=["--data", "''"])


if __name__ == "__main__":
    unittest.main()
