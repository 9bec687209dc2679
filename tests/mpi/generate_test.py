#!/usr/bin/env python3
"""`mpirun -np N tessera generate`: the latents of one process, and no output when a rank is lost."""

import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

MPIRUN = shlex.split(os.environ["TESSERA_MPIRUN"])
PROGRAM = os.environ["TESSERA_PROGRAM"]
MODEL = str(pathlib.Path(os.environ["TESSERA_SOURCE"]) / "tests/data/moe/dit_moe_flash/model")
VIDEO = pathlib.Path(os.environ["TESSERA_SOURCE"]) / "tests/data/diffusers/cogvideox_2b/model"
ARGUMENTS = ["generate", MODEL, "--class", "1,2,3,4,5,6", "--steps", "6", "--dtype", "f32",
             "--latents-only", "--progress", "none", "--threads", "1"]
BY_MESSAGES = ["env", "TESSERA_HEAP=messages", *MPIRUN]  # ranks of moe=fused as if on hosts of their own


class GenerateTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def latents(self, name, prefix, *more):
        file = self.folder / name
        done = subprocess.run([*prefix, PROGRAM, *ARGUMENTS, "--save-latents", str(file), *more],
                              capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        return file.read_bytes()

    def test_processes_give_the_latents_of_one(self):
        one = self.latents("one", [])
        for ranks in (1, 2, 3):
            plan = ["--plan", f"expert={ranks}"] if ranks > 1 else []
            many = self.latents(f"mpi{ranks}", MPIRUN + ["-np", str(ranks)], *plan)
            self.assertEqual(one, many, f"{ranks} processes")
        for plan, start in (("expert=3", MPIRUN), ("expert=3,moe=fused", MPIRUN), ("expert=3,moe=fused", BY_MESSAGES)):
            reports = []
            for prefix in ([], [*start, "-np", "3"]):
                self.latents("reported", prefix, "--plan", plan, "--report",
                             str(self.folder / "report.json"))
                reports.append(json.loads((self.folder / "report.json").read_text()))
            self.assertEqual(reports[0].get("incast"), reports[1].get("incast"))
            self.assertEqual("incast" in reports[0], "fused" in plan)
            threads, processes = ([r["flops"] for r in report["per_rank"]] for report in reports)
            self.assertEqual(threads, processes)
            for kind in ("weights", "buffers"):
                self.assertEqual([r["peak_bytes"][kind] for r in reports[0]["per_rank"]],
                                 [r["peak_bytes"][kind] for r in reports[1]["per_rank"]])
            sent = [{key: value for key, value in t.items() if "seconds" not in key and key != "overlap"}
                    for report in reports for t in report["traffic"] if t["operation"] in ("dispatch", "combine")]
            self.assertEqual(sent[:len(sent) // 2], sent[len(sent) // 2:])
            self.assertGreater(len(sent), 0)
        for plan, ranks in (("expert=2,moe=fused", 2), ("data=2,cfg=2,ulysses=2,expert=4,moe=fused", 8)):
            hosts = BY_MESSAGES + ["-np", str(ranks)]
            self.assertEqual(one, self.latents("hosts", hosts, "--plan", plan), plan)
        for plan, ranks in (("ulysses=2", 2), ("data=2,cfg=2,ulysses=2,expert=4", 8),
                            ("shard=2", 2), ("cfg=2,shard=2", 4), ("expert=2,moe=fused", 2), ("expert=3,moe=fused,placement=strided", 3),
                            ("data=2,cfg=2,ulysses=2,expert=4,moe=fused", 8)):
            shards = MPIRUN + ["-np", str(ranks)]
            self.assertEqual(one, self.latents("shards", shards, "--plan", plan), plan)
        halves = ["--plan", "expert=3,schedule=staggered-batch,placement=strided"]
        self.assertEqual(one, self.latents("halves", MPIRUN + ["-np", "3"], *halves))
        for plan, ranks in (("tensor=2", 2), ("data=2,tensor=2", 4), ("ring=3", 3), ("ring=2,ulysses=2", 4),
                            ("ring=3,patches=4", 3), ("pipefusion=2,ring=2,patches=4", 4)):
            self.assertEqual(self.latents("threads", [], "--plan", plan),
                             self.latents("processes", MPIRUN + ["-np", str(ranks)], "--plan", plan), plan)
        patches = self.latents("patches", [], "--plan", "patches=3")
        self.assertNotEqual(one, patches)
        for plan, ranks in (("pipefusion=2,patches=3", 2), ("cfg=2,pipefusion=2,ulysses=2,patches=3", 8)):
            stages = MPIRUN + ["-np", str(ranks)]
            self.assertEqual(patches, self.latents("stages", stages, "--plan", plan), plan)
        stale = ["--plan", "expert=2,schedule=interweaved,warmup=2"]
        self.assertEqual(self.latents("threads", [], *stale),
                         self.latents("processes", MPIRUN + ["-np", "2"], *stale))

    def prompted(self, model, prefix, *more):
        latents = self.folder / "latents"
        return subprocess.run([*prefix, PROGRAM, "generate", str(model), "--prompt", "waves on a long beach",
                               "--negative-prompt", "fog", "--guidance", "3", "--width", "32", "--height", "32",
                               "--frames", "5", "--steps", "2", "--latents-only", "--progress", "plain",
                               "--save-latents", str(latents), *more],
                              capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL), latents

    def test_the_first_process_encodes_the_prompt(self):
        done, latents = self.prompted(VIDEO, [])
        self.assertEqual(done.returncode, 0, done.stderr)
        one = latents.read_bytes()
        for plan, ranks in (("cfg=2", 2), ("cfg=2,ulysses=2", 4), ("pipefusion=2,patches=1", 2), ("shard=2", 2)):
            report = self.folder / "report.json"
            done, latents = self.prompted(VIDEO, MPIRUN + ["-np", str(ranks)], "--plan", plan,
                                          "--report", str(report))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(one, latents.read_bytes(), plan)
            text = [t for t in json.loads(report.read_text())["traffic"] if t["operation"] == "text"]
            # One to each other rank; of two that share weights the second encodes a text, and has no sample.
            self.assertEqual([t["messages"] for t in text], [ranks - 1])
            weights = [t for t in json.loads(report.read_text())["traffic"] if t["operation"] == "text_weights"]
            self.assertEqual(len(weights), 2 if plan == "shard=2" else 0, "layers")
        done, latents = self.prompted(VIDEO, [], "--plan", "shards=2")
        self.assertEqual(done.returncode, 0, done.stderr)
        shards = latents.read_bytes()
        self.assertNotEqual(one, shards)
        done, latents = self.prompted(VIDEO, MPIRUN + ["-np", "2"], "--plan", "distrifusion=2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(shards, latents.read_bytes(), "text is cut like the latent")

    def test_an_encoder_that_fails_ends_all(self):
        broken = self.folder / "model"
        shutil.copytree(VIDEO, broken)
        weights = broken / "text_encoder/model.safetensors"
        data = bytearray(weights.read_bytes())
        begin = 8 + int.from_bytes(data[:8], "little")
        data[begin:] = b"\xff" * (len(data) - begin)
        weights.write_bytes(data)
        done, latents = self.prompted(broken, MPIRUN + ["-np", "2"], "--plan", "cfg=2")
        lines = [l for l in done.stderr.splitlines() if l.startswith("tessera: error: ")]
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn("text_encoder", lines[0])
        self.assertFalse(latents.exists())

    def test_a_decoder_that_fails_ends_all(self):
        broken = self.folder / "model"
        shutil.copytree(pathlib.Path(os.environ["TESSERA_SOURCE"]) / "models/shapes", broken)
        weights = broken / "vae/diffusion_pytorch_model.safetensors"
        data = bytearray(weights.read_bytes())
        begin = 8 + int.from_bytes(data[:8], "little")
        data[begin:] = b"\xff" * (len(data) - begin)
        weights.write_bytes(data)
        image = self.folder / "image.png"
        done = subprocess.run([*MPIRUN, "-np", "3", PROGRAM, "generate", str(broken), "--class", "3", "--count", "2", "--steps", "2",
                               "--threads", "1", "--progress", "none", "-o", str(image), "--plan", "cfg=2,vae=+1"],
                              capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        lines = [l for l in done.stderr.splitlines() if l.startswith("tessera: error: ")]
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn("rank 2, which decodes: ", lines[0])
        self.assertFalse(image.exists())

    def image(self, prefix, plan):
        file = self.folder / "image.png"
        done = subprocess.run([*prefix, PROGRAM, "generate", "shapes", "--class", "3", "--steps", "2", "--threads", "1",
                               "--progress", "none", "-o", str(file), "--plan", plan],
                              capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        return file.read_bytes()

    def test_processes_decode_an_image_together(self):
        for plan, ranks in (("ulysses=3,vae=3", 3), ("cfg=2,ulysses=2,vae=3", 4), ("cfg=2,vae=+2", 4)):
            self.assertEqual(self.image(MPIRUN + ["-np", str(ranks)], plan), self.image([], plan), plan)
        folder = pathlib.Path(MODEL).parents[2] / "diffusers/pixart_alpha"
        tools = pathlib.Path(os.environ["TESSERA_SOURCE"]) / "tools/tensors.py"
        given = self.folder / "in.safetensors"
        for part in ("decode", "encode"):
            subprocess.run([sys.executable, str(tools), "take", str(folder / "io_vae.safetensors"), f"{part}.in", str(given),
                            "--as", "sample"], check=True)
            made = []
            for prefix in ([], MPIRUN + ["-np", "2"]):
                file = self.folder / "out.safetensors"
                done = subprocess.run([*prefix, PROGRAM, "forward", str(folder / "model"), "--component", f"vae.{part}",
                                       "--inputs", str(given), "--outputs", str(file), "--threads", "1", "--plan",
                                       "ulysses=2,vae=2"],
                                      capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
                self.assertEqual((done.returncode, done.stdout), (0, f"{file}\n"), done.stderr)
                made.append(file.read_bytes())
            self.assertEqual(*made, part)

    def test_a_rank_that_is_lost_in_decoding_leaves_no_output(self):
        for plan, begun, victim in (("ulysses=3,vae=3", "decode", 0), ("ulysses=3,vae=3", "decode", 1),
                                    ("ulysses=3,vae=3", "decode", 2), ("vae=+2", "denoise [1-9]", 0),
                                    ("vae=+2", "denoise [1-9]", 2), ("cfg=2,vae=+1", "denoise [1-9]", 1)):
            run = subprocess.Popen([*MPIRUN, "-np", "3", PROGRAM, "generate", "shapes", "--class", "3", "--count", "200",
                                    "--steps", "1", "--threads", "1", "--progress", "plain", "--plan", plan,
                                    "-o", f"{self.folder}/lost/"],
                                   stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
            watch = threading.Timer(120, run.kill)
            watch.start()
            for line in run.stderr:
                if re.search(begun, line):
                    break
            watch.cancel()
            ranks = [int(pid) for pid in self.children(run.pid)]
            self.assertEqual(len(ranks), 3)
            os.kill(ranks[victim], signal.SIGKILL)
            _, errors = run.communicate(timeout=30)
            lines = [l for l in errors.splitlines() if l.startswith("tessera: error: rank ")]
            self.assertEqual(len(lines), 1, errors)
            self.assertIn("was lost", lines[0])
            self.assertNotEqual(run.returncode, 0)
            self.assertEqual(list(self.folder.iterdir()), [])
            self.assertFalse([p for p in ranks if pathlib.Path(f"/proc/{p}/exe").exists()])

    def test_a_bad_plan_is_refused_in_one_line(self):
        done = subprocess.run([*MPIRUN, "-np", "2", PROGRAM, *ARGUMENTS, "--plan", "expert=3",
                               "--save-latents", str(self.folder / "x")],
                              capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        lines = [l for l in done.stderr.splitlines() if l.startswith("tessera: error: ")]
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertFalse((self.folder / "x").exists())

    def test_a_budget_admits_the_plan_that_fits_into_it(self):
        one = self.latents("one", [])
        budget = ["--memory-budget", "0.9MB", "--report", str(self.folder / "report.json")]
        ranks = lambda: [r["peak_bytes"]["total"] for r in
                         json.loads((self.folder / "report.json").read_text())["per_rank"]]
        four = MPIRUN + ["-np", "4"]
        self.assertEqual(one, self.latents("experts", four, "--plan", "expert=4", *budget))
        self.assertLess(max(ranks()), 900000)
        patches = ["--plan", "distrifusion=4"]  # all experts are on all ranks
        done = subprocess.run([*four, PROGRAM, *ARGUMENTS, *patches, *budget, "--save-latents",
                               str(self.folder / "patches")],
                              capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        lines = [l for l in done.stderr.splitlines() if l.startswith("tessera: error: ")]
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertRegex(lines[0], "allows 0.90* MB: ")
        self.assertIn("it fits into --memory-budget ", lines[0])
        self.assertFalse((self.folder / "patches").exists())
        done = subprocess.run([*MPIRUN, "-np", "2", PROGRAM, *ARGUMENTS, "--plan", "tensor=2", "--memory-budget", "0.3MB",
                               "--save-latents", str(self.folder / "patches")],
                              capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertRegex(done.stderr, "allows 0.30* MB: ranks of a plan do not stream weights")
        self.assertIn("it fits into --memory-budget ", done.stderr)
        need = float(lines[0].split("would need about ")[1].split(" MB")[0]) * 1e6
        budget[1] = f"{need * 1.1 / 1e6:.2f}MB"
        self.latents("patches", four, *patches, *budget)
        self.assertGreater(max(ranks()), 900000)
        self.assertAlmostEqual(max(ranks()), need, delta=0.05 * need)

    def test_commands_of_one_process_are_refused_in_one_line(self):
        for words in (["eval", MODEL], ["bench", "kernels"]):
            done = subprocess.run([*MPIRUN, "-np", "3", PROGRAM, *words], capture_output=True,
                                  text=True, timeout=60, stdin=subprocess.DEVNULL)
            lines = [l for l in done.stderr.splitlines() if l.startswith("tessera: error: ")]
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(len(lines), 1, done.stderr)
            name = "bench kernels" if words[0] == "bench" else words[0]
            self.assertIn(f"'{name}' does not spread over processes", lines[0])
            self.assertEqual(done.stdout, "")
        done = subprocess.run([*MPIRUN, "-np", "1", PROGRAM, "inspect", MODEL],
                              capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("transformer", done.stdout)

    def forward(self, model, inputs, plan, ranks, *more):
        file = self.folder / "forwarded"
        prefix = MPIRUN + ["-np", str(ranks)] if ranks > 1 else []
        done = subprocess.run([*prefix, PROGRAM, "forward", str(model), "--inputs", str(inputs), "--outputs",
                               str(file), "--threads", "1", *(("--plan", plan) if plan else ()), *more],
                              capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, f"{file}\n")  # of one rank
        made = file.read_bytes()
        file.unlink()
        return made

    def test_one_pass_is_that_of_one_process_after_every_block(self):
        data = pathlib.Path(MODEL).parents[2]
        flux = data / "diffusers/flux_dev"
        tools = pathlib.Path(os.environ["TESSERA_SOURCE"]) / "tools/tensors.py"
        given = self.folder / "in.safetensors"
        subprocess.run([sys.executable, str(tools), "take", str(flux / "io_transformer.safetensors"), "fwd0.in.",
                        str(given)], check=True)
        one = self.forward(flux / "model/transformer", given, "", 1, "--trace")
        for plan, ranks in (("ulysses=2", 2), ("pipefusion=3,patches=4", 3), ("pipefusion=2,ulysses=2", 4)):
            self.assertEqual(self.forward(flux / "model/transformer", given, plan, ranks, "--trace"), one, plan)
        layer = data / "moe/moe_layer_e8"
        rows = self.folder / "x.safetensors"
        subprocess.run([sys.executable, str(tools), "take", str(layer / "io.safetensors"), "x.7", str(rows), "--as", "x"],
                       check=True)
        form = ("--component", "moe_layer", "--moe", "gate=skew,top_k=2,experts=swiglu")
        self.assertEqual(self.forward(layer / "model", rows, "expert=3", 3, *form),
                         self.forward(layer / "model", rows, "", 1, *form))
        done = subprocess.run([*MPIRUN, "-np", "2", PROGRAM, "forward", str(flux / "model/transformer"), "--inputs",
                               str(given), "--outputs", str(self.folder / "x"), "--plan", "patches=2"],
                              capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 4, done.stderr)
        lines = [l for l in done.stderr.splitlines() if l.startswith("tessera: error: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn("needs 1 rank,", lines[0])

    def test_inspect_predicts_what_the_processes_would_do(self):
        def inspect(command, *words):
            return subprocess.run([*command, PROGRAM, "inspect", MODEL, *words],
                                  capture_output=True, text=True, timeout=60,
                                  stdin=subprocess.DEVNULL)
        words = ["--plan", "tensor=2", "--json"]
        both = inspect([*MPIRUN, "-np", "2"], *words)
        self.assertEqual(both.returncode, 0, both.stderr)
        found = json.loads(both.stdout)  # once
        threads = json.loads(inspect([], *words).stdout)
        self.assertEqual(found["ranks"], threads["ranks"])
        self.assertLess(found["memory"]["process"], threads["memory"]["process"])
        other = inspect([*MPIRUN, "-np", "2"])
        self.assertEqual(other.returncode, 4, other.stderr)
        lines = [l for l in other.stderr.splitlines() if l.startswith("tessera: error: ")]
        self.assertEqual(len(lines), 1, other.stderr)
        self.assertIn("without a plan one rank does all, and 2 were given", lines[0])

    def test_every_plan_is_compared_on_the_processes(self):
        done = subprocess.run([*MPIRUN, "-np", "3", PROGRAM, "bench", "parallel", MODEL, "--steps", "3", "--rounds",
                               "1", "--seconds", "600", "--threads", "1", "--json", str(self.folder / "plans")],
                              capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertIn(f"{len(lines) - 2} plans for 3 ranks, 0 not measured", lines[-1])
        plans = [json.loads(line) for line in (self.folder / "plans").read_text().splitlines()]
        self.assertLessEqual({"ring=3", "distrifusion=3", "pipefusion=3,patches=4", "data=3,expert=3"}, {p["plan"] for p in plans})
        self.assertTrue(all(p["step_seconds"] > 0 for p in plans))

    def test_a_lost_rank_leaves_no_output(self):
        long = [{"6": "100000", "none": "plain"}.get(a, a) for a in ARGUMENTS]
        for plan, start in (("expert=3", MPIRUN), ("expert=3", MPIRUN), ("expert=3,moe=fused", MPIRUN),
                            ("expert=3,moe=fused", BY_MESSAGES)):
            run = subprocess.Popen([*start, "-np", "3", PROGRAM, *long, "--plan", plan,
                                    "--save-latents", str(self.folder / "lost")],
                                   stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
            watch = threading.Timer(60, run.kill)
            watch.start()
            for line in run.stderr:  # before the first step MPI may not know who is lost
                if "denoise" in line:
                    break
            watch.cancel()
            time.sleep(random.uniform(0, 1))
            ranks = [int(pid) for pid in self.children(run.pid)]
            self.assertEqual(len(ranks), 3)
            os.kill(random.choice(ranks), signal.SIGKILL)
            _, errors = run.communicate(timeout=20)
            lines = [l for l in errors.splitlines() if l.startswith("tessera: error: rank ")]
            self.assertEqual(len(lines), 1, errors)
            self.assertIn("was lost", lines[0])
            self.assertNotEqual(run.returncode, 0)
            self.assertEqual(list(self.folder.iterdir()), [])
            self.assertFalse([p for p in ranks if pathlib.Path(f"/proc/{p}/exe").exists()])

    def test_an_interrupt_of_any_rank_ends_all(self):
        long = [{"6": "100000", "none": "plain"}.get(a, a) for a in ARGUMENTS]
        for plan in ("pipefusion=3,patches=3", "expert=3"):
            for victim in range(3):
                run = subprocess.Popen([*MPIRUN, "-np", "3", PROGRAM, *long, "--plan", plan,
                                        "--save-latents", str(self.folder / "interrupted")],
                                       stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
                watch = threading.Timer(60, run.kill)
                watch.start()
                for line in run.stderr:
                    if "denoise" in line:
                        break
                watch.cancel()
                os.kill(int(self.children(run.pid)[victim]), signal.SIGINT)
                _, errors = run.communicate(timeout=30)
                lines = [l for l in errors.splitlines() if l.startswith("tessera: error: ")]
                self.assertEqual((run.returncode, len(lines)), (130, 1), f"{plan}, {victim}: {errors}")
                self.assertIn("stopped before ", lines[0])
                self.assertEqual(list(self.folder.iterdir()), [])

    def children(self, pid):
        tasks = pathlib.Path(f"/proc/{pid}/task")
        return [c for t in tasks.iterdir() for c in (t / "children").read_text().split()
                if PROGRAM in pathlib.Path(f"/proc/{c}/cmdline").read_text()]


if __name__ == "__main__":
    sys.exit(unittest.main())
