#!/usr/bin/env python3
"""Ctrl-C and progress: a run ends soon with status 130, and a bar is drawn on terminals only."""

import json
import os
import pty
import select
import signal
import subprocess
import time
import unittest

from program import PROGRAM, SOURCE, ProgramTest

LONG = ("generate", "shapes", "--class", "1", "--steps", "100000", "-o", "x.png")


def started(*arguments, cwd, **options):
    return subprocess.Popen([PROGRAM, *arguments], cwd=cwd, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **options)


def catches_interrupt(process):
    """Whether the handlers are in place, or the process has gone."""
    try:
        with open(f"/proc/{process.pid}/status") as status:
            caught = [line.split()[1] for line in status if line.startswith("SigCgt")]
        return not caught or int(caught[0], 16) >> (signal.SIGINT - 1) & 1
    except OSError:
        return True


def seconds_of(process):
    """CPU time of a process that runs."""
    with open(f"/proc/{process.pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Interrupt(ProgramTest):
    def ends_after(self, signals, *arguments):
        process = started(*arguments, cwd=self.folder)
        try:
            first = process.stderr.readline()  # how long it will take
            self.assertRegex(first, "^note: expects about .* a step, .* in all")
            first = process.stderr.readline()  # "load": the handlers are in place
            self.assertEqual(first, "load\n")
            process.stderr.readline()
            begin = time.monotonic()
            process.send_signal(signals)
            out, err = process.communicate(timeout=30)
            return process.returncode, out, err, time.monotonic() - begin
        finally:
            process.kill()
            process.wait()

    def seconds_to_end(self, process):
        """Interrupts it; of CPU, since the machine may be busy."""
        begin = seconds_of(process)
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        process.stderr.close()
        self.assertEqual(process.returncode, 130, err)
        return usage.ru_utime + usage.ru_stime - begin

    def test_ends_within_a_step(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            status, out, err, seconds = self.ends_after(number, *LONG, "--report", "r.json")
            self.assertEqual((status, out), (130, ""), err)
            self.assertRegex(err.splitlines()[-1], r"^tessera: error: stopped before ")
            self.assertLess(seconds, 10)
            self.assertEqual(list(self.folder.iterdir()), [], "nothing half-written")

    def test_ends_while_an_image_is_decoded(self):
        for kind in ("png", "webp"):
            process = started("generate", "shapes", "--class", "1", "--steps", "1", "--width", "1024",
                              "--height", "1024", "-o", "x." + kind, cwd=self.folder)
            for line in process.stderr:
                if line.startswith("decode"):
                    break
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=100)
            self.assertEqual(process.returncode, 130, err)  # it went on, and ended with 0
            self.assertRegex(err.splitlines()[-1], r"^tessera: error: stopped before ")
            self.assertLess(time.monotonic() - begin, 30)
            self.assertEqual(list(self.folder.iterdir()), [])

    def test_attention_on_one_thread_does_not_go_on(self):
        # A head of the VAE's attention takes 2 s of this size; CPU time says so on a busy machine, too.
        process = started("generate", "shapes", "--class", "1", "--steps", "1", "--guidance", "1", "--threads", "1",
                          "--width", "1536", "--height", "1536", "-o", "x.png", cwd=self.folder)
        for line in process.stderr:
            if line.startswith("decode"):
                break
        begin = seconds_of(process)
        while seconds_of(process) < begin + 0.3:
            time.sleep(0.005)
        self.assertLess(self.seconds_to_end(process), 1.2)

    def test_ends_while_a_prompt_is_split_or_a_file_is_read(self):
        for tail in (("--prompt", "a" * 3_000_000), ("--prompt", "\u00e9 " * 1_000_000)):
            (self.folder / "prompt.txt").write_text(tail[1])
            process = started("complete", "tasks-a", "--prompt", "-", "--max-tokens", "4", "--raw",
                              cwd=self.folder, stdin=open(self.folder / "prompt.txt"))
            while not catches_interrupt(process):
                time.sleep(0.01)
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=100)
            self.assertIn(process.returncode, (130, 2), err)  # 2: it was told that it is too long
            (self.folder / "prompt.txt").unlink()

    def test_ends_while_texts_are_shown_as_tokens(self):
        (self.folder / "lines.txt").write_text("sort hello world\n" * 400_000)
        process = started("tokenize", "tasks-a", "--prompt-file", "lines.txt", cwd=self.folder)
        while not catches_interrupt(process):
            time.sleep(0.01)
        while process.poll() is None and seconds_of(process) < 0.5:  # of many
            time.sleep(0.005)
        self.assertLess(self.seconds_to_end(process), 0.3)

    def test_ends_while_a_large_tokenizer_is_opened(self):
        model = self.copy_model(source=SOURCE / "models/tasks-a")
        tokenizer = json.loads((model / "tokenizer.json").read_text())
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary.update({f"word{i}": i for i in range(len(vocabulary), 800_000)})
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        process = started("inspect", model, cwd=self.folder)
        while not catches_interrupt(process):
            time.sleep(0.01)
        while process.poll() is None and seconds_of(process) < 0.3:
            time.sleep(0.005)
        self.assertLess(self.seconds_to_end(process), 1.0)

    def test_an_old_image_stays(self):
        (self.folder / "x.png").write_text("old")
        self.assertEqual(self.ends_after(signal.SIGINT, *LONG, "--overwrite")[0], 130)
        self.assertEqual((self.folder / "x.png").read_text(), "old")

    def test_bench(self):
        process = started("bench", "kernels", cwd=self.folder)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err),
                         (130, "tessera: error: stopped before the last kernel\n"))


def on_terminal(arguments, cwd, columns, until_end=True):
    """What the program draws on a terminal of so many columns; (status, text)."""
    import fcntl
    import struct
    import termios
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([PROGRAM, *arguments], cwd=cwd, stdin=slave, stdout=slave,
                               stderr=slave, env={**os.environ, "TERM": "xterm"})
    os.close(slave)
    text = b""
    while select.select([master], [], [], 60)[0]:
        try:
            part = os.read(master, 65536)
        except OSError:  # the program has gone
            break
        if not part:
            break
        text += part
    os.close(master)
    return process.wait(timeout=60), text.decode()


class ProgressLines(ProgramTest):
    STEPS = ("generate", "shapes", "--class", "1", "--steps", "4", "-o", "x.png")

    def test_plain_lines_without_a_terminal(self):
        done = self.run_here(*self.STEPS)
        self.assertEqual(done.stdout, "x.png\n")
        self.assertNotIn("\r", done.stderr)
        self.assertNotIn("\x1b", done.stderr)
        self.assertRegex(done.stderr, r"^load\ndenoise 0/4 [\d.]+s\n")

    def test_none(self):
        done = self.run_here(*self.STEPS, "--progress", "none")
        self.assertEqual((done.stdout, done.stderr), ("x.png\n", ""))

    def test_a_bar_that_fits_the_terminal(self):
        for columns in (80, 40, 20):
            status, text = on_terminal(self.STEPS, self.folder, columns)
            self.assertEqual(status, 0, text)
            self.assertIn("\r\x1b[K", text)
            for line in text.replace("\r\n", "\r").split("\r"):
                self.assertLess(len(line.replace("\x1b[K", "")), columns, repr(line))
            self.assertIn("\r\nx.png\r\n", text)

    def test_no_bar_on_a_simple_terminal(self):
        os.environ["TERM"], before = "dumb", os.environ.get("TERM")
        self.addCleanup(lambda: os.environ.pop("TERM") if before is None
                        else os.environ.__setitem__("TERM", before))
        self.assertNotIn("\r", self.run_here(*self.STEPS).stderr)


if __name__ == "__main__":
    unittest.main()
