#!/usr/bin/env python3
"""Many clients at once, half of which cut their connections, beside one that sends a byte now and then: nothing acknowledged is lost, nothing leaks.

TESSERA_LOAD_SECONDS=600 looks longer, and prints what it saw.
"""

import json
import os
import random
import socket
import threading
import time

from serving import ServerTest, facts, main

SECONDS = float(os.environ.get("TESSERA_LOAD_SECONDS", "8"))
CLIENTS = 64
CLASSES = ["red circle", "blue star", "green ring", "yellow bar"]
PROMPTS = ["sort hello=", "sort tessera=", "rev abcdef=", "rev igvcmo="]


class Load(ServerTest):
    arguments = ("--queue", 1000, "--at-once", 2)

    def setUp(self):
        self.lock, self.acknowledged, self.statuses, self.answered, self.cut = threading.Lock(), [], {}, [], 0
        self.until = time.monotonic() + SECONDS

    def note(self, status, job=None):
        with self.lock:
            self.statuses[status] = self.statuses.get(status, 0) + 1
            if job:
                self.acknowledged.append(job)

    def asks(self, number):
        """A client that waits for all of its answers."""
        chance = random.Random(number)
        while time.monotonic() < self.until:
            begun = time.monotonic()
            if chance.random() < 0.5:
                answer = self.server.post("/jobs", {"model": "shapes", "request": {"classes": [chance.choice(CLASSES)], "steps": 2, "seed": number}})
                self.note(answer.status, answer.status == 202 and answer.json["id"])
                if answer.status == 202:
                    self.server.events(answer.json["id"])
            else:
                prompt = chance.choice(PROMPTS)
                answer = self.server.post("/v1/completions", {"model": "tasks-a", "prompt": prompt})
                self.note(answer.status)
                if answer.status == 200:
                    assert answer.json["choices"][0]["text"] == self.alone[prompt], (prompt, answer.json)
            with self.lock:
                self.answered.append(time.monotonic() - begun)

    def cuts(self, number):
        """A client that is gone in the middle: of its request, of its answer, of a stream."""
        chance = random.Random(number)
        body = json.dumps({"model": "shapes", "prompt": "red star", "size": "128x128", "steps": 40}).encode()
        stream = json.dumps({"model": "tasks-a", "prompt": "rev abcdef=", "stream": True}).encode()
        while time.monotonic() < self.until:
            path, said = chance.choice([("/v1/images/generations", body), ("/v1/completions", stream)])
            request = (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(said)}\r\n\r\n").encode() + said
            with socket.create_connection(("127.0.0.1", self.server.port), 10) as s:
                s.sendall(request[:chance.randrange(1, len(request) + 1)] if chance.random() < 0.5 else request)
                time.sleep(chance.random() * 0.2)
                if chance.random() < 0.5:  # with a reset
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            with self.lock:
                self.cut += 1

    def trickles(self):
        request = b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n" + b" " * 100000
        with socket.create_connection(("127.0.0.1", self.server.port), 10) as s:
            for byte in request:
                if time.monotonic() > self.until:
                    break
                s.sendall(bytes([byte]))
                time.sleep(0.01)

    def test_it_stays_upright(self):
        self.server.wait(self.server.submit())
        self.alone = {prompt: self.server.post("/v1/completions", {"model": "tasks-a", "prompt": prompt}).json["choices"][0]["text"] for prompt in PROMPTS}
        before = facts(self.server)
        failures = []

        def guarded(work, *arguments):
            try:
                work(*arguments)
            except Exception as error:  # of a thread, for the test
                failures.append(repr(error))

        threads = [threading.Thread(target=guarded, args=(self.asks if i % 2 == 0 else self.cuts, i)) for i in range(CLIENTS)]
        threads.append(threading.Thread(target=guarded, args=(self.trickles,)))
        for thread in threads:
            thread.start()
        resident = []
        while any(thread.is_alive() for thread in threads):
            resident.append(facts(self.server)[1])
            time.sleep(0.5)
        self.assertEqual(failures, [])
        self.assertEqual(set(self.statuses) - {200, 202, 429}, set(), self.statuses)
        for job in self.acknowledged:
            self.assertEqual(self.server.wait(job)["state"], "done")
        deadline = time.monotonic() + 30
        while self.server.get("/status").json["running"] or facts(self.server)[2] > before[2] + 8:
            self.assertLess(time.monotonic(), deadline, "work or connections of clients that left are still there")
            time.sleep(0.1)
        after = facts(self.server)
        self.assertEqual(after[0], before[0], "threads")
        self.assertEqual(self.server.get("/readyz").status, 200)
        self.answered.sort()
        print(f"{len(self.answered)} answers in {SECONDS:.0f} s, {self.statuses}, median {self.answered[len(self.answered) // 2]:.3f} s, "
              f"99 of 100 within {self.answered[len(self.answered) * 99 // 100]:.3f} s; {self.cut} connections cut; resident {before[1] // 1024} MB before, "
              f"{resident[len(resident) // 2] // 1024} MB in the middle, {after[1] // 1024} MB after")


if __name__ == "__main__":
    main()
