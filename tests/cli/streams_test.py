#!/usr/bin/env python3
"""Commands without standard streams: what they write holds nothing of what they say."""

import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import time
import unittest

from program import DATA, PROGRAM, ProgramTest, read_safetensors

TWO = DATA / "moe/llada2/model"
SUBSETS = [closed for size in range(1, 4) for closed in itertools.combinations(range(3), size)]


class Closed(ProgramTest):
    def start(self, closed, arguments, folder):
        folder.mkdir()
        streams = [subprocess.PIPE, subprocess.DEVNULL, subprocess.DEVNULL]
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], cwd=folder, stdin=streams[0], stdout=streams[1],
                                   stderr=streams[2], preexec_fn=lambda: [os.close(stream) for stream in closed])
        return process

    def check(self, *arguments, typed=b""):
        """Runs a command with each set of streams closed. Its files are those of a run with all of them; only
        without standard output some may be missing, and then the status says that it could not be written."""
        whole = self.files(self.finished((), arguments, typed, "whole", status=[0])[1])
        for closed in SUBSETS:
            name = "without" + "".join(map(str, closed))
            _, folder = self.finished(closed, arguments, typed, name, status=[0, 2] if 1 in closed else [0])
            made = self.files(folder)
            if 1 not in closed and not (typed and 0 in closed):
                self.assertEqual(set(made), set(whole), closed)
            for path, content in made.items():
                self.assertEqual(content, whole[path], (closed, path))

    def finished(self, closed, arguments, typed, name, status):
        folder = self.folder / name
        process = self.start(closed, arguments, folder)
        try:
            process.communicate(typed, timeout=120)
        except BrokenPipeError:
            process.wait(120)
        self.assertIn(process.returncode, status, closed)
        return process.returncode, folder

    def files(self, folder):
        """Contents by name; of a report what no two runs have in common is left out."""
        made = {}
        for path in sorted(f for f in folder.rglob("*") if f.is_file()):
            self.assertNotIn(".tessera-", path.name)
            content = path.read_bytes()
            if path.suffix == ".json" and path.name.startswith("report"):
                content = sorted(json.loads(content))
            elif path.name.startswith("plans"):
                content = len([json.loads(line) for line in content.splitlines()])
            elif path.suffix == ".safetensors":
                content = read_safetensors(path)
            made[str(path.relative_to(folder))] = content
        return made

    def test_generate(self):
        self.check("generate", "shapes", "--class", 1, "--steps", 3, "--progress", "plain", "--report", "report.json",
                   "--save-latents", "l.safetensors", "--trace", "t.safetensors", "--preview", "p.png", "-o", "a.png")

    def test_complete(self):
        self.check("complete", "tasks-a", "--prompt", "sort hello=", "--report", "report.json", "--visualise")

    def test_chat(self):
        self.check("chat", "tasks-a", typed=b"sort hello=\n/save said.json\n")

    def test_quantise(self):
        self.check("quantise", TWO, "-o", "q", "--progress", "plain")

    def test_forward(self):
        io, _ = read_safetensors(DATA / "moe/dit_moe_flash/io.safetensors")
        from program import write_safetensors
        write_safetensors(self.folder / "in", {k: io["forward.0." + k] for k in "xty"})
        self.check("forward", DATA / "moe/dit_moe_flash/model", "--inputs", self.folder / "in", "--outputs",
                   "out.safetensors")

    def test_eval(self):
        self.check("eval", "tasks", "tasks-a", "--limit", 2, "--max-tokens", 8)

    def test_bench(self):
        self.check("bench", "parallel", DATA / "moe/dit_moe_flash/model", "--seconds", 0, "--plans", 4, "--json",
                   "plans.json")

    def test_serve(self):
        for closed in [(), *SUBSETS]:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            folder = self.folder / ("serve" + "".join(map(str, closed)))
            process = self.start(closed, ["serve", "shapes", "--port", port, "--store", "store"], folder)
            try:
                answer = self.ask(process, port)
            finally:
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=60)
            self.assertEqual((answer, process.returncode), (202, 0), closed)
            self.assertTrue((folder / "store/jobs.sqlite").read_bytes().startswith(b"SQLite format 3\0"), closed)
            self.assertEqual((folder / "store/lock").read_bytes(), b"", closed)

    def ask(self, process, port):
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                connection.request("POST", "/jobs", json.dumps({"model": "shapes", "request": {"classes": [1], "steps": 1}}),
                                   {"Content-Type": "application/json"})
                return connection.getresponse().status
            except ConnectionRefusedError:
                time.sleep(0.05)
            finally:
                connection.close()
        return process.poll()


class Threads(ProgramTest):
    @unittest.skipIf(os.geteuid() != 0, "only the superuser can become another user, whose threads are counted")
    def test_a_limit_on_threads_is_an_error(self):
        def limited(threads):
            def become():
                import resource
                os.setgid(65534)
                resource.setrlimit(resource.RLIMIT_NPROC, (threads, threads))
                os.setuid(65534)
            return become
        if subprocess.run([PROGRAM, "--version"], preexec_fn=limited(1000), capture_output=True).returncode != 0:
            self.skipTest("another user cannot run the program where it is")
        for threads in (1, 2, 3):
            for command in (("--version",), ("inspect", "shapes"), ("generate", "shapes", "--class", "1", "-o", "/dev/null"),
                            ("complete", "tasks-a", "--prompt", "a"), ("serve", "shapes", "--port", "0")):
                process = subprocess.Popen([PROGRAM, *command], preexec_fn=limited(threads), stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, text=True)
                try:
                    _, said = process.communicate(timeout=10)
                except subprocess.TimeoutExpired:  # a server that could start
                    process.terminate()
                    _, said = process.communicate(timeout=60)
                self.assertIn(process.returncode, (0, 6), (threads, command, said))


if __name__ == "__main__":
    unittest.main()
