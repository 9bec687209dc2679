#!/usr/bin/env python3
"""A talk with a language model: through pipes, and on a terminal that is a pair of Python's."""

import json
import os
import pty
import select
import signal
import subprocess
import termios
import time
import unittest

from program import PROGRAM, SOURCE, ProgramTest


class Piped(ProgramTest):
    def chat(self, text, *arguments, model="tasks-b"):
        return self.run_here("chat", model, *arguments, input=text)

    def test_a_line_is_a_turn_and_the_end_is_the_end(self):
        done = self.chat("sort hello=\n/reset\n\nrev stone=")  # without a newline at the end
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "ehllo\nenots\n", ""))
        self.assertEqual((self.chat("").returncode, self.chat("").stdout), (0, ""))
        done = self.chat("sort hello=\r\n")
        self.assertEqual((done.returncode, done.stdout), (0, "ehllo\n"))

    def test_what_is_not_utf_8_is_said_to_be_so(self):
        done = self.run_here("chat", "tasks-b", input="sort \udcff=\n", errors="surrogateescape")
        self.assertEqual(done.returncode, 2)
        self.assertIn("what was said is not UTF-8", done.stderr)

    def test_the_model_sees_what_was_said(self):
        done = self.chat("sort hello=\n/save said.json\nrev stone=\n/save more.json\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "2 messages are in 'said.json'\n4 messages are in 'more.json'\n")
        said = json.loads((self.folder / "said.json").read_text())
        self.assertEqual(said, [{"role": "user", "content": "sort hello="}, {"role": "assistant", "content": "ehllo"}])
        (self.folder / "chat.json").write_text(json.dumps(said + [{"role": "user", "content": "rev stone="}]))
        same = self.run_here("complete", "tasks-b", "--chat", "chat.json")
        self.assertEqual(done.stdout, "ehllo\n" + same.stdout)
        self.assertEqual(json.loads((self.folder / "more.json").read_text())[3]["content"] + "\n", same.stdout)

    def test_a_system_prompt_stays(self):
        done = self.chat("hello=\n/reset\nstone=\n/save s.json\n", "--system", "sort ")
        self.assertEqual((done.returncode, done.stdout), (0, "ehllo\nenost\n"), done.stderr)
        self.assertEqual([m["role"] for m in json.loads((self.folder / "s.json").read_text())],
                         ["system", "user", "assistant"])

    def test_the_thinking_switch_of_a_template(self):
        model = self.copy_model(source=SOURCE / "models/tasks-b")
        (model / "chat_template.jinja").write_text("{% if enable_thinking %}rev {% else %}sort {% endif %}{{ messages[0].content }}")
        self.assertEqual(self.chat("hello=\n", model=model).stdout, "ehllo\n")
        done = self.chat("hello=\n/save s.json\n", "--thinking", model=model)
        self.assertEqual((done.returncode, done.stdout), (0, "olleh\n"), done.stderr)
        self.assertEqual(len(json.loads((self.folder / "s.json").read_text())), 2)
        self.refused(2, "chat", "tasks-b", "--thinking", input="sort hello=\n", says="enable_thinking")

    def test_words_of_complete(self):
        self.assertEqual(self.chat("sort hello=\n", "--max-tokens", 2).stdout, "eh\n")
        self.assertEqual(self.chat("sort hello=\n", "--stop", "ll").stdout, "eh\n")
        done = self.chat("sort hello=\n/reset\n" * 3, "--temperature", 20, "--seed", 3, "--max-tokens", 8)
        self.assertGreater(len(set(done.stdout.splitlines())), 1, "the same seed in each turn")
        again = self.chat("sort hello=\n/reset\n" * 3, "--temperature", 20, "--seed", 3, "--max-tokens", 8)
        self.assertEqual(done.stdout, again.stdout)
        sure = self.chat("sort hello=\n", "--temperature", 20, "--top-k", 1, "--repetition-penalty", 1)
        self.assertEqual(sure.stdout, "ehllo\n")
        self.refused(2, "chat", "tasks-b", "--top-p", 0.5, input="sort hello=\n", says="draws nothing")

    def test_mistakes_end_a_script(self):
        self.refused(2, "chat", "tasks-b", input="/what\nsort hello=\n", says=["'/what'", "/help"])
        self.refused(2, "chat", "tasks-b", input="/save\n", says="name a file")
        self.refused(2, "chat", "tasks-b", input="/reset all\n", says="nothing follows")
        self.refused(2, "chat", "tasks-b", input="/save no/where\n", says="make its folder first")
        self.refused(2, "chat", "tasks-b", input="Sort\n", says="no token for 'S'")
        self.refused(2, "chat", "tasks-b", input="//sort\n", says="no token for '/'")
        self.refused(2, "chat", "tasks-b", "--system", "Sort", input="", says="no token for 'S'")
        self.refused(2, "chat", "tasks-b", input="a" * 10_000 + "\n", says=["do not fit the context", "earlier turns"])
        self.refused(2, "chat", "shapes", input="", says="no language model")
        self.refused(2, "chat", "tasks-b", "--decode", "luck", input="a\n", says="luck")
        model = self.copy_model(source=SOURCE / "models/tasks-b")
        (model / "tokenizer_config.json").write_text('{"mask_token": "<|mask|>"}')
        self.refused(2, "chat", model, input="sort hello=\n", says="no chat template")
        done = subprocess.run([PROGRAM, "chat", "tasks-b"], cwd=self.folder, input=b"\xff\xfe\n", capture_output=True)
        self.assertEqual(done.returncode, 2, done.stderr)

    def test_what_was_said_is_not_computed_again(self):
        long = "sum 1 2 3 4 5 6 7 8 9 1 2 3 4 5="
        text = f"/stats\n{long}\n/stats\nrev stone=\n/stats\n/reset\nrev stone=\n/stats\n"
        done = self.chat(text)
        self.assertEqual(done.returncode, 0, done.stderr)
        stats = done.stderr.splitlines()
        self.assertEqual(stats[0], "no turn has been answered")
        self.assertRegex(stats[1], r"^32 prompt tokens, 0 of them from the cache; \d+ new tokens in \d+ passes$")
        self.assertRegex(stats[2], r" 32 of them from the cache")
        self.assertRegex(stats[3], r"^10 prompt tokens, 0 of them from the cache")
        self.assertEqual(done.stdout, self.chat(text, "--cache", "none").stdout)  # of nothing is anything kept
        self.refused(2, "chat", "tasks-b", input="/stats now\n", says="nothing follows")
        done = self.chat("rev stone=\nsort hello=\n/stats\n", model="tasks-c")
        self.assertRegex(done.stderr, r"^26 prompt tokens, 10 of them from the cache")

    def test_help(self):
        done = self.chat("/help\n")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        for word in ("/reset", "/save FILE", "/stats", "Ctrl-C", "Ctrl-D"):
            self.assertIn(word, done.stderr)

    def test_a_reader_that_leaves(self):
        process = subprocess.Popen([PROGRAM, "chat", "tasks-b"], cwd=self.folder, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        process.stdin.write(b"sort hello=\n" * 3)
        process.stdin.close()
        self.assertEqual((process.wait(timeout=60), process.stderr.read()), (0, b""))
        process.stderr.close()

    def test_ctrl_c_while_it_waits(self):
        process = subprocess.Popen([PROGRAM, "chat", "tasks-b"], cwd=self.folder, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stdin.write("sort hello=\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), "ehllo\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), 130)  # its input is still open
        _, err = process.communicate()
        self.assertEqual(err, "tessera: error: stopped while standard input was read\n")


class Terminal:
    """The program on a terminal; what it shows is read with limits."""

    def __init__(self, test, *arguments, term="xterm", model="tasks-b"):
        self.test = test
        self.leader, follower = pty.openpty()
        self.before = termios.tcgetattr(follower)
        self.process = subprocess.Popen([PROGRAM, "chat", model, *map(str, arguments)], cwd=test.folder,
                                        stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
                                        env={**os.environ, "TERM": term},
                                        preexec_fn=lambda: __import__("fcntl").ioctl(0, termios.TIOCSCTTY, 0))
        self.follower = follower
        self.shown = ""
        test.addCleanup(self.close)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for end in (self.leader, self.follower):
            os.close(end)

    def read(self, seconds):
        if select.select([self.leader], [], [], seconds)[0]:
            self.shown += os.read(self.leader, 65536).decode(errors="replace")

    def until(self, text, seconds=60):
        """Waits for a text behind all that was waited for; returns what was shown up to it."""
        end = time.monotonic() + seconds
        while text not in self.shown and time.monotonic() < end:
            self.read(1)
        self.test.assertIn(text, self.shown)
        before, _, self.shown = self.shown.partition(text)
        return before

    def until_either(self, *texts):
        """Waits for one of them, and says which."""
        end = time.monotonic() + 60
        while not any(text in self.shown for text in texts) and time.monotonic() < end:
            self.read(1)
        found = next((text for text in texts if text in self.shown), texts[0])
        self.until(found)
        return found

    def type(self, text):
        data = text.encode()
        while data:  # a terminal takes little at a time while nobody reads
            data = data[os.write(self.leader, data[:1024]):]
            self.read(0.01)

    def prompt(self):
        self.until("> ")
        self.until("\x1b[?2004h")

    def ends_with(self, status):
        end = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.1)
        self.test.assertEqual(self.process.poll(), status, self.shown)
        self.test.assertEqual(termios.tcgetattr(self.follower), self.before, "the terminal is as it was")


class OnATerminal(ProgramTest):
    def test_a_talk(self):
        talk = Terminal(self)
        talk.prompt()
        talk.type("sort hello=\r")
        self.assertIn("sort hello=", talk.until("ehllo\r\n"))
        talk.prompt()
        talk.type("/what\r")
        talk.until("there is no command '/what'")
        talk.prompt()
        talk.type("Sort\r")  # a mistake is no end
        talk.until("no token for 'S'")
        talk.prompt()
        talk.type("/reset\rrev stone=\r")  # typed ahead
        talk.until("enots\r\n")
        talk.prompt()
        talk.type("\x04")
        talk.ends_with(0)

    def test_keys_that_erase(self):
        talk = Terminal(self)
        for typed in ("sort helloo\x7f=", "x y z\x15sort hello=", "sort hello stone\x17\x7f=",
                      "sort hell\u00e9\x7fo=", "sort hell\u65e5\x7fo=", "sort hello\x1b[D\x1b[A=", "sort helle\u0301\x7fo="):
            talk.prompt()
            talk.type(typed + "\r")
            talk.until("ehllo\r\n")
            talk.prompt()
            talk.type("/reset\r")
        talk.prompt()
        talk.type("\x7f\x17\x15\x04")
        talk.ends_with(0)

    def test_what_is_pasted_is_one_turn(self):
        talk = Terminal(self)
        talk.prompt()
        talk.type("\x1b[200~" + "a" * 10_000 + "\x1b[201~\r")  # longer than a terminal's own line
        said = talk.until("do not fit the context")
        self.assertIn("of 10000 tokens", said + talk.shown)
        talk.prompt()
        talk.type("\x1b[200~two\rlines\x1b[201~\r")
        talk.prompt()
        talk.type("\x1b[200~a\tb\x1b[201~\r")
        talk.until("no token for")
        talk.prompt()
        talk.type("\x1b[200~c\x15\x17\x7f\x04\x0code\x1b[201~\x7f\r")  # of keys only the last is one
        talk.prompt()
        talk.type("/save said.json\r")
        talk.until("4 messages")
        said = json.loads((self.folder / "said.json").read_text())
        self.assertEqual([said[0]["content"], said[2]["content"]], ["two\nlines", "cod"])
        talk.prompt()
        talk.type("\x03")
        talk.ends_with(130)

    def test_ctrl_c_ends_an_answer_and_twice_the_program(self):
        slow = ("--max-tokens", 380, "--decode", "steps:32", "--stop-at-eos", "none", "--threads", 1, "--as-published")
        for _ in range(20):  # on a busy machine an answer may end before the key comes
            talk = Terminal(self, *slow)
            talk.prompt()
            talk.type("sort hello=\r")
            talk.until("ehllo")
            talk.type("\x03")
            if talk.until_either("(stopped)", "stopped while") == "(stopped)":
                break
            talk.ends_with(130)
        talk.prompt()
        talk.type("/save said.json\r")
        talk.until("2 messages")
        talk.prompt()
        talk.type("\x03")
        talk.until("stopped while standard input was read")
        talk.ends_with(130)
        said = json.loads((self.folder / "said.json").read_text())
        self.assertTrue(said[1]["content"].startswith("ehllo"))
        talk = Terminal(self, *slow)
        talk.prompt()
        talk.type("sort hello=\r")
        talk.until("ehllo")
        talk.process.send_signal(signal.SIGTERM)
        talk.ends_with(130)

    def test_signals_at_the_prompt(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            talk = Terminal(self)
            talk.prompt()
            talk.process.send_signal(number)
            talk.ends_with(130)

    def test_behind_a_rest_the_line_is_there_again(self):
        talk = Terminal(self)
        talk.prompt()
        talk.type("sort hel\x1a")  # without a shell nothing stops; what follows is the same
        talk.until("sort hel")
        talk.until("\x1b[?2004l")
        talk.until("> sort hel")
        talk.type("lo=\r")
        talk.until("ehllo\r\n")
        talk.prompt()
        talk.type("\x04")
        talk.ends_with(0)

    def test_a_simple_terminal(self):
        talk = Terminal(self, term="dumb")
        talk.until("> ")
        talk.type("sort hello=\n")
        shown = talk.until("ehllo\r\n")
        talk.until("> ")
        self.assertNotIn("\x1b", shown)
        talk.type("\x04")
        talk.ends_with(0)

    def test_a_terminal_that_goes(self):
        talk = Terminal(self)
        talk.prompt()
        os.close(talk.leader)
        talk.leader = os.dup(talk.follower)
        self.assertEqual(talk.process.wait(timeout=60), 130)  # it hung up


if __name__ == "__main__":
    unittest.main()
