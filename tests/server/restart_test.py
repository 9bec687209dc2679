#!/usr/bin/env python3
"""What is acknowledged survives: kill -9, a graceful end, a store that is full or damaged."""

import os
import resource
import signal
import threading
import time

from serving import CIRCLE, ServerTest, main

LONG = {"classes": ["red star"], "steps": 1000, "count": 8}


class Restart(ServerTest):
    def test_kill_9(self):
        server = self.another("--at-once", 1)
        ended = server.wait(server.submit())
        cancelled = server.submit(LONG)
        server.wait(cancelled, "running")
        server.ask("DELETE", f"/jobs/{cancelled}")
        running = server.submit({"classes": ["red star"], "steps": 600})
        server.wait(running, "running")
        waiting = [server.submit({**CIRCLE, "seed": seed}) for seed in range(5)]
        self.assertEqual(server.end(signal.SIGKILL), -signal.SIGKILL)
        server.start()
        self.assertEqual(server.get(f"/jobs/{ended['id']}").json["results"], ended["results"])
        self.assertEqual(server.get(ended["results"][0]["url"]).status, 200)
        self.assertEqual(server.events(ended["id"])[-1][1], "done")
        self.assertEqual(server.get(f"/jobs/{cancelled}").json["state"], "cancelled")
        for job in (running, *waiting):
            self.assertEqual(server.wait(job)["state"], "done")
        self.assertEqual(server.events(running, after=100)[-1][1], "done")

    def test_killed_at_any_moment_nothing_acknowledged_is_lost(self):
        server = self.another()
        acknowledged = []
        for round_ in range(4):
            going = [True]

            def ask():
                while going[0]:
                    try:
                        acknowledged.append(server.submit())
                    except Exception:  # it is killed meanwhile
                        return

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            until = time.monotonic() + 30
            while len(acknowledged) < 12 * (round_ + 1) and time.monotonic() < until:
                time.sleep(0.001)
            server.end(signal.SIGKILL)
            going[0] = False
            for thread in threads:
                thread.join()
            server.start()
        self.assertGreaterEqual(len(acknowledged), 48)
        for job in acknowledged:
            done = server.wait(job)
            self.assertEqual(done["state"], "done")
            self.assertEqual(server.get(done["results"][0]["url"]).body[:4], b"\x89PNG")

    def test_a_graceful_end_waits_for_what_runs(self):
        server = self.another("--grace", 600, "--at-once", 1)
        running = server.submit({"classes": ["red star"], "steps": 500})
        server.wait(running, "running")
        waiting = server.submit()
        self.assertEqual(server.end(within=600), 0)
        self.assertIn("ending", server.log())
        server.start()
        self.assertEqual(server.get(f"/jobs/{running}").json["state"], "done")
        self.assertEqual(server.wait(waiting)["state"], "done")

    def test_what_does_not_end_in_time_begins_again(self):
        server = self.another("--grace", 0)
        job = server.submit({"classes": ["red star"], "steps": 1000, "count": 16})
        server.wait(job, "running")
        begun = time.monotonic()
        self.assertEqual(server.end(signal.SIGINT), 0)
        self.assertLess(time.monotonic() - begun, 20)
        server.start()
        self.assertIn(server.get(f"/jobs/{job}").json["state"], ("queued", "running"))
        server.ask("DELETE", f"/jobs/{job}")

    def test_who_waits_at_the_end_is_not_left_hanging(self):
        server = self.another("--grace", 0)
        job = server.submit(LONG)
        ends = []
        thread = threading.Thread(target=lambda: ends.append(self.listen(server, job)))
        thread.start()
        server.wait(job, "running")
        self.assertEqual(server.end(), 0)
        thread.join(30)
        self.assertEqual(len(ends), 1)

    @staticmethod
    def listen(server, job):
        try:
            return server.events(job)
        except OSError as error:
            return error

    def test_a_temporary_store_is_gone(self):
        server = self.another(store=False, env={**os.environ, "TMPDIR": str(self.server.folder)})
        server.wait(server.submit())
        self.assertTrue(list(self.server.folder.glob("tessera-serve-*")))
        self.assertEqual(server.end(), 0)
        self.assertEqual(list(self.server.folder.glob("tessera-serve-*")), [])

    def test_a_disk_that_is_full(self):
        server = self.another()
        done = server.wait(server.submit())
        most = (server.folder / "store/jobs.sqlite-wal").stat().st_size
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        answers = [server.post("/jobs", {"model": "shapes", "request": CIRCLE}) for _ in range(20)]
        refused = [answer for answer in answers if answer.status != 202]
        self.assertTrue(refused)
        self.assertEqual({(answer.status, answer.json["error"]["type"]) for answer in refused}, {(507, "storage")})
        self.assertEqual(server.get(f"/jobs/{done['id']}").json["state"], "done")
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for answer in answers:
            if answer.status == 202:
                self.assertIn(server.wait(answer.json["id"])["state"], ("done", "failed"))
        self.assertEqual(server.wait(server.submit())["state"], "done")

    def test_a_disk_that_is_full_when_a_job_is_to_go(self):
        server = self.another("--keep", "4s")
        old = server.wait(server.submit())["id"]
        long = server.submit(LONG)
        server.wait(long, "running")
        most = (server.folder / "store/jobs.sqlite-wal").stat().st_size
        limit = (most, resource.RLIM_INFINITY)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limit)
        while server.post("/jobs", {"model": "shapes", "request": LONG}).status == 202:
            pass
        self.assertEqual(server.ask("DELETE", f"/jobs/{long}").json["state"], "cancelled")
        time.sleep(6)  # it would go now
        self.assertEqual(server.get("/healthz").status, 200)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        until = time.monotonic() + 60
        while server.get(f"/jobs/{old}").status == 200 and time.monotonic() < until:
            time.sleep(0.2)
        self.assertEqual(server.get(f"/jobs/{old}").status, 404)
        # What was cancelled meanwhile does not begin again.
        server.end()
        server.start()
        self.assertNotIn(server.get(f"/jobs/{long}").json.get("state"), ("queued", "running"))

    def test_a_cancel_that_comes_late(self):
        server = self.another()
        job = server.wait(server.submit())
        self.assertEqual(server.ask("DELETE", f"/jobs/{job['id']}?cancel=1").json["state"], "done")
        self.assertEqual(server.get(job["results"][0]["url"]).status, 200)

    def test_results_that_cannot_be_written(self):
        server = self.another()
        server.wait(server.submit())
        results = server.folder / "store/results"
        results.rename(server.folder / "aside")
        results.write_text("no folder")
        failed = server.wait(server.submit())
        self.assertEqual(failed["state"], "failed")
        self.assertEqual(failed["error"]["type"], "storage")
        self.assertIn("results", failed["error"]["message"])
        results.unlink()
        (server.folder / "aside").rename(results)
        self.assertEqual(server.wait(server.submit())["state"], "done")

    def test_a_damaged_store_is_named(self):
        server = self.another()
        server.end()
        (server.folder / "store/jobs.sqlite").write_bytes(b"no database" * 100)
        with self.assertRaisesRegex(AssertionError, "jobs.sqlite' cannot be used"):
            server.start()
        self.assertEqual(server.process.wait(60), 3)

    def test_jobs_of_a_model_that_is_served_no_more_wait_for_it(self):
        server = self.another("--grace", 0, "--at-once", 1, "--batch", 1, models=("shapes", "tasks-a"))
        long, short = server.submit(LONG), server.submit()
        server.wait(long, "running")
        server.end()
        server.arguments.remove("shapes")
        server.start()
        self.assertIn("2 of the store's jobs wait for the model 'shapes'", server.log())
        self.assertEqual(server.get("/status").json["models_absent"], {"shapes": 2})
        self.assertEqual(server.get("/status").json["queue"]["waiting"], 0)
        listed = {job["id"]: job for job in server.get("/jobs").json["jobs"]}
        for job in (long, short):
            for shown in (server.get(f"/jobs/{job}").json, listed[job]):
                self.assertEqual((shown["state"], shown["error"]["type"]), ("queued", "model_absent"))
                self.assertIn("model 'shapes' is not served now", shown["error"]["message"])
                self.assertNotIn("position", shown)
        self.assertEqual(server.wait(server.submit({"prompt": "sort hello="}, "tasks-a"))["state"], "done")
        ended = []
        thread = threading.Thread(target=lambda: ended.append(server.events(long)))
        thread.start()
        gone = server.ask("DELETE", f"/jobs/{long}").json
        self.assertEqual((gone["state"], gone.get("error")), ("cancelled", None))
        thread.join(30)
        self.assertEqual([name for _, name, _ in ended[0]], ["state", "cancelled"])
        self.assertEqual(ended[0][0][2]["error"]["type"], "model_absent")
        server.end()
        server.start()  # still without
        self.assertEqual(server.get(f"/jobs/{short}").json["error"]["type"], "model_absent")
        server.end()
        server.arguments.insert(2, "shapes")
        server.start()
        done = server.wait(short)
        self.assertEqual((done["state"], done.get("error")), ("done", None))
        self.assertEqual(server.get(f"/jobs/{long}").status, 404, "it was cancelled before it ran here")
        self.assertEqual(server.get("/status").json["models_absent"], {})

    def test_ended_jobs_go_after_their_time(self):
        server = self.another("--keep", "5s")
        job = server.wait(server.submit())
        until = time.monotonic() + 60
        while server.get(f"/jobs/{job['id']}").status == 200 and time.monotonic() < until:
            time.sleep(0.2)
        self.assertEqual(server.get(job["results"][0]["url"]).status, 404)
        self.assertEqual(list((server.folder / "store/results").iterdir()), [])


if __name__ == "__main__":
    main()
