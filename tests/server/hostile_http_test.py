#!/usr/bin/env python3
"""Requests that two readers would read in two ways, bodies that cost more than they say, and other sites' pages."""

import json
import socket
import time

from serving import CIRCLE, ServerTest, keys_file, main

KEY = "key-of-anna-0123456789"
HOST = b"Host: localhost\r\n"
BODY = json.dumps({"model": "shapes", "request": {"classes": ["red circle"], "steps": 1}}).encode()
POST = b"POST /jobs HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
GET = b"GET /status HTTP/1.1\r\n" + HOST


class Raw(ServerTest):
    def raw(self, data, wait=5):
        """(statuses of all answers, whether the server closed the connection, all bytes)."""
        found, closed = b"", False
        with socket.create_connection(("127.0.0.1", self.server.port), 10) as s:
            s.settimeout(wait)
            try:
                s.sendall(data)
                while part := s.recv(65536):
                    found += part
                closed = True
            except ConnectionError:
                closed = True
            except TimeoutError:
                pass
        return [int(part[:3]) for part in found.split(b"HTTP/1.1 ")[1:]], closed, found


class Heads(Raw):
    """Each of these is answered with 4xx at most, and nothing behind it is read."""

    models = ("shapes",)

    def refused(self, cases):
        for name, data, *statuses in cases:
            with self.subTest(name):
                before = len(self.server.get("/jobs").json["jobs"])
                found, closed, said = self.raw(data + b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n")
                self.assertTrue(closed, f"the connection stays open: {said[:300]}")
                # libmicrohttpd ends some by itself: without an answer, or with the head of its answer twice.
                self.assertLessEqual(set(found), set(statuses or [400]), said[:600])
                self.assertEqual(len(self.server.get("/jobs").json["jobs"]), before, "a job was made")

    def test_headers_that_stand_twice(self):
        self.refused([(name.decode(), GET + name + b": a\r\n" + name + b": a\r\n\r\n") for name in
                      (b"Host", b"Authorization", b"Content-Type", b"Origin", b"Last-Event-ID", b"X-Forwarded-Proto", b"If-None-Match",
                       b"Sec-Fetch-Site", b"Transfer-Encoding", b"Connection", b"X-Any")])
        self.refused([("two lengths", POST + LENGTH + LENGTH + b"\r\n" + BODY),
                      ("two other lengths", POST + LENGTH + b"content-length: 3\r\n\r\n" + BODY),
                      ("an empty Origin behind another", GET + b"Origin: http://evil\r\nOrigin:\r\n\r\n")])

    def test_lists_may_stand_twice(self):
        found, _, _ = self.raw(GET + b"Accept: a\r\nAccept: b\r\nVia: x\r\nVia: y\r\nX-Forwarded-For: 1\r\nX-Forwarded-For: 2\r\nConnection: close\r\n\r\n")
        self.assertEqual(found, [200])

    def test_bodies_in_another_form(self):
        chunks = b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"
        self.refused([(f"Transfer-Encoding:{value.decode()}", POST + b"Transfer-Encoding:" + value + b"\r\n\r\n" + chunks, 411)
                      for value in (b" chunked", b"", b" ", b" identity", b" gzip, chunked", b" xchunked", b"\tchunked")])
        self.refused([("chunked, then nothing", POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding:\r\n\r\n" + chunks),
                      ("nothing, then chunked", POST + b"Transfer-Encoding:\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks),
                      ("chunked and a length", POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + chunks),
                      ("nothing and a length", POST + b"Transfer-Encoding:\r\n" + LENGTH + b"\r\n" + BODY),
                      ("on a GET", GET + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411)])

    def test_a_body_in_chunks_is_not_cut_and_taken(self):
        part = BODY + b" " * (4096 - len(BODY))
        data = POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding:\r\n\r\n" + (b"1000\r\n" + part + b"\r\n") * 512 + b"0\r\n\r\n"
        found, closed, _ = self.raw(data)
        self.assertTrue(closed)
        self.assertNotIn(202, found)

    def test_names_that_are_no_tokens(self):
        self.refused([("blank before the colon", POST + b"Content-Length : %d\r\n\r\n" % len(BODY) + BODY),
                      ("tab before the colon", POST + b"Content-Length\t: %d\r\n\r\n" % len(BODY) + BODY),
                      ("blank in a name", GET + b"X Y: a\r\n\r\n"), ("no name", GET + b": a\r\n\r\n"),
                      ("brackets", GET + b"X[1]: a\r\n\r\n"), ("no ASCII", GET + b"H\xc3\xb6st: a\r\n\r\n"),
                      ("escape in a name", GET + b"X\x1b: a\r\n\r\n"), ("blank before the first", b"GET /status HTTP/1.1\r\n Host: localhost\r\nHost: localhost\r\n\r\n")])

    def test_folded_lines(self):
        self.refused([("a length", POST + b"Content-Length: %d\r\n \r\n\r\n" % len(BODY) + BODY),
                      ("a length in two", POST + b"Content-Length: 1\r\n 5\r\n\r\n" + BODY),
                      ("tab", GET + b"X: a\r\n\tb\r\n\r\n"), ("an empty fold", GET + b"X: a\r\n \r\n\r\n"),
                      ("two folds", GET + b"X: a\r\n b\r\n c\r\n\r\n"), ("of the last", GET + b"Authorization:\r\n Bearer x\r\n\r\n"),
                      ("a header in a fold", GET + b"X: a\r\n Content-Length: 5\r\n\r\n")])

    def test_zeros_and_ends_of_lines(self):
        self.refused([("zero in a length", POST + b"Content-Length: 2\0 75\r\n\r\n{}"), ("zero in a value", GET + b"X: a\0b\r\n\r\n"),
                      ("zero behind a value", GET + b"X: a\0\r\n\r\n"), ("zero in a name", GET + b"X\0: a\r\n\r\n"),
                      ("zero as a line", GET + b"\0X: a\r\n\r\n"), ("zero in a path", b"GET /status\0x HTTP/1.1\r\n" + HOST + b"\r\n"),
                      ("%00 in a path", b"GET /healthz%00x HTTP/1.1\r\n" + HOST + b"\r\n"), ("%00 in a query", b"GET /jobs?limit=5%00x HTTP/1.1\r\n" + HOST + b"\r\n"),
                      ("bare LF", b"GET /status HTTP/1.1\r\nHost: localhost\nX: a\r\n\r\n"), ("bare LF at the end", b"GET /status HTTP/1.1\r\nHost: localhost\r\n\n"),
                      ("bare LF of the first line", b"GET /status HTTP/1.1\nHost: localhost\r\n\r\n"), ("bare CR", GET + b"X: a\rContent-Length: 3\r\n\r\n"),
                      ("vertical tab", GET + b"X: a\x0bb\r\n\r\n"), ("DEL", GET + b"X: a\x7f\r\n\r\n")])

    def test_first_lines(self):
        self.refused([("escape in the method", b"\x1b[2J\x1b[31mPWNED /healthz HTTP/1.1\r\n" + HOST + b"\r\n"), ("two blanks", b"GET  /status HTTP/1.1\r\n" + HOST + b"\r\n"),
                      ("two blanks behind", b"GET /status  HTTP/1.1\r\n" + HOST + b"\r\n"), ("control in the path", b"GET /sta\x01tus HTTP/1.1\r\n" + HOST + b"\r\n"),
                      ("twice in the query", b"GET /jobs?limit=1&limit=2 HTTP/1.1\r\n" + HOST + b"\r\n")])

    def test_bodies_of_what_has_none(self):
        self.refused([(method.decode(), method + b" /status HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n" + BODY, 400) for method in (b"GET", b"HEAD")])
        self.refused([("DELETE", b"DELETE /jobs/0123456789abcdef01234567 HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n" + BODY, 400)])
        self.refused([(f"{method.decode()} {path.decode()}", method + b" " + path + b" HTTP/1.1\r\n" + HOST + LENGTH + b"Content-Type: application/json\r\n\r\n" + BODY, 405)
                      for method in (b"POST", b"PUT", b"PATCH", b"OPTIONS", b"MADEUP") for path in (b"/healthz", b"/", b"/assets/main.js")])

    def test_lengths(self):
        self.refused([(value.decode(), POST + b"Content-Length: " + value + b"\r\n\r\n" + BODY, 400, 413) for value in
                      (b"+2", b"-1", b"0x2", b"1e0", b"", b"2,2", b"2 2", b"18446744073709551616", b"16777217")])

    def test_hosts(self):
        for host in (b"[::1]evil.com", b"localhost:80@evil", b"127.0.0.1.5", b"localhost:", b"localhost:x", b"evil.com", b"127.0.0.1:99999", b"localhost:80:80", b"", b"a@localhost"):
            with self.subTest(host):
                found, _, _ = self.raw(b"GET /status HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n")
                self.assertIn(found, ([400], [421]))


class Sites(ServerTest):
    models = ("shapes",)

    def test_pages_of_other_sites_get_nothing(self):
        job = self.server.submit()
        self.server.wait(job)
        for site in ("cross-site", "same-site"):
            for path in ("/assets/icon.svg", "/assets/format.js", "/status", f"/jobs/{job}/results/0", "/jobs", "/healthz"):
                answer = self.server.get(path, **{"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"})
                self.assertEqual(answer.status, 403, path)
            link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
            self.assertEqual(self.server.get("/", **link).status, 200)
            self.assertEqual(self.server.get("/jobs", **link).status, 403)
        for site in ("same-origin", "none"):
            self.assertEqual(self.server.get("/status", **{"Sec-Fetch-Site": site}).status, 200)

    def test_every_answer_stays_with_its_site(self):
        job = self.server.submit()
        self.server.wait(job)
        for path in ("/", "/assets/main.js", "/status", "/nothing", "/jobs?limit=x", f"/jobs/{job}/results/0", f"/jobs/{job}/events"):
            headers = self.server.get(path).headers
            self.assertEqual(headers["Cross-Origin-Resource-Policy"], "same-origin", path)
            self.assertEqual(headers["Cross-Origin-Opener-Policy"], "same-origin", path)


class Bodies(ServerTest):
    """Texts of 1 MiB; how long they took, and what /healthz said meanwhile, is measured in hostile_load_test.py."""

    models = ("shapes", "tasks-a")

    def refused(self, body, says, path="/jobs"):
        begun = time.monotonic()
        answer = self.server.post(path, body)
        self.assertEqual(answer.status, 400, answer.body)
        self.assertIn(says, answer.message)
        self.assertLess(time.monotonic() - begun, 10)  # quadratic: 93 s

    def test_many_values(self):
        for value in (b"{}", b"[]", b"0", b'""', b'{"a":{}}'):
            many = (1 << 20) // (len(value) + 1) - 100
            self.refused(b'{"model":"shapes","request":{"x":[' + b",".join([value] * many) + b"]}}", "more than 20000 values")

    def test_deep(self):
        self.refused(b'{"model":' + b"[" * 1000000, "nested deeper")
        self.refused(b'{"a":' * 200000, "nested deeper")

    def test_arguments_of_tools(self):
        arguments = '{"a":[' + ",".join(["{}"] * 300000) + "]}"
        call = {"function": {"name": "f", "arguments": arguments}}
        self.refused({"model": "tasks-a", "messages": [{"role": "assistant", "tool_calls": [call]}]}, "bytes of text", "/v1/chat/completions")
        small = {"function": {"name": "f", "arguments": '{"a":[' + ",".join(["{}"] * 20500) + "]}"}}
        self.refused({"model": "tasks-a", "messages": [{"role": "assistant", "tool_calls": [small]}]}, "more than 20000 values", "/v1/chat/completions")

    def test_lists(self):
        chat = {"role": "user", "content": "x"}
        self.refused({"model": "tasks-a", "messages": [chat] * 5000}, "1 to 1024", "/v1/chat/completions")
        self.refused({"model": "tasks-a", "messages": [chat] * 25000}, "more than 20000 values", "/v1/chat/completions")
        self.refused({"model": "tasks-a", "request": {"prompt": "x", "stop": ["y"] * 15000}}, "16 texts")
        self.refused({"model": "tasks-a", "request": {"prompts": ["y"] * 15000}}, "64 at most")
        self.refused({"model": "shapes", "request": {"classes": ["1"] * 15000}}, "64 at most")
        self.refused({"model": "shapes", "request": {**CIRCLE, "seeds": [1] * 15000}}, "1 whole numbers")


class Log(Raw):
    models = ("shapes",)

    @classmethod
    def setUpClass(cls):
        path = keys_file(cls, f"anna {KEY}\n")
        cls.arguments = ("--api-keys", path)
        super().setUpClass()

    def test_it_shows_no_control_characters(self):
        self.raw(b"GET /%1b%5b2J%c2%9b31m%7f%e2%80%ae%c2%85 HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        self.raw(b"\x1b[2J\x1b[31mPWNED /healthz HTTP/1.1\r\n" + HOST + b"\r\n")
        self.raw(b"M" * 8000 + b" /healthz HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        self.raw(b"GET /" + b"x" * 8000 + b" HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        self.server.get("/healthz")
        log = self.server.log_path.read_bytes()
        self.assertTrue(all(32 <= byte < 127 or byte == 10 for byte in log), log)
        self.assertIn(rb"\u001b[2J\u009b31m\u007f\u202e\u0085", log)
        self.assertIn(b"M" * 20 + b" /healthz", log)
        self.assertLess(max(map(len, log.splitlines())), 2000)

    def test_json_lines_are_short_too(self):
        server = self.another("--log", "json", models=("shapes",))
        server.get("/" + "y" * 8000)
        server.get("/%c2%9b%7f")
        server.get("/healthz")
        for line in server.log().splitlines():
            self.assertLess(len(line), 1000)
            self.assertTrue(line.isascii() and line.isprintable(), line)
            said = json.loads(line)
            if "path" in said:
                self.assertEqual(said["address"], "127.0.0.1")

    def test_who_has_no_key_has_an_address(self):
        self.assertEqual(self.server.get("/status").status, 401)
        self.server.get("/status", Authorization=f"Bearer {KEY}")
        self.server.get("/healthz")
        lines = self.server.log().splitlines()
        self.assertTrue(any(" /status 401 " in line and line.endswith(" 127.0.0.1") for line in lines), lines)
        self.assertTrue(any(" /status 200 " in line and line.endswith(" anna 127.0.0.1") for line in lines), lines)


if __name__ == "__main__":
    main()
