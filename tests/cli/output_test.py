#!/usr/bin/env python3
"""Outputs that cannot be written, full disks, closed pipes: one line, and nothing half-written."""

import json
import os
import stat
import subprocess
import unittest

from program import DATA, PROGRAM, SHAPES, ProgramTest, read_safetensors, write_safetensors

TINY = DATA / "moe/dit_moe_flash/model"
QUICK = ("generate", "shapes", "--class", "1", "--steps", "1")


def is_png(path):
    return path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


class Outputs(ProgramTest):
    def test_names_what_it_wrote(self):
        done = self.run_here(*QUICK)
        self.assertEqual((done.returncode, done.stdout), (0, "tessera.png\n"), done.stderr)
        self.assertTrue(is_png(self.folder / "tessera.png"))
        done = self.run_here(*QUICK, "--count", "2", "-o", "a.png", "--save-latents",
                             "l.safetensors", "--report", "r.json", "--trace", "t.safetensors")
        self.assertEqual(done.stdout, "a-0000.png\na-0001.png\nl.safetensors\n", done.stderr)
        self.assertEqual(json.loads((self.folder / "r.json").read_text())["forwards"], 1)
        self.assertIn("image", read_safetensors(self.folder / "t.safetensors")[0])
        done = self.run_here(*QUICK, "-o", "new/folder/")
        self.assertEqual(done.stdout, "new/folder/0000.png\n", done.stderr)

    def test_folder_missing(self):
        for option in ("-o", "--save-latents", "--trace", "--report"):
            name = "none/x.png"
            self.refused(2, *QUICK, option, name, says=[f"'{name}'", "make its folder first"])

    def test_a_folder_where_a_file_is_meant(self):
        (self.folder / "taken.png").mkdir()
        for option in ("--save-latents", "--trace", "--report"):
            self.refused(2, *QUICK, option, "taken.png", says=["'taken.png'", "name a file in it"])

    def test_other_kinds_of_images(self):
        self.refused(2, *QUICK, "-o", "x.gif", says=["'x.gif'", ".png", ".jpg"])
        self.refused(2, *QUICK, "-o", "", says="''")

    def test_previews(self):
        quick = ("generate", "shapes", "--class", "1", "--steps", "4", "--progress", "none")
        done = self.run_here(*quick, "--preview", "p.png", "--preview-every", "3")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "tessera.png\n", ""))
        self.assertTrue(is_png(self.folder / "p.png"))
        done = self.run_here(*quick, "--preview", "q.png", "--preview-every", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("note: no preview: ", done.stderr)
        self.assertFalse((self.folder / "q.png").exists())
        os.symlink("/dev/full", self.folder / "full.png")
        done = self.run_here(*quick, "--preview", "full.png")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("note: no preview: cannot write 'full.png'", done.stderr)
        os.mkfifo(self.folder / "fifo.png")
        self.refused(2, *quick, "--preview", "fifo.png", says=["'fifo.png'", "name a file"])
        self.refused(2, *quick, "--preview", "x.gif", says=["'x.gif'", ".png"])
        self.refused(2, *quick, "--preview", "tessera.png", says="would be written twice")
        self.refused(2, *quick, "--preview-every", "2", says=["--preview-every", "--preview"])

    def test_a_file_where_a_folder_is_meant(self):
        (self.folder / "file").write_text("x")
        self.refused(2, *QUICK, "-o", "file/", says="file")
        self.refused(2, *QUICK, "-o", "file/x.png", says="'file/x.png'")

    def test_read_only(self):
        # The superuser may write anywhere but to what the kernel alone makes.
        self.refused(2, *QUICK, "-o", "/proc/x.png", says="'/proc/x.png'")
        if os.geteuid() != 0:
            closed = self.folder / "closed"
            closed.mkdir(mode=0o500)
            self.refused(2, *QUICK, "-o", "closed/x.png", says="'closed/x.png'")
            kept = self.folder / "kept.png"
            kept.write_text("x")
            kept.chmod(0o400)
            self.refused(2, *QUICK, "-o", "kept.png", says="'kept.png'")

    def test_refused_before_the_work(self):
        self.refused(2, "generate", "shapes", "--class", "1", "--steps", "100000", "-o",
                     "none/x.png", says="none/x.png")
        self.refused(2, "forward", TINY, "--inputs", "none.safetensors", "--outputs",
                     "none/y.safetensors", says="none/y.safetensors")

    def test_an_old_file_stays_when_the_run_fails(self):
        old = self.folder / "old.png"
        old.write_text("old")
        self.refused(2, *QUICK, "-o", "old.png", "--overwrite", "--height", "100", says="--height 100")
        self.assertEqual(old.read_text(), "old")
        self.assertEqual(self.run_here(*QUICK, "-o", "old.png", "--overwrite").returncode, 0)
        self.assertTrue(is_png(old))

    def test_links_and_devices_stay_what_they_are(self):
        (self.folder / "link.png").symlink_to("real.png")
        (self.folder / "real.png").write_text("old")
        self.assertEqual(self.run_here(*QUICK, "-o", "link.png", "--overwrite").returncode, 0)
        self.assertTrue((self.folder / "link.png").is_symlink())
        self.assertTrue(is_png(self.folder / "real.png"))
        self.assertEqual(self.run_here(*QUICK, "-o", "/dev/null").returncode, 0)
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))

    def test_full_disk(self):
        for option in ("-o", "--save-latents", "--trace", "--report"):
            before = [] if option in ("-o",) else ["-o", "/dev/null"]
            self.refused(2, *QUICK, *before, option, "/dev/full",
                         says=["'/dev/full'", "No space left on device", "free some space"])
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/full").st_mode))

    def test_full_disk_under_standard_output(self):
        for command in (("inspect", "shapes"), ("--help",), ("--version",), ("generate", "--help")):
            with open("/dev/full", "w") as full:
                done = subprocess.run([PROGRAM, *command], stdout=full, stderr=subprocess.PIPE,
                                      text=True, timeout=60)
            self.assertEqual(done.returncode, 2, command)
            self.assertEqual(done.stderr, "tessera: error: cannot write to standard output: "
                                          "No space left on device\n")

    def test_a_full_disk_leaves_nothing(self):
        # A limit on the size of files ends a write as a full disk does.
        limited = f'ulimit -f 1; trap "" XFSZ; exec "$0" "$@"'
        before = sorted(self.folder.rglob("*"))
        done = subprocess.run(["bash", "-c", limited, PROGRAM, *QUICK, "-o", "big.png"],
                              cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("tessera: error: cannot write 'big.png'", done.stderr.splitlines()[-1])
        self.assertEqual(sorted(self.folder.rglob("*")), before)


class Reports(ProgramTest):
    def test_the_memory_that_inspect_predicts_is_what_a_run_takes(self):
        for size in (("--width", "128"), ("--width", "384", "--height", "256", "--count", "2")):
            predicted = json.loads(self.run_here("inspect", "shapes", "--json", *size).stdout)["memory"]
            done = self.run_here(*QUICK, *size, "-o", "/dev/null" if len(size) == 2 else "out/",
                                 "--report", "r.json")
            self.assertEqual(done.returncode, 0, done.stderr)
            taken = json.loads((self.folder / "r.json").read_text())["peak_bytes"]
            for name, key in (("weights", "weights"), ("activations", "activations"), ("peak", "total")):
                self.assertLess(abs(predicted[name] - taken[key]), 0.1 * taken[key] + 2**18, name)


class Pipes(ProgramTest):
    def test_a_reader_that_leaves(self):
        done = subprocess.run(["bash", "-o", "pipefail", "-c",
                               f'"{PROGRAM}" inspect shapes --json | head -c 1'],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "{", ""))

    def test_images_are_written_though_nobody_reads_their_names(self):
        done = subprocess.run(["bash", "-c", f'"{PROGRAM}" {" ".join(QUICK)} --count 3 -o a.png | true'],
                              cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertNotIn("error", done.stderr)
        self.assertTrue(is_png(self.folder / "a-0000.png"))

    def test_an_image_through_a_pipe(self):
        done = subprocess.run([PROGRAM, *QUICK, "-o", "/dev/stdout"], capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith(b"\x89PNG"))
        self.assertTrue(done.stdout.endswith(b"IEND\xaeB`\x82"), "only the image")

    def test_one_image_only(self):
        self.refused(2, *QUICK, "--count", "2", "-o", "/dev/stdout", says="takes one image")

    def test_no_standard_streams(self):
        done = subprocess.run(["bash", "-c", f'"{PROGRAM}" {" ".join(QUICK)} -o a.png >&- 2>&-'],
                              cwd=self.folder, timeout=60)
        self.assertTrue(is_png(self.folder / "a.png"))


class Forward(ProgramTest):
    def test_writes_what_it_says(self):
        io, _ = read_safetensors(DATA / "moe/dit_moe_flash/io.safetensors")
        write_safetensors(self.folder / "in.safetensors", {k: io["forward.0." + k] for k in "xty"})
        done = self.run_here("forward", TINY, "--inputs", "in.safetensors", "--outputs",
                             "out.safetensors", "--trace")
        self.assertEqual((done.returncode, done.stdout), (0, "out.safetensors\n"), done.stderr)
        out, _ = read_safetensors(self.folder / "out.safetensors")
        self.assertEqual(sorted(out), ["block.0", "block.1", "block.2", "embedding", "out"])
        self.assertEqual(out["out"][1], io["forward.0.out"][1])


class Models(ProgramTest):
    def test_one_pass_under_a_plan(self):
        io, _ = read_safetensors(DATA / "moe/dit_moe_flash/io.safetensors")
        write_safetensors(self.folder / "in.safetensors", {k: io["forward.0." + k] for k in "xty"})
        command = ("forward", TINY, "--inputs", "in.safetensors", "--outputs", "out.safetensors", "--trace")
        made = []
        for plan in ((), ("--plan", "data=2"), ("--plan", "pipefusion=2,patches=4,ulysses=2", "--ranks", "4"),
                     ("--plan", "data=2,expert=2,schedule=displaced")):
            done = self.run_here(*command, *plan)
            self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", "out.safetensors\n"))
            made.append((self.folder / "out.safetensors").read_bytes())
        self.assertEqual(set(made), {made[0]})
        for plan, says in (("data=2,expert=3", "cannot run"), ("cfg=2", "leave out cfg="),
                           ("data=3", "use data=2 or more samples"), ("pipefusion=99", "use pipefusion=")):
            self.refused(4, *command, "--plan", plan, says=says)
        self.refused(4, "forward", "shapes", "--component", "vae.decode", "--inputs", "in.safetensors", "--outputs", "o",
                     "--plan", "data=2", says=["a vae.decode runs on one", "leave out --plan"])

    def test_a_shipped_model_by_name_from_anywhere(self):
        done = self.run_here("inspect", "shapes", "--json")
        self.assertEqual(json.loads(done.stdout)["model"], str(SHAPES))

    def test_a_folder_here_comes_before_a_shipped_one(self):
        (self.folder / "shapes").mkdir()
        self.refused(3, "inspect", "shapes", says="model_index.json")


if __name__ == "__main__":
    unittest.main()
