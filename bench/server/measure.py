#!/usr/bin/env python3
"""Measures `tessera serve`; source of all figures in docs/results/server.md, a JSON line each.

    python3 bench/server/measure.py build/release overhead batching beside
    python3 bench/server/measure.py build/release --seconds 600 clients

Needs only Python's standard library. The client runs on the same machine and uses part of the cores.
"""

import argparse
import concurrent.futures
import http.client
import itertools
import json
import os
import pathlib
import random
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHORT = {"classes": ["red circle"], "steps": 4, "seed": 1}
CLASSES = ["red circle", "blue star", "green ring", "yellow bar"]
WORDS = ["hello", "tessera", "world", "batch", "server", "client", "queue", "block"]


def say(measure, **facts):
    facts = {name: round(value, 4) if isinstance(value, float) else value for name, value in facts.items()}
    print(json.dumps({"measure": measure, **facts, "load": round(os.getloadavg()[0], 1)}), flush=True)


def quantile(values, share):
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def cpu_seconds(server):
    """CPU seconds of the server's process: more reliable than the clock on a busy machine."""
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def timed(work):
    begun = time.monotonic()
    result = work()
    return time.monotonic() - begun, result


class Client:
    """A persistent connection."""

    def __init__(self, server, key=None):
        self.key = {"Authorization": f"Bearer {key}"} if key else {}
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)

    def ask(self, method, path, body=None):
        headers = {**self.key, **({"Content-Type": "application/json"} if body is not None else {})}
        self.connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 202, 429):
            raise AssertionError(f"{method} {path}: {answer.status} {text[:300]}")
        return answer.status, json.loads(text)

    def submit(self, request, model="shapes", **fields):
        """Submits a job and returns its id; waits while the queue is full."""
        while True:
            status, said = self.ask("POST", "/jobs", {"model": model, "request": request, **fields})
            if status == 202:
                return said["id"]
            time.sleep(0.05)

    def follow(self, job):
        """Returns name and data of the event that ends a job."""
        self.connection.request("GET", f"/jobs/{job}/events", headers=self.key)
        name = data = None
        for line in self.connection.getresponse():
            key, _, value = line.decode().rstrip("\n").partition(": ")
            name, data = (value if key == "event" else name), (value if key == "data" else data)
        return name, data

    def show(self, job):
        return self.ask("GET", f"/jobs/{job}")[1]


def overhead(args, serving):
    """Measures a short request: the client's wait beyond the library's time for the same request with the file written."""
    asked = {"shapes": ("/v1/images/generations", {"model": "shapes", "prompt": "red circle", "n": 1, "steps": 4, "seed": 1}),
             "tasks-a": ("/v1/completions", {"model": "tasks-a", "prompt": "sort hello="})}
    server = serving.Server("--threads", args.threads, models=tuple(asked))
    library = subprocess.Popen([args.build / "bench/request_bench", str(args.threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    waited, own, inside = {}, {}, {}
    try:
        client = Client(server)
        for turn in range(args.requests + 3):
            for model, (path, body) in asked.items():
                seconds, _ = timed(lambda path=path, body=body: client.ask("POST", path, body))
                library.stdin.write("\n")
                library.stdin.flush()
                alone = json.loads(library.stdout.readline())
                assert alone["model"] == model, alone
                (job,) = client.ask("GET", "/jobs?limit=1")[1]["jobs"]
                if turn < 3:
                    continue
                waited.setdefault(model, []).append(1e3 * seconds)
                own.setdefault(model, []).append(alone["ms"])
                parts = (job["started"] - job["created"], job["ended"] - job["started"], seconds - (job["ended"] - job["created"]))
                inside.setdefault(model, []).append([1e3 * part for part in parts])
    finally:
        library.stdin.close()
        library.wait(60)
        server.close()
    for model in asked:
        queued, ran, outside = (statistics.median(column) for column in zip(*inside[model]))
        say("overhead", model=model, requests=args.requests, client_ms=statistics.median(waited[model]), library_ms=statistics.median(own[model]),
            overhead_ms=statistics.median(waited[model]) - statistics.median(own[model]),
            overhead_pairs_ms=statistics.median(a - b for a, b in zip(waited[model], own[model])),
            kept_and_queued_ms=queued, run_ms=ran, http_and_end_ms=outside)


def batching(args, serving):
    """Measures jobs a second of compatible requests, merged up to 8 (two runs at once, the default), against separate runs; the servers take turns."""
    kinds = [("shapes", f"{side} x {side}, {args.steps} steps",
              lambda i, side=side: {"classes": [CLASSES[i % 4]], "steps": args.steps, "seed": i, "width": side, "height": side})
             for side in args.sides]
    kinds.append(("tasks-a", "answers of one block", lambda i: {"prompt": f"sort {WORDS[i % len(WORDS)]}="}))
    ways = {"batched": ("--batch", 8, "--at-once", 1), "alone": ("--batch", 1, "--at-once", 1), "two at once": ("--batch", 1, "--at-once", 2),
            "two batches at once": ("--batch", 8, "--at-once", 2)}
    at_once = {way: options[-1] for way, options in ways.items()}
    servers = {way: serving.Server("--threads", args.threads, "--queue", 1000, *options, models=("shapes", "tasks-a"))
               for way, options in ways.items()}
    try:
        for model, what, request in kinds:
            rates, costs = {way: [] for way in ways}, {way: [] for way in ways}
            for _ in range(args.rounds + 1):
                for way, server in servers.items():
                    client = Client(server)
                    blockers = [client.submit({"classes": ["red star"], "steps": steps}) for steps in (1000, 999)[:at_once[way]]]
                    jobs = [client.submit(request(i), model) for i in range(args.jobs)]
                    for blocker in blockers:
                        client.ask("DELETE", f"/jobs/{blocker}")
                    spent = cpu_seconds(server)
                    for job in jobs:
                        client.follow(job)
                    costs[way].append(1e3 * (cpu_seconds(server) - spent) / args.jobs)
                    shown = [client.show(job) for job in jobs]
                    assert {job["state"] for job in shown} == {"done"}, shown
                    rates[way].append(args.jobs / (max(job["ended"] for job in shown) - min(job["started"] for job in shown)))
            rates = {way: of_all[1:] for way, of_all in rates.items()}  # the first round is a warm-up
            for way, other in itertools.product(("batched", "two batches at once"), ("alone", "two at once")):
                ratios = [a / b for a, b in zip(rates[way], rates[other])]
                say("batching", model=model, what=what, way=way, against=other, jobs=args.jobs, rounds=args.rounds,
                    batched_per_s=statistics.median(rates[way]), other_per_s=statistics.median(rates[other]),
                    ratio=statistics.median(ratios), least=min(ratios), most=max(ratios), batched_cpu_ms=statistics.median(costs[way][1:]),
                    other_cpu_ms=statistics.median(costs[other][1:]))
    finally:
        for server in servers.values():
            server.close()


def beside(args, serving):
    """Measures the 99th percentile of consecutive short jobs during a long job, against their time alone and a step of the long job."""
    server = serving.Server("--threads", args.threads)
    try:
        client = Client(server)
        long = {"classes": ["red star"], "steps": 1000, "count": args.count}

        def shorts(number):
            times = []
            for i in range(number):
                times.append(timed(lambda i=i: client.follow(client.submit({**SHORT, "seed": i})))[0])
            return times

        shorts(5)
        alone = shorts(args.requests)
        job = client.submit({**long, "steps": 20})
        client.follow(job)
        steps = client.show(job)["report"]["step_seconds"]
        client.follow(job)
        job = client.submit(long)
        while client.show(job)["state"] != "running":
            time.sleep(0.01)
        together = []
        while len(together) < args.requests:
            together += shorts(1)
            if client.show(job)["state"] != "running":
                job = client.submit(long)
        client.ask("DELETE", f"/jobs/{job}")
        own, step = statistics.median(alone), statistics.median(steps)
        say("beside", requests=args.requests, long=f"{args.count} images of 128 x 128", own_ms=1e3 * own, own_p99_ms=1e3 * quantile(alone, 0.99),
            step_ms=1e3 * step, median_ms=1e3 * statistics.median(together), p99_ms=1e3 * quantile(together, 0.99),
            allowed_ms=1e3 * (2 * own + step), allowed_of_p99_ms=1e3 * (2 * quantile(alone, 0.99) + step))
    finally:
        server.close()


def flooded(args, serving):
    """Measures the 99th percentile of a client's short jobs while another client keeps its share of the queue full of long or of short jobs."""
    floods = {"long": {"classes": ["red star"], "steps": 1000, "count": args.count}, "short": {**SHORT, "steps": 5}}
    keys = {name: f"{name}-0123456789abcdef" for name in ("anna", "bert")}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "keys"
        path.touch(0o600)
        path.write_text("".join(f"{name} {key}\n" for name, key in keys.items()))
        for name, request in floods.items():
            server = serving.Server("--threads", args.threads, "--api-keys", path)
            try:
                flood_beside(args, server, name, request, keys)
            finally:
                server.close()


def flood_beside(args, server, name, request, keys):
    client, other = Client(server, keys["bert"]), Client(server, keys["anna"])

    def shorts(number):
        return [timed(lambda i=i: client.follow(client.submit({**SHORT, "seed": i})))[0] for i in range(number)]

    shorts(5)
    alone = shorts(args.requests)
    batch = request["classes"] * (8 if name == "short" else 1)  # short jobs are merged
    other.follow(job := other.submit({**request, "classes": batch, "steps": min(request["steps"], 20)}))
    step = statistics.median(other.show(job)["report"]["step_seconds"])
    over = threading.Event()

    def flood():
        asking = Client(server, keys["anna"])
        while not over.is_set():
            if asking.ask("POST", "/jobs", {"model": "shapes", "request": request})[0] == 429:
                time.sleep(0.02)

    thread = threading.Thread(target=flood)
    thread.start()
    time.sleep(1)
    together = shorts(args.requests)
    over.set()
    thread.join()
    own = statistics.median(alone)
    say("flooded", requests=args.requests, flood=name, own_ms=1e3 * own, own_p99_ms=1e3 * quantile(alone, 0.99), step_ms=1e3 * step,
        median_ms=1e3 * statistics.median(together), p99_ms=1e3 * quantile(together, 0.99), allowed_ms=1e3 * (2 * own + step),
        allowed_of_p99_ms=1e3 * (2 * quantile(alone, 0.99) + step))


def slope(samples):
    """Slope of (seconds, kB) in kB a minute, by least squares."""
    mean_t, mean_y = (statistics.fmean(column) for column in zip(*samples))
    return 60 * sum((t - mean_t) * (y - mean_y) for t, y in samples) / sum((t - mean_t) ** 2 for t, _ in samples)


def clients(args, serving):
    """Runs many clients that wait for a job and ask again; reports the outcome of all jobs, and the memory."""
    server = serving.Server("--threads", args.threads, "--queue", 1000)
    until = time.monotonic() + args.seconds
    lock, acknowledged, times, ends, failures = threading.Lock(), [], [], {}, []

    def work(number):
        client, chance = Client(server), random.Random(number)
        while time.monotonic() < until:
            try:
                begun = time.monotonic()
                job = client.submit({"classes": [chance.choice(CLASSES)], "steps": 4, "seed": chance.randrange(1 << 30)})
                with lock:
                    acknowledged.append(job)
                end, _ = client.follow(job)
                with lock:
                    times.append(time.monotonic() - begun)
                    ends[end] = ends.get(end, 0) + 1
            except Exception as error:  # raised in a thread
                with lock:
                    failures.append(repr(error))
                return

    try:
        Client(server).follow(Client(server).submit(SHORT))
        before, begun = serving.facts(server), time.monotonic()
        threads = [threading.Thread(target=work, args=(i,)) for i in range(args.clients)]
        for thread in threads:
            thread.start()
        samples = []
        while any(thread.is_alive() for thread in threads):
            samples.append((time.monotonic() - begun, serving.facts(server)[1]))
            time.sleep(min(1, args.seconds / 50))
        client = Client(server)
        lost = [job for job in acknowledged if client.show(job)["state"] != "done"]
        time.sleep(1)
        after = serving.facts(server)
        settled = [one for one in samples if one[0] > args.seconds / 4]
        say("clients", clients=args.clients, seconds=args.seconds, acknowledged=len(acknowledged), ended=ends, lost=len(lost), failures=failures[:3],
            per_s=len(times) / args.seconds, median_ms=1e3 * statistics.median(times), p99_ms=1e3 * quantile(times, 0.99),
            resident_before_mb=before[1] / 1024, resident_at_quarter_mb=settled[0][1] / 1024, resident_end_mb=samples[-1][1] / 1024,
            resident_after_mb=after[1] / 1024, slope_kb_per_min=slope(settled), slope_kb_per_1000_jobs=slope(settled) * args.seconds / 60 / len(times) * 1000,
            threads_before=before[0], threads_after=after[0])
    finally:
        server.close()


def idle(args, serving):
    """Measures the cost of connections without a request, or with half a request, and the time of another request."""
    server = serving.Server("--threads", args.threads)
    held, refused = [], 0
    try:
        client = Client(server)
        client.follow(client.submit(SHORT))
        alone = [timed(lambda: client.follow(client.submit(SHORT)))[0] for _ in range(20)]
        before = serving.facts(server)
        seconds, _ = timed(lambda: [held.append(socket.create_connection(("127.0.0.1", server.port), 30)) for _ in range(args.connections)])
        for i, one in enumerate(held):
            if i % 2:
                one.sendall(b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n")
        while serving.facts(server)[2] < before[2] + len(held) * 0.99 and seconds < 60:  # the server accepts them later
            time.sleep(0.1)
            seconds += 0.1
        there = serving.facts(server)
        times = [timed(lambda: client.follow(client.submit(SHORT)))[0] for _ in range(20)]
        fresh = [timed(lambda: Client(server).ask("GET", "/status"))[0] for _ in range(20)]
        standing = client.ask("GET", "/status")[1]["clients"]
        for one in held:
            one.setblocking(False)
            try:
                refused += one.recv(1) == b""
            except BlockingIOError:
                pass
            one.close()
        time.sleep(3)
        after = serving.facts(server)
        say("idle", connections=len(held), opened_in_s=seconds, held=standing, closed_by_server=refused, threads_before=before[0], threads=there[0],
            resident_before_mb=before[1] / 1024, resident_mb=there[1] / 1024, kb_each=(there[1] - before[1]) / len(held), files=there[2],
            short_job_alone_ms=1e3 * statistics.median(alone), short_job_ms=1e3 * statistics.median(times), new_connection_ms=1e3 * statistics.median(fresh),
            files_after=after[2], resident_after_mb=after[1] / 1024)
    finally:
        server.close()


def killed(args, serving):
    """Repeats kill -9 while clients ask; checks that each acknowledged job exists afterwards, and ends."""
    server = serving.Server("--threads", args.threads, "--queue", 1000)
    acknowledged, lock, stop = [], threading.Lock(), threading.Event()
    chance = random.Random(1)

    def work(number):
        while not stop.is_set():
            try:
                job = Client(server).submit({**SHORT, "steps": 10, "seed": number})
                with lock:
                    acknowledged.append(job)
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)  # the server is being killed

    try:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for number in range(16):
                pool.submit(work, number)
            try:
                for _ in range(args.rounds):
                    time.sleep(0.5 + chance.random())
                    server.process.send_signal(signal.SIGKILL)
                    server.process.wait(60)
                    server.start()
            finally:
                stop.set()
        client, states, missing = Client(server), {}, 0
        for job in acknowledged:
            try:
                state = client.show(job)["state"]
                states[state] = states.get(state, 0) + 1
            except AssertionError:
                client, missing = Client(server), missing + 1
        for job in acknowledged:
            client.follow(job)
        done = sum(client.show(job)["state"] == "done" for job in acknowledged)
        say("killed", kills=args.rounds, clients=16, acknowledged=len(acknowledged), after_restart=states, missing=missing, done_in_the_end=done)
    finally:
        server.close()


def main():
    measures = {work.__name__: work for work in (overhead, batching, beside, flooded, clients, idle, killed)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="folder of a build, such as build/release")
    parser.add_argument("measures", nargs="+", choices=list(measures), metavar="MEASURE", help=", ".join(measures))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--requests", type=int, default=200, help="of overhead, beside and flooded")
    parser.add_argument("--rounds", type=int, default=5, help="of batching and killed")
    parser.add_argument("--jobs", type=int, default=32, help="of a round of batching")
    parser.add_argument("--sides", type=int, nargs="+", default=[64, 128, 256], help="pixels, of batching")
    parser.add_argument("--steps", type=int, default=10, help="of batching")
    parser.add_argument("--count", type=int, default=4, help="images of the long jobs of beside and flooded")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600, help="of clients")
    parser.add_argument("--connections", type=int, default=10000, help="of idle")
    args = parser.parse_args()
    args.build = args.build.resolve()
    os.environ["TESSERA_PROGRAM"], os.environ["TESSERA_SOURCE"] = str(args.build / "tessera"), str(ROOT)
    sys.path.insert(0, str(ROOT / "tests/server"))
    import serving  # reads the environment
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for name in args.measures:
        measures[name](args, serving)


if __name__ == "__main__":
    main()
