#!/usr/bin/env python3
"""What a server refuses, with which status and words; who may ask it."""

import json
import os
import subprocess
import tempfile

from serving import CIRCLE, PROGRAM, ServerTest, keys_file, main


class Bodies(ServerTest):
    def refused(self, status, body, param=None, says="", path="/jobs"):
        answer = self.server.post(path, body)
        self.assertEqual(answer.status, status, answer.body)
        error = answer.json["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual(error["param"], param)
        self.assertIn(says, error["message"])

    def image(self, **request):
        return {"model": "shapes", "request": request}

    def test_what_is_no_request(self):
        for body, says in ((b"", "no JSON"), (b"{", "no JSON"), (b"[]", "no JSON object"), (b'{"a":\xff}', "no JSON"),
                           (b"[" * 100, "deeper"), (b'{"a":1e999}', "no JSON"), (b"nul", "no JSON")):
            self.refused(400, body, says=says)
        self.refused(400, b'{"model":"shapes","model":"scenes"}', "model", "twice")
        self.refused(400, {"model": "shapes"}, "request", "missing")
        self.refused(400, {"model": "shapes", "request": 3}, "request", "an object")
        self.refused(400, {**self.image(**CIRCLE), "priority": 1}, "priority", "no parameter")
        self.refused(404, {"model": "nothing", "request": {}}, "model", "there is shapes, tasks-a")
        self.refused(400, {"request": {}}, "model", "name one of")

    def test_what_an_image_cannot_be(self):
        for param, request in (("prompt", {}), ("prompt", {"prompt": "x", "classes": ["red circle"]}),
                               ("steps", {**CIRCLE, "steps": 0}), ("steps", {**CIRCLE, "steps": 2.0}),
                               ("steps", {**CIRCLE, "steps": "4"}), ("steps", {**CIRCLE, "steps": 1001}),
                               ("steps", {**CIRCLE, "steps": 1 << 70}), ("width", {**CIRCLE, "width": -1}),
                               ("width", {**CIRCLE, "width": 65536, "height": 65536}), ("count", {**CIRCLE, "count": 65}),
                               ("count", {"classes": ["red circle"] * 65}), ("seed", {**CIRCLE, "seed": -1}),
                               ("seed", {**CIRCLE, "seed": 1 << 64}), ("seeds", {**CIRCLE, "seeds": [1, 2]}),
                               ("guidance", {**CIRCLE, "guidance": -1}), ("noise", {**CIRCLE, "noise": "white"}),
                               ("scheduler", {**CIRCLE, "scheduler": "x"}), ("prompt", {"classes": []}),
                               ("classes", {"classes": [["red circle"]]}), ("prompt", {"prompt": "x" * 70000}),
                               ("classes", {"classes": ["a\0b"]}), ("save_latents", {**CIRCLE, "save_latents": "/tmp/x"}),
                               ("embeddings", {**CIRCLE, "embeddings": "/etc/passwd"}),
                               ("trace", {**CIRCLE, "trace": "x"}), ("initial_latents", {**CIRCLE, "initial_latents": "x"})):
            with self.subTest(f"{param} {request}"[:100]):
                self.refused(400, self.image(**request), param)

    def test_what_an_answer_cannot_be(self):
        for param, request in (("prompt", {}), ("prompt", {"prompt": "x", "messages": []}), ("messages", {"messages": []}),
                               ("messages[0]", {"messages": [{"role": "user"}]}),
                               ("messages[0].role", {"messages": [{"role": "wizard", "content": "x"}]}), ("max_tokens", {"prompt": "x", "max_tokens": 0}),
                               ("threshold", {"prompt": "x", "threshold": 0.5, "decode": "steps:4"}),
                               ("cache", {"prompt": "x", "cache": "big"}), ("stop", {"prompt": "x", "stop": [""]}),
                               ("tools[0]", {"messages": [{"role": "user", "content": "x"}], "tools": [3]})):
            with self.subTest(f"{param} {request}"[:100]):
                self.refused(400, {"model": "tasks-a", "request": request}, param)

    def test_what_the_library_refuses_is_no_job(self):
        before = len(self.server.get("/jobs").json["jobs"])
        chat = [{"role": "user", "content": "x"}]
        for model, request, param, says in (
                ("shapes", {"classes": ["purple cow"]}, "classes", "purple cow"), ("shapes", {**CIRCLE, "width": 999}, "width", "992 or 1008"),
                ("shapes", {"prompt": "a snail"}, None, "give classes"), ("shapes", {**CIRCLE, "frames": 5}, "frames", "makes images"),
                ("shapes", {**CIRCLE, "scheduler": "lcm"}, "scheduler", "not one that fits"), ("shapes", {**CIRCLE, "guidance": 5000}, "guidance", "0 to 1000"),
                ("shapes", {**CIRCLE, "guidance": 1, "guidance_rescale": 0.5}, "guidance_rescale", "needs guidance other than 1"),
                ("shapes", {**CIRCLE, "binning": True}, "binning", "no table"), ("shapes", {**CIRCLE, "height": 65535}, "height", "a multiple"),
                ("tasks-a", {"prompt": "x", "select": "nonsense:9"}, "select", "nonsense"), ("tasks-a", {"prompt": "x", "decode": "nonsense"}, "decode", "nonsense"),
                ("tasks-a", {"prompt": "x", "decode": "threshold:nan"}, "decode", "no number"), ("tasks-a", {"prompt": "x", "decode": "steps:4", "steps": 5}, "decode", "steps 5"),
                ("tasks-a", {"prompt": "x", "steps": 60000}, None, "at most"), ("tasks-a", {"prompt": "x", "block": 60000}, None, "context"),
                ("tasks-a", {"prompt": "x", "cache": "vicinity:1,1"}, "cache", "values behind"), ("tasks-a", {"prompt": "x", "stop_at_eos": "x"}, "stop_at_eos", "known are"),
                ("tasks-a", {"prompt": "x", "top_k": 5}, "top_k", "(temperature 0.8)"), ("tasks-a", {"prompt": "x", "top_p": 0.5}, "top_p", "draws nothing"), ("tasks-a", {"prompt": "x", "temperature": 1e-9}, "temperature", "0.000001"),
                ("tasks-a", {"prompt": "x", "repetition_penalty": 1e-9}, "repetition_penalty", "expected"),
                ("tasks-a", {"prompt": "x", "max_tokens": 5000}, "prompt", "or max_tokens"), ("tasks-a", {"messages": chat, "max_tokens": 5000}, None, "or max_tokens"),
                ("tasks-a", {"prompt": ""}, "prompt", "empty prompt"), ("tasks-a", {"prompts": ["x", ""]}, "prompt", "empty prompt")):
            with self.subTest(f"{model} {request}"):
                self.refused(400, {"model": model, "request": request}, param, says)
                answer = self.server.post("/jobs", {"model": model, "request": request})
                self.assertNotRegex(answer.message, r"(^|[^'s] )--[a-z]", "options are for the command line")
        for path, body, param, says in (
                ("/v1/images/generations", {"model": "shapes", "prompt": "red circle", "size": "999x128"}, "size", "size 999"),
                ("/v1/images/generations", {"model": "shapes", "prompt": "red circle", "size": "100000x10000"}, "size", "size: width 100000: above 65536"),
                ("/v1/images/generations", {"model": "shapes", "prompt": "red circle", "size": "8x99999999999999999999"}, "size", "height 99999999999999999999: above"),
                ("/v1/images/generations", {"model": "shapes", "prompt": "red circle", "size": "70000x65537"}, "size", "width 70000 and height 65537: above 65536"),
                ("/v1/images/generations", {"model": "shapes", "prompt": "red circle", "size": "20000x20000"}, "size", "400000000 pixels in all"),
                ("/jobs", self.image(**CIRCLE, width=100000), "width", "width: 100000 is above 65536"),
                ("/jobs", self.image(**CIRCLE, guidance=1e9), "guidance", "guidance: 1000000000 is above 1000"),
                ("/v1/images/generations", {"model": "shapes", "prompt": "purple cow", "n": 2}, "prompt", "purple cow"),
                ("/v1/images/generations", {"model": "shapes", "prompt": "x" * 70000}, "prompt", "prompt: 70000"),
                ("/v1/completions", {"model": "tasks-a", "prompt": ["x", ""]}, "prompt", "empty prompt"),
                ("/v1/completions", {"model": "tasks-a", "prompt": [1, 2]}, "prompt", "prompt: expected"),
                ("/v1/chat/completions", {"model": "tasks-a", "messages": chat, "max_completion_tokens": 5000}, None, "or max_completion_tokens"),
                ("/v1/chat/completions", {"model": "tasks-a", "messages": chat, "max_completion_tokens": 70000}, "max_completion_tokens", "max_completion_tokens: "),
                ("/v1/chat/completions", {"model": "tasks-a", "messages": [{"role": "user", "content": ""}]}, "messages", "no token"),
                ("/v1/chat/completions", {"model": "tasks-a", "messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role", "user")):
            with self.subTest(f"{path} {body}"[:150]):
                self.refused(400, body, param, says, path)
        self.assertEqual(len(self.server.get("/jobs").json["jobs"]), before)

    def test_what_does_not_fit_into_memory(self):
        server = self.another("--memory-budget", "2MB")
        request = {"model": "shapes", "request": {"classes": ["red circle"], "count": 8, "steps": 2}}
        for path, body in (("/jobs", request), ("/v1/images/generations", {"model": "shapes", "prompt": "red circle", "n": 8})):
            answer = server.post(path, body)
            self.assertEqual((answer.status, answer.json["error"]["type"]), (503, "memory"))
            self.assertIn("the server's --memory-budget allows 2.0 MB", answer.message)
            self.assertIn("smaller size or " + ("count" if path == "/jobs" else "n"), answer.message)
        self.assertEqual(server.get("/jobs").json["jobs"], [], "what is refused is no job")
        self.assertEqual(server.wait(server.submit({**CIRCLE, "width": 64, "height": 64}))["state"], "done")

    def test_paths_and_methods(self):
        for method, path, status in (("GET", "/nothing", 404), ("GET", "/jobs/x", 404), ("GET", "/jobs/../../etc/passwd", 404),
                                     ("GET", "/jobs/%2e%2e/results/0", 404), ("PUT", "/jobs", 405), ("DELETE", "/jobs/x", 404),
                                     ("GET", "/jobs?limit=x", 400), ("GET", "/jobs?limit=0", 400), ("POST", "/models", 405),
                                     ("GET", "/v1/images/generations", 405), ("DELETE", "/status", 405), ("POST", "/v1/images/others", 404),
                                     ("POST", "/v1/embeddings", 404), ("PUT", "/jobs/x", 405), ("POST", "/jobs/x/events", 405)):
            answer = self.server.ask(method, path, {} if method in ("PUT", "POST") else None)
            self.assertEqual(answer.status, status, f"{method} {path}")
            self.assertEqual("GET" in (answer.headers["Allow"] or "POST"), status == 405 and path != "/v1/images/generations")
            self.assertEqual(answer.headers["X-Content-Type-Options"], "nosniff")
        job = self.server.submit()
        self.server.wait(job)
        for number in ("1", "x", "-1", "0/../0", "99999999999999999999"):
            self.assertIn(self.server.get(f"/jobs/{job}/results/{number}").status, (400, 404))

    def test_too_large_is_said_before_it_is_read(self):
        connection = self.server.connect()
        connection.putrequest("POST", "/jobs")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(1 << 30))
        connection.endheaders()
        answer = connection.getresponse()
        self.assertEqual(answer.status, 413)
        self.assertIn("16777216 at most", json.loads(answer.read())["error"]["message"])
        self.assertEqual(self.server.ask("POST", "/jobs", b"{}", {"Transfer-Encoding": "chunked"}).status, 411)

    def test_an_address_that_is_not_there_is_told_before_its_body_is_judged(self):
        for headers in ({"Content-Type": "multipart/form-data; boundary=x"}, {"Content-Type": "text/plain"}, {"Transfer-Encoding": "chunked"},
                        {"Content-Length": str(1 << 40)}):
            answer = self.server.ask("POST", "/v1/images/others", b"{", headers)
            self.assertEqual((answer.status, answer.json["error"]["type"]), (404, "not_found"))
            answer = self.server.ask("POST", "/status", b"{", headers)
            self.assertEqual((answer.status, answer.headers["Allow"]), (405, "GET, HEAD"))

    def test_other_sites_are_turned_away(self):
        self.assertEqual(self.server.get("/status", Host="evil.example").status, 421)
        self.assertEqual(self.server.get("/status", Host="localhost.evil.example").status, 421)
        self.assertEqual(self.server.get("/status", Host="127.0.0.1.evil.example").status, 421)
        self.assertEqual(self.server.get("/status", Host=f"localhost:{self.server.port}").status, 200)
        self.assertEqual(self.server.get("/status", Origin="http://evil.example").status, 403)
        own = f"http://127.0.0.1:{self.server.port}"
        self.assertEqual(self.server.get("/status", Origin=own).status, 200)
        self.assertEqual(self.server.ask("POST", "/jobs", b"{}", {"Content-Type": "text/plain"}).status, 415)
        for kind in ("Application/JSON", "application/json ; charset=UTF-8", "APPLICATION/JSON;"):
            self.assertEqual(self.server.ask("POST", "/jobs", b"{}", {"Content-Type": kind}).status, 400, kind)
        for host in (f"LocalHost:{self.server.port}", f"localhost.:{self.server.port}"):
            self.assertEqual(self.server.get("/status", Host=host).status, 200)
        self.assertEqual(self.server.get("/status", Origin=own.upper()).status, 200)
        page = self.server.get("/").headers["ETag"]
        for tags in (page, "W/" + page, f'"x", {page}'):
            self.assertEqual(self.server.get("/", **{"If-None-Match": tags}).status, 304)
        body = {"model": "shapes", "prompt": "red circle", "steps": 1}
        (made,) = self.server.post("/v1/images/generations", body, **{"X-Forwarded-Proto": "HTTPS, http"}).json["data"]
        self.assertTrue(made["url"].startswith("https://"))
        self.assertIsNone(self.server.get("/status").headers["Access-Control-Allow-Origin"])

    def test_a_full_queue(self):
        server = self.another("--queue", 2, "--at-once", 1, "--batch", 1)
        blocker = server.submit({"classes": ["red star"], "steps": 1000, "count": 4})
        server.wait(blocker, "running")
        waiting = [server.submit() for _ in range(2)]
        answer = server.post("/jobs", {"model": "shapes", "request": CIRCLE})
        self.assertEqual((answer.status, answer.json["error"]["type"]), (429, "overloaded"))
        self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)
        self.assertEqual([server.get(f"/jobs/{job}").json["position"] for job in waiting], [0, 1])
        server.ask("DELETE", f"/jobs/{blocker}")
        self.assertEqual([server.wait(job)["state"] for job in waiting], ["done", "done"])

    def test_memory_that_is_not_there(self):
        server = self.another("--memory-budget", "1MB", models=("shapes", "tasks-a"))
        for path, body in (("/v1/images/generations", {"model": "shapes", "prompt": "red circle", "steps": 2}),
                           ("/v1/completions", {"model": "tasks-a", "prompt": "sort hello="}),
                           ("/jobs", {"model": "tasks-a", "request": {"prompt": "sort hello="}})):
            answer = server.post(path, body)
            self.assertEqual((answer.status, answer.json["error"]["type"]), (503, "memory"), answer.body)
            self.assertIn("--memory-budget", answer.message)


class Keys(ServerTest):
    FIRST, SECOND = "first-key-of-all-clients", "second-key-of-all-clients"

    @classmethod
    def setUpClass(cls):
        cls.path = keys_file(cls, f"# clients\nanna {cls.FIRST}\n\n{cls.SECOND}\n")
        cls.arguments = ("--api-keys", cls.path)
        super().setUpClass()

    def get(self, path, key):
        return self.server.get(path, Authorization=f"Bearer {key}")

    def test_who_has_none_is_told(self):
        for key in ("", "x", self.FIRST[:-1], self.FIRST + "x", self.FIRST.upper(), "x" * 5000):
            answer = self.get("/jobs", key)
            self.assertEqual((answer.status, answer.headers["WWW-Authenticate"]), (401, "Bearer"))
        self.assertEqual(self.server.get("/status").status, 401)
        self.assertEqual(self.server.get("/status", Authorization=f"bearer {self.FIRST}").status, 200)
        self.assertEqual(self.server.get("/metrics").status, 401)
        self.assertEqual(self.server.post("/jobs", {}).status, 401)
        self.assertEqual(self.server.get("/healthz").status, 200)
        self.assertEqual(self.server.get("/").status, 200)

    def test_jobs_of_others_are_not_there(self):
        made = self.server.post("/jobs", {"model": "shapes", "request": CIRCLE}, Authorization=f"Bearer {self.FIRST}")
        job = f"/jobs/{made.json['id']}"
        self.assertEqual(self.get(job, self.FIRST).status, 200)
        for path in (job, job + "/events", job + "/results/0"):
            self.assertEqual(self.get(path, self.SECOND).status, 404)
        other = self.server.ask("DELETE", job, headers={"Authorization": f"Bearer {self.SECOND}"})
        self.assertEqual(other.status, 404)
        self.assertEqual(self.get("/jobs", self.SECOND).json["jobs"], [])

    def test_the_log_names_keys_and_never_shows_them(self):
        self.get("/status", self.FIRST)
        self.get("/healthz", self.FIRST)  # by then the line of the one before is written
        self.assertIn("GET /status 200", self.server.log())
        self.assertIn("anna", self.server.log())
        self.assertNotIn(self.FIRST, self.server.log())


class Start(ServerTest):
    def refused(self, *arguments, says, status=2):
        done = subprocess.run([PROGRAM, "serve", *map(str, arguments)], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr.count("tessera: error: ")), (status, 1), done.stderr)
        self.assertIn(says, done.stderr)

    def test_what_it_refuses_to_start_with(self):
        self.refused("shapes", "--host", "0.0.0.0", says="--api-keys")
        self.refused("shapes", "--port", self.server.port, says="Address already in use")
        self.refused("shapes", "--port", "0", "--store", self.server.folder / "store", says="another server has it")
        self.refused("shapes", "shapes", says="two models are called")
        self.refused("shapes", "--keep", "soon", says="--keep soon")
        self.refused("shapes", "--host", "0.0.0.0", "--api-keys", "/nowhere/keys", says="no such file")
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("short\n")
            file.flush()
            self.refused("shapes", "--api-keys", file.name, says="16 characters")
            os.chmod(file.name, 0o644)
            self.refused("shapes", "--api-keys", file.name, says="chmod 600")


if __name__ == "__main__":
    main()
