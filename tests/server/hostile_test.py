#!/usr/bin/env python3
"""Clients that mean ill or have bad luck: broken HTTP, slow readers, those that vanish, thousands that say nothing."""

import resource
import socket
import threading
import time

from serving import CIRCLE, ServerTest, facts, main

IDLE = 10000


class Hostile(ServerTest):
    def raw(self, data):
        """What comes back of bytes within half a second; b"" where nothing does."""
        found = b""
        with socket.create_connection(("127.0.0.1", self.server.port), 10) as s:
            try:
                s.sendall(data)
                s.settimeout(0.5)  # of what is half a request the rest is waited for
                while part := s.recv(65536):
                    found += part
            except (ConnectionError, TimeoutError):
                pass
        return found

    def test_broken_http(self):
        host = b"Host: localhost\r\n"
        for data in (b"", b"\r\n\r\n", b"\0" * 1000, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /status HTTP/1.1\r\n\r\n",
                     b"POST /jobs HTTP/1.1\r\n" + host + b"Content-Length: -5\r\n\r\n",
                     b"POST /jobs HTTP/1.1\r\n" + host + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
                     b"POST /jobs HTTP/1.1\r\n" + host + b"Content-Length: 99999999999999999999\r\n\r\n",
                     b"POST /jobs HTTP/1.1\r\n" + host + b"Content-Type: application/json\r\nContent-Length: 500\r\n\r\n{",
                     b"GET /status HTTP/1.1\r\n" + host + host + b"\r\n",
                     b"GET /" + b"x" * 100000 + b" HTTP/1.1\r\n" + host + b"\r\n",
                     b"GET / HTTP/1.1\r\n" + host + b"X: y\r\n" * 20000 + b"\r\n",
                     b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x7f" * 500):
            with self.subTest(data[:80]):
                answer = self.raw(data)
                self.assertFalse(answer.startswith(b"HTTP/1.1 2"))
                self.assertEqual(self.server.get("/healthz").status, 200)

    def test_what_libmicrohttpd_refuses_by_itself(self):
        host, post = b"Host: localhost\r\n", b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
        for data, status in ((b"GET / HTTP/9.9\r\n\r\n", b"505"), (b"GET /status HTTP/1.1\r\n\r\n", b"400"), (post + b"-5\r\n\r\n", b"400"),
                             (post + b"99999999999999999999\r\n\r\n", b"413"), (b"GET /" + b"x" * 100000 + b" HTTP/1.1\r\n" + host + b"\r\n", b"414"),
                             (b"GET / HTTP/1.1\r\n" + host + b"X: " + b"y" * 100000 + b"\r\n\r\n", b"431")):
            with self.subTest(data[:60]):
                # What is not read of a request may reset the connection, and take the answer with it.
                answer = self.raw(data)
                self.assertIn(answer[9:12], (status, b""))
        twice = self.raw(b"GET /status HTTP/1.1\r\n" + host + host + b"\r\n")
        self.assertIn(b'{"error":{"', twice, "what can be read is answered in JSON")

    def test_made_up_methods_are_no_names_in_the_metrics(self):
        for i in range(200):
            self.raw_once(f"MADEUP{i} /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        metrics = self.server.get("/metrics").body.decode()
        self.assertTrue('{method="other",status="405"} 200' in metrics)
        self.assertFalse("MADEUP" in metrics)

    def raw_once(self, data):
        with socket.create_connection(("127.0.0.1", self.server.port), 10) as s:
            s.sendall(data)
            s.recv(65536)

    def test_a_client_that_vanishes_ends_the_work_for_it(self):
        body = b'{"model":"shapes","prompt":"red star","steps":1000,"n":8}'
        with socket.create_connection(("127.0.0.1", self.server.port), 10) as s:
            s.sendall(b"POST /v1/images/generations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                      b"Content-Length: %d\r\n\r\n" % len(body) + body)
            self.until(lambda: self.server.get("/status").json["running"])
        self.until(lambda: not self.server.get("/status").json["running"])
        self.assertEqual(self.server.get("/jobs?limit=1").json["jobs"][0]["state"], "cancelled")

    def until(self, true, within=15):
        end = time.monotonic() + within
        while not true():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def test_followers_that_vanish_leave_nothing(self):
        job = self.server.submit({"classes": ["red star"], "steps": 1000, "count": 8})
        before = facts(self.server)
        for _ in range(100):
            s = socket.create_connection(("127.0.0.1", self.server.port), 10)
            s.sendall(f"GET /jobs/{job}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            s.close()
        self.until(lambda: facts(self.server)[2] <= before[2] + 5)
        self.assertEqual(facts(self.server)[0], before[0])
        self.server.ask("DELETE", f"/jobs/{job}")

    def test_a_slow_reader_holds_up_nobody(self):
        job = self.server.submit({"classes": ["red star"], "steps": 200}, previews=1)
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", self.server.port))
        slow.sendall(f"GET /jobs/{job}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self.assertEqual(self.server.wait(job)["state"], "done")
        begun = time.monotonic()
        self.assertEqual(self.server.wait(self.server.submit())["state"], "done")
        self.assertLess(time.monotonic() - begun, 20)
        found = b""
        slow.settimeout(20)
        while b"event: done" not in found[-100000:]:
            part = slow.recv(65536)
            self.assertTrue(part, "the stream ends before its last event")
            found += part
        slow.close()

    def test_a_slow_writer_holds_up_nobody(self):
        with socket.create_connection(("127.0.0.1", self.server.port), 10) as s:
            for byte in b"POST /jobs HTTP/1.1\r\nHost: loc":
                s.sendall(bytes([byte]))
            self.assertEqual(self.server.wait(self.server.submit())["state"], "done")

    def test_ten_thousand_that_say_nothing(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < IDLE + 200:
            self.skipTest(f"a process may have {hard} files here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (IDLE + 200, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        before = facts(self.server)
        idle = []
        try:
            for _ in range(IDLE):
                idle.append(socket.create_connection(("127.0.0.1", self.server.port), 10))
            self.until(lambda: self.server.get("/status").json["clients"] >= IDLE)
            begun = time.monotonic()
            self.assertEqual(self.server.wait(self.server.submit())["state"], "done")
            self.assertLess(time.monotonic() - begun, 20)
            during = facts(self.server)
        finally:
            for s in idle:
                s.close()
        self.assertEqual(during[0], before[0], "no thread a connection")
        self.assertLess((during[1] - before[1]) / IDLE, 24, "kB a connection")
        self.until(lambda: facts(self.server)[2] < 200)

    def test_many_clients_at_once_lose_nothing(self):
        states, lock = [], threading.Lock()

        def ask(client):
            for seed in range(3):
                job = self.server.submit({**CIRCLE, "seed": 10 * client + seed})
                state = self.server.wait(job)["state"]
                with lock:
                    states.append(state)

        before = facts(self.server)
        threads = [threading.Thread(target=ask, args=(client,)) for client in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        self.assertEqual(states, ["done"] * 150)
        self.assertEqual(facts(self.server)[0], before[0])


if __name__ == "__main__":
    main()
