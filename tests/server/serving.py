"""`tessera serve` as its clients see it, with Python's standard library alone."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE") or pathlib.Path(__file__).parents[2])
PROGRAM = os.environ.get("TESSERA_PROGRAM") or str(SOURCE / "build/release/tessera")
CIRCLE = {"classes": ["red circle"], "steps": 4}


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def message(self):
        return self.json["error"]["message"]


class Server:
    """A server in a folder of its own, which can be killed and started again."""

    def __init__(self, *arguments, models=("shapes",), store=True, before=(), **options):
        self.holder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.holder.name)
        self.arguments = [*before, PROGRAM, "serve", *models, "--port", "0", *map(str, arguments)]
        if store:
            self.arguments += ["--store", str(self.folder / "store")]
        self.options = options
        self.start()

    def start(self):
        self.log_path = self.folder / "log"
        with open(self.log_path, "ab") as log:
            begin = log.tell()
            self.process = subprocess.Popen(self.arguments, stdout=subprocess.DEVNULL, stderr=log, **self.options)
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            for line in self.log_path.read_bytes()[begin:].decode().splitlines():
                if "http://" in line:
                    self.port = int(line.split("http://")[1].split('"')[0].rpartition(":")[2])
                    return
            time.sleep(0.02)
        raise AssertionError(f"it does not serve: {self.log()}")

    def log(self):
        return self.log_path.read_text()

    def end(self, how=signal.SIGTERM, within=60):
        self.process.send_signal(how)
        return self.process.wait(within)

    def rank(self, number):
        """The process that mpirun started as this rank."""
        for folder in pathlib.Path("/proc").iterdir():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0") if folder.name.isdigit() else []
                said = (folder / "environ").read_bytes().split(b"\0") if str(self.folder).encode() in b" ".join(words) else []
            except OSError:
                continue
            if f"OMPI_COMM_WORLD_RANK={number}".encode() in said and words[0].decode() == PROGRAM:
                return int(folder.name)
        raise AssertionError(f"there is no rank {number}: {self.log()}")

    def close(self):
        if self.process.poll() is None and self.arguments[0] != PROGRAM:
            self.process.terminate()  # mpirun takes its ranks along
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)
        self.holder.cleanup()

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, path, body=None, headers=None):
        headers = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        connection = self.connect()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.ask("GET", path, headers=headers)

    def post(self, path, body, **headers):
        return self.ask("POST", path, body, headers)

    def submit(self, request=None, model="shapes", **fields):
        answer = self.post("/jobs", {"model": model, "request": CIRCLE if request is None else request, **fields})
        if answer.status != 202:
            raise AssertionError(f"{answer.status} {answer.body}")
        return answer.json["id"]

    def events(self, job, after=None):
        """[(id, name, data)] until the stream ends."""
        connection = self.connect()
        connection.request("GET", f"/jobs/{job}/events", headers={"Last-Event-ID": str(after)} if after else {})
        answer = connection.getresponse()
        found, event = [], {}
        for line in answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                event[name] = value
            elif "event" in event:
                found.append((int(event["id"]), event["event"], json.loads(event["data"])))
                event = {}
            else:
                event = {}
        connection.close()
        return found

    def wait(self, job, *states, within=60):
        """The job when it is in one of the states; else when it has ended."""
        states = states or ("done", "failed", "cancelled")
        until, pause = time.monotonic() + within, 0.005
        while time.monotonic() < until:
            answer = self.get(f"/jobs/{job}")
            if answer.status != 200:
                raise AssertionError(f"job {job}: {answer.status} {answer.body}")
            shown = answer.json
            if shown["state"] in states:
                return shown
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
        raise AssertionError(f"job {job} is {shown['state']}")


def facts(server):
    """(threads, resident kB, open files) of the process."""
    with open(f"/proc/{server.process.pid}/status") as file:
        status = dict(line.split(":", 1) for line in file)
    return int(status["Threads"]), int(status["VmRSS"].split()[0]), len(os.listdir(f"/proc/{server.process.pid}/fd"))


def keys_file(owner, lines):
    """The path of a file of keys that goes with the test class `owner`."""
    holder = tempfile.TemporaryDirectory()
    owner.addClassCleanup(holder.cleanup)
    path = os.path.join(holder.name, "keys")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(lines)
    return path


class ServerTest(unittest.TestCase):
    """Tests of one server with `arguments` and `models`."""

    arguments, models = (), ("shapes", "tasks-a")

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.arguments, models=cls.models)
        cls.addClassCleanup(cls.server.close)

    def another(self, *arguments, **options):
        server = Server(*arguments, **options)
        self.addCleanup(server.close)
        return server

    def answers_join(self, server, joins=True):
        """40 prompts to a server with --batch 3 that runs one request at a time, against self.server's answers."""
        words = [f"{'hello tessera world batch queue'.split()[i % 5]}{chr(97 + i % 26)}" for i in range(40)]
        requests = [{"prompt": f"{'sort' if i % 3 else 'rev'} {word}=", "max_tokens": 24 if i < 39 else 20} for i, word in enumerate(words)]
        blocker = server.submit({"classes": ["red star"], "steps": 300})
        server.wait(blocker, "running")
        jobs = [server.submit(request, "tasks-a") for request in requests]
        server.ask("DELETE", f"/jobs/{jobs[7]}")
        server.ask("DELETE", f"/jobs/{blocker}")
        shown = [server.wait(job) for job in jobs]
        self.assertEqual([job["state"] for job in shown], ["cancelled" if i == 7 else "done" for i in range(40)])
        for i, (request, job) in enumerate(zip(requests, shown)):
            if i != 7:
                alone = self.server.wait(self.server.submit(request, "tasks-a"))
                self.assertEqual((job["text"], job["usage"]), (alone["text"], alone["usage"]))
                self.assertEqual(job["report"]["completions"][0]["text"], job["text"])
        said = server.get("/metrics").body.decode()
        if joins:
            self.assertIn('tessera_batch_jobs_sum{model="tasks-a"} 4\n', said, "three began, and the one of another length")
            self.assertIn('tessera_jobs_joined_total{model="tasks-a"} 35\n', said)
            ends = [job["ended"] for job in shown if job["state"] == "done"]
            self.assertLess(ends[0], ends[-2], "each ends when it has ended")
        else:
            self.assertIn('tessera_batch_jobs_sum{model="tasks-a"} 39\n', said)
            self.assertNotIn("tessera_jobs_joined_total{", said)
        self.assertEqual(server.get("/status").json["running"], [])


class Keyed(ServerTest):
    """Tests of one server whose clients have keys: anna, bert, carl, and root, an operator."""

    models = ("shapes",)

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.keys = pathlib.Path(holder.name) / "keys"
        cls.keys.touch(0o600)
        cls.keys.write_text("".join(f"{name} {cls.secret(name)}{' operator' if name == 'root' else ''}\n" for name in ("anna", "bert", "carl", "root")))
        cls.arguments = ("--api-keys", cls.keys, *cls.arguments)
        super().setUpClass()

    @staticmethod
    def secret(name):
        return f"{name}-0123456789abcdef"

    def key(self, name):
        return {"Authorization": f"Bearer {self.secret(name)}"}

    def another_keyed(self, *arguments, **options):
        return self.another("--api-keys", self.keys, *arguments, **options)

    def ask(self, name, method, path, body=None):
        return self.server.ask(method, path, body, self.key(name))

    def submit(self, name, request=None, model="shapes"):
        answer = self.ask(name, "POST", "/jobs", {"model": model, "request": CIRCLE if request is None else request})
        self.assertEqual(answer.status, 202, answer.body)
        return answer.json["id"]

    def done(self, name, request=None):
        """The id of a job that a client sent, when it is done."""
        job = self.submit(name, request)
        self.until(lambda: self.ask(name, "GET", f"/jobs/{job}").json["state"] == "done", pause=0.005)
        return job

    def empty(self):
        """Nothing waits or runs any more."""
        for name in ("anna", "bert", "carl"):
            for job in self.ask(name, "GET", "/jobs?limit=200").json["jobs"]:
                if job["state"] in ("queued", "running"):
                    self.ask(name, "DELETE", f"/jobs/{job['id']}?cancel=1")
        self.until(lambda: self.ask("root", "GET", "/status").json["running"] == [])

    def until(self, true, within=60, pause=0.05):
        end = time.monotonic() + within
        while not true():
            self.assertLess(time.monotonic(), end)
            time.sleep(pause)


def main():
    unittest.main(verbosity=2 if "-v" in sys.argv else 1)
