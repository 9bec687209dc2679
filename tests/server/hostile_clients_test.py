#!/usr/bin/env python3
"""Clients with a key, against each other: what they see, what they may take, and who has none."""

import os
import pathlib
import statistics
import subprocess
import tempfile
import threading
import time
import unittest

from serving import CIRCLE, PROGRAM, Keyed, Server, main

LONG = {"classes": ["red star"], "steps": 1000, "count": 4}


class Identity(unittest.TestCase):
    CAROL, DAVE, EVE = "key-of-carol-aaaaaaaaaaaa", "key-of-dave-bbbbbbbbbbbbb", "key-of-eve-cccccccccccccc"

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.path = pathlib.Path(holder.name) / "keys"

    def write(self, text, mode=0o600):
        self.path.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.path.chmod(mode)

    def started(self, *arguments):
        server = Server("--api-keys", self.path, *arguments)
        self.addCleanup(server.close)
        return server

    def refused(self, says, *arguments, keys=True):
        words = [PROGRAM, "serve", "tasks-a", "--port", "0", *map(str, arguments), *(("--api-keys", self.path) if keys else ())]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr.count("tessera: error: ")), (2, 1), done.stderr)
        self.assertIn(says, done.stderr)

    @staticmethod
    def with_key(key):
        return {"Authorization": f"Bearer {key}"}

    def test_an_edited_file_gives_nobody_anothers_jobs(self):
        self.write(f"{self.CAROL}\n{self.DAVE}\n")
        server = self.started()
        job = server.post("/jobs", {"model": "shapes", "request": CIRCLE}, **self.with_key(self.DAVE)).json["id"]
        server.end()
        self.write(f"{self.DAVE}\n{self.EVE}\n")
        server.start()
        self.assertEqual(server.get("/jobs", **self.with_key(self.EVE)).json["jobs"], [])
        self.assertEqual(server.ask("DELETE", f"/jobs/{job}", headers=self.with_key(self.EVE)).status, 404)
        self.assertEqual([one["id"] for one in server.get("/jobs", **self.with_key(self.DAVE)).json["jobs"]], [job])
        server.end()
        self.write(f"# lines\n\n\n{self.EVE}\ndave {self.DAVE}\n")
        server.start()
        self.assertEqual(server.get("/jobs", **self.with_key(self.DAVE)).json["jobs"], [], "a name is another client")

    def test_a_new_key_beside_the_old_one(self):
        self.write(f"dave {self.DAVE}\n")
        server = self.started()
        job = server.post("/jobs", {"model": "shapes", "request": CIRCLE}, **self.with_key(self.DAVE)).json["id"]
        server.end()
        self.write(f"dave {self.DAVE}\ndave {self.EVE}\n")
        server.start()
        self.assertIn("client 'dave' has several keys", server.log())
        for key in (self.DAVE, self.EVE):
            self.assertEqual(server.get(f"/jobs/{job}", **self.with_key(key)).status, 200)

    def test_a_store_of_clients_is_not_opened_without_keys(self):
        self.write(f"dave {self.DAVE}\n")
        server = self.started()
        job = server.post("/jobs", {"model": "shapes", "request": CIRCLE}, **self.with_key(self.DAVE)).json["id"]
        server.end()
        self.refused("--all-clients", "--store", server.folder / "store", keys=False)
        i = server.arguments.index("--api-keys")
        server.arguments[i:i + 2] = ["--all-clients"]
        server.start()
        self.assertEqual(server.get(f"/jobs/{job}").status, 200)

    def test_a_store_without_keys_goes_on_without(self):
        server = Server()
        self.addCleanup(server.close)
        job = server.wait(server.submit())["id"]
        server.end()
        server.start()
        self.assertEqual(server.get(f"/jobs/{job}").status, 200)

    def test_files_of_keys_that_others_use(self):
        for mode in (0o602, 0o604, 0o620, 0o666, 0o660):
            self.write(f"dave {self.DAVE}\n", mode)
            self.refused("chmod 600")

    def test_a_file_of_keys_of_another_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root gives files away")
        self.write(f"dave {self.DAVE}\n")
        os.chown(self.path, 65534, 65534)
        self.refused("belongs to another user")

    def test_files_that_are_no_keys(self):
        for text, says in ((f"dave {self.DAVE} admin\n", "the word operator"), (f"127.0.0.1 {self.DAVE}\n", "is no address"),
                           (f"a\x1b[2J {self.DAVE}\n", "a name has"), (f"dave {self.DAVE}\neve {self.DAVE}\n", "again"),
                           (f"dave {self.DAVE}\ndave {self.EVE} operator\n", "operator by one key")):
            self.write(text)
            self.refused(says)

    def test_a_pipe_is_no_file_of_keys(self):
        os.mkfifo(self.path)
        self.refused("no such file")

    def test_a_byte_order_mark_is_no_part_of_a_name(self):
        self.write(b"\xef\xbb\xbfdave " + self.DAVE.encode() + b"\r\n")
        server = self.started()
        self.assertEqual(server.get("/status", **self.with_key(self.DAVE)).status, 200)
        server.get("/healthz")
        self.assertRegex(server.log(), r"(?m)^GET /status 200 [0-9.]+ s dave 127\.0\.0\.1$")


class Seen(Keyed):
    """What a client hears of others."""

    arguments = ("--at-once", "1", "--batch", "1")

    def setUp(self):
        self.job = self.submit("anna", LONG)
        self.until(lambda: self.ask("anna", "GET", f"/jobs/{self.job}").json["state"] == "running")
        self.waiting = self.submit("anna")

    def tearDown(self):
        self.empty()

    def test_status_tells_a_client_its_own(self):
        mine, other, all_ = (self.ask(name, "GET", "/status").json for name in ("anna", "bert", "root"))
        self.assertEqual((mine["running"], mine["queue"]["waiting"]), ([self.job], 1))
        self.assertEqual((other["running"], other["queue"]["waiting"]), ([], 0))
        self.assertEqual((all_["running"], all_["queue"]["waiting"]), ([self.job], 1))
        self.assertNotIn("clients", other)
        self.assertIn("clients", all_)

    def test_metrics_tell_a_client_its_own(self):
        mine, other, all_ = (self.ask(name, "GET", "/metrics").body.decode() for name in ("anna", "bert", "root"))
        self.assertIn("tessera_jobs_running 1\n", mine)
        self.assertIn("tessera_jobs_running 0\n", other)
        self.assertIn("tessera_jobs_running 1\n", all_)
        self.assertNotIn('method="POST"', other, "bert sent none")
        self.assertIn('method="POST"', all_)
        for hidden in ("process_resident_memory_bytes", "tessera_connections", "tessera_batch_jobs"):
            self.assertNotIn(hidden, other)
            self.assertIn(hidden, all_)

    def test_an_operator_sees_numbers_and_no_jobs(self):
        self.assertEqual(self.ask("root", "GET", "/jobs").json["jobs"], [])
        for method, path in (("GET", ""), ("GET", "/events"), ("GET", "/results/0"), ("DELETE", "")):
            self.assertEqual(self.ask("root", method, f"/jobs/{self.job}{path}").status, 404)

    def test_words_for_others_jobs_are_those_for_none(self):
        unknown = "0" * 24
        for method, path in (("GET", ""), ("HEAD", ""), ("GET", "/events"), ("GET", "/results/0"), ("DELETE", ""), ("DELETE", "?cancel=1")):
            answers = [self.ask("bert", method, f"/jobs/{job}{path}") for job in (self.job, unknown)]
            self.assertEqual([answer.status for answer in answers], [404, 404])
            self.assertEqual(answers[0].body.replace(self.job.encode(), unknown.encode()), answers[1].body)

    def test_no_answer_names_the_servers_folders(self):
        chat = [{"role": "user", "content": "x"}]
        tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
        calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
        server = Server(models=("tasks-a",))
        self.addCleanup(server.close)
        for body in ({"messages": chat, "tools": [tool]}, {"messages": [*chat, {"role": "assistant", "content": None, "tool_calls": calls}]}):
            answer = server.post("/v1/chat/completions", {"model": "tasks-a", **body})
            self.assertEqual(answer.status, 400)
            self.assertNotIn("/", answer.message.replace("tool_calls", ""))

    def test_a_failed_job_names_no_folder(self):
        server = self.another_keyed(cwd=self.server.folder)
        results = server.folder / "store/results"
        results.rmdir()
        results.write_text("no folder")
        job = server.post("/jobs", {"model": "shapes", "request": CIRCLE}, **self.key("anna")).json["id"]
        self.until(lambda: server.get(f"/jobs/{job}", **self.key("anna")).json["state"] == "failed")
        error = server.get(f"/jobs/{job}", **self.key("anna")).json["error"]
        self.assertEqual(error["type"], "storage")
        self.assertNotIn(str(server.folder), error["message"])
        self.assertNotIn(job, error["message"])


class Shared(Keyed):
    """What one client may take of the server."""

    arguments = ("--queue", "8", "--batch", "1")

    def tearDown(self):
        self.empty()

    def flood(self, name, request=LONG, count=20):
        return [self.ask(name, "POST", "/jobs", {"model": "shapes", "request": request}) for _ in range(count)]

    def test_a_flood_leaves_places_to_others(self):
        answers = self.flood("anna")
        refused = [answer for answer in answers if answer.status == 429]
        self.assertTrue(refused)
        self.assertIn("of your jobs wait", refused[0].message)
        self.assertGreaterEqual(int(refused[0].headers["Retry-After"]), 1)
        self.assertEqual(self.ask("bert", "POST", "/jobs", {"model": "shapes", "request": CIRCLE}).status, 202)

    def test_two_floods_leave_places_to_a_third(self):
        for name in ("anna", "bert"):
            self.flood(name)
        self.assertEqual(self.ask("carl", "POST", "/jobs", {"model": "shapes", "request": CIRCLE}).status, 202)

    def test_who_has_nothing_at_work_does_not_wait_for_others(self):
        self.flood("anna")
        self.until(lambda: len(self.ask("anna", "GET", "/status").json["running"]) == 2)
        self.done("bert")
        self.flood("bert")
        self.done("carl")
        self.assertEqual(len(self.ask("anna", "GET", "/status").json["running"]), 2, "what runs goes on")

    def test_cancelled_runs_count_until_they_end(self):
        for _ in range(6):
            for answer in self.flood("anna", {**LONG, "width": 1024, "height": 1024}, 2):
                self.ask("anna", "DELETE", f"/jobs/{answer.json['id']}?cancel=1")
        self.done("bert")

    def test_a_short_job_is_done_soon_while_another_floods(self):
        """A ratio with slack; bench/server/measure.py flooded measures it."""
        alone = statistics.median(self.timed("bert") for _ in range(5))
        self.flood("anna", {**LONG, "count": 1})
        self.until(lambda: len(self.ask("anna", "GET", "/status").json["running"]) == 2)
        beside = statistics.median(self.timed("bert") for _ in range(5))
        self.assertLess(beside, 20 * alone + 2)

    def timed(self, name):
        begun = time.monotonic()
        self.done(name)
        return time.monotonic() - begun

    def test_a_job_ends_with_its_time(self):
        server = self.another_keyed("--job-time", "2s")
        job = server.post("/jobs", {"model": "shapes", "request": LONG}, **self.key("anna")).json["id"]
        self.until(lambda: server.get(f"/jobs/{job}", **self.key("anna")).json["state"] == "failed")
        shown = server.get(f"/jobs/{job}", **self.key("anna")).json
        self.assertEqual(shown["error"]["type"], "time_limit")
        self.assertIn("--job-time", shown["error"]["message"])
        self.until(lambda: server.get("/status", **self.key("root")).json["running"] == [])
        answer = server.post("/v1/images/generations", {"model": "shapes", "prompt": "red star", "steps": 1000, "n": 4}, **self.key("anna"))
        self.assertEqual((answer.status, answer.json["error"]["type"]), (400, "time_limit"))


class WrongKeys(Keyed):
    def test_wrong_keys_are_slowed_down_and_right_ones_are_not(self):
        statuses = []

        def ask():
            statuses.append(self.server.get("/status", Authorization="Bearer wrong-key-0123456789").status)

        for _ in range(10):
            ask()
        threads = [threading.Thread(target=ask) for _ in range(20)]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) and time.monotonic() < begun + 0.5:
            self.assertEqual(self.ask("anna", "GET", "/status").status, 200)
        self.assertGreater(sum(thread.is_alive() for thread in threads), 15, "they wait")
        for thread in threads:
            thread.join(60)
        self.assertEqual(statuses, [401] * 30)

    def test_a_body_behind_a_wrong_key_changes_nothing(self):
        for _ in range(12):
            self.server.get("/status", Authorization="Bearer wrong-key-0123456789")
        begun = time.monotonic()
        answer = self.server.post("/jobs", b"x" * 500000, Authorization="Bearer wrong-key-0123456789")
        self.assertEqual(answer.status, 401)
        self.assertGreater(time.monotonic() - begun, 0.9)


if __name__ == "__main__":
    main()
