#!/usr/bin/env python3
"""A plan whose ranks are processes: mpirun's first one serves, the others follow it."""

import json
import os
import pathlib
import random
import shutil
import signal
import tempfile
import time
import unittest

from serving import SOURCE, Server, ServerTest, main

MPIRUN = shutil.which("mpirun")
# mpirun refuses root otherwise, which is what containers run tests as.
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def spoilt(folder):
    """A copy of shapes whose last block, of the last stage, gives no numbers."""
    model = pathlib.Path(folder) / "spoilt"
    shutil.copytree(SOURCE / "models/shapes", model)
    path = model / "transformer/model.safetensors"
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[:8], "little")
    begin, _ = json.loads(data[8:8 + length])["blocks.7.attn.out_proj.bias"]["data_offsets"]
    data[8 + length + begin:8 + length + begin + 2] = b"\xff\xff"
    path.write_bytes(data)
    return str(model)


@unittest.skipUnless(MPIRUN, "there is no mpirun")
class Processes(ServerTest):
    models = ("shapes", "tasks-a")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.many = cls.made()
        cls.addClassCleanup(cls.many.close)

    @classmethod
    def made(cls, *arguments, plan="expert=2", models=models):
        return Server("--plan", plan, *arguments, models=models, env=ENVIRONMENT,
                      before=[MPIRUN, "--oversubscribe", "--bind-to", "none", "-np", "2"])

    def further(self, *arguments, **options):
        server = self.made(*arguments, **options)
        self.addCleanup(server.close)
        return server

    def same(self, request, model="shapes"):
        mine, theirs = (server.wait(server.submit(request, model)) for server in (self.many, self.server))
        self.assertEqual((mine["state"], theirs["state"], mine.get("text")), ("done", "done", theirs.get("text")), mine)
        self.assertEqual(len(mine["report"]["per_rank"]), 2)
        for one, other in zip(mine["results"], theirs["results"], strict=True):
            self.assertEqual(self.many.get(one["url"]).body[-2000:], self.server.get(other["url"]).body[-2000:])

    def test_results_are_those_of_one_rank(self):
        self.same({"classes": ["red circle"], "steps": 4, "seed": 3})
        self.same({"classes": ["red circle", "blue star"], "steps": 3, "seeds": [1, 2]})
        self.same({"prompts": ["sort hello=", "rev abcdef="]}, "tasks-a")

    def test_what_the_ranks_do_is_told(self):
        server = self.further(plan="expert=2,schedule=interweaved", models=("shapes",))
        for _ in range(2):
            events = server.events(server.submit({"classes": ["blue star", "red ring"], "steps": 6}))
            told = [data for _, name, data in events if name == "ranks"]
            self.assertEqual([one["step"] for one in told], list(range(1, 7)))
            self.assertEqual({tuple(rank["rank"] for rank in one["ranks"]) for one in told}, {(0, 1)})
            for before, after in zip(told, told[1:]):
                for old, new in zip(before["ranks"], after["ranks"]):
                    self.assertGreaterEqual(new["sent_bytes"], old["sent_bytes"])
            for rank, did in zip(told[-1]["ranks"], events[-1][2]["report"]["per_rank"]):
                self.assertEqual(rank["sent_bytes"], did["sent_bytes"])
                self.assertGreater(rank["compute_seconds"], 0)
                self.assertGreater(rank["ages"]["experts"][1], 0, "interweaved results are a step old")

    def test_a_silence_ends_nothing(self):
        server = self.further("--comm-timeout", "2")
        time.sleep(5)
        self.assertEqual(server.wait(server.submit())["state"], "done")

    def test_what_is_refused_and_cancelled_leaves_the_ranks_together(self):
        self.assertEqual(self.many.post("/jobs", {"model": "shapes", "request": {"classes": ["purple cow"]}}).status, 400)
        chance = random.Random(1)
        for model, request in (("shapes", {"classes": ["red star"], "steps": 500}), ("tasks-a", {"prompt": "rev abcdef=", "threshold": 1})) * 6:
            job = self.many.submit(request, model, previews=3)
            time.sleep(chance.random() * 0.3)
            self.many.ask("DELETE", f"/jobs/{job}")
        self.same({"classes": ["green ring"], "steps": 4})

    def test_cancelled_while_texts_are_read(self):
        server = self.further(plan="cfg=2", models=("scenes",))
        chance = random.Random(2)
        for _ in range(12):
            job = server.submit({"prompt": "a red circle left of a blue square", "steps": 500}, "scenes")
            time.sleep(chance.random() * 0.1)
            self.assertEqual(server.ask("DELETE", f"/jobs/{job}").json["state"], "cancelled")
        self.assertEqual(server.wait(server.submit({"prompt": "a red circle left of a blue square", "steps": 4}, "scenes"))["state"], "done")

    def test_images_are_decoded_by_a_process_of_their_own(self):
        server = self.further(plan="vae=+1", models=("shapes",))
        request = {"classes": ["red circle", "blue star"], "steps": 3, "seeds": [1, 2]}
        chance = random.Random(3)
        for _ in range(12):
            job = server.submit({"classes": ["red star"], "count": 8, "steps": 200})
            time.sleep(chance.random() * 0.5)
            self.assertEqual(server.ask("DELETE", f"/jobs/{job}").json["state"], "cancelled")
        mine, one = (each.wait(each.submit(request)) for each in (server, self.server))
        self.assertEqual((mine["state"], one["state"]), ("done", "done"), mine)
        for a, b in zip(mine["results"], one["results"], strict=True):
            self.assertEqual(server.get(a["url"]).body[-2000:], self.server.get(b["url"]).body[-2000:])

    def test_a_request_that_fails_on_one_rank_ends_at_once_and_the_next_is_done(self):
        with tempfile.TemporaryDirectory() as folder:
            server = self.further(plan="pipefusion=2", models=("shapes", spoilt(folder)))
            for _ in range(2):
                begin = time.monotonic()
                job = server.wait(server.submit({"classes": ["red star"], "steps": 4}, "spoilt"))
                self.assertEqual(job["state"], "failed", job)
                self.assertIn("rank 1, which computes: step 1 of 4", job["error"]["message"])
                self.assertLess(time.monotonic() - begin, 10)
                request = {"classes": ["red circle"], "steps": 4, "seed": 3}
                mine, one = (each.wait(each.submit(request)) for each in (server, self.server))
                self.assertEqual((mine["state"], one["state"]), ("done", "done"), mine)

    def test_answers_join_a_batch_at_work(self):
        self.answers_join(self.further("--batch", 3))

    def test_a_batch_that_is_joined_is_cancelled_and_lost_as_others_are(self):
        server = self.further("--batch", 2, models=("tasks-a",))
        chance = random.Random(4)
        for _ in range(4):
            jobs = [server.submit({"prompt": f"rev {word}=", "threshold": 1}, "tasks-a") for word in ("abcdef", "ghijkl", "mnopqr")]
            time.sleep(chance.random() * 0.2)
            for job in jobs:
                server.ask("DELETE", f"/jobs/{job}")
        self.assertEqual(server.wait(server.submit({"prompt": "rev abcdef="}, "tasks-a"))["text"], "fedcba")
        jobs = [server.submit({"prompt": "rev abcdef=", "threshold": 1}, "tasks-a") for _ in range(60)]
        server.wait(jobs[0], "running", "done")
        os.kill(server.rank(1), signal.SIGKILL)
        self.assertNotEqual(server.process.wait(90), 0)
        server.start()
        self.assertEqual({server.wait(job)["text"] for job in jobs}, {"fedcba"})

    def test_a_graceful_end(self):
        for how, ranks in ((signal.SIGINT, [0]), (signal.SIGTERM, [0]), (signal.SIGTERM, [1, 0])):
            with self.subTest(f"{how.name} to {ranks}"):
                server = self.further()
                job = server.submit({"classes": ["red star"], "steps": 200})
                server.wait(job, "running")
                for process in [server.rank(rank) for rank in ranks]:
                    os.kill(process, how)
                self.assertEqual(server.process.wait(60), 0, server.log())
                self.assertIn("ending", server.log())
                server.start()
                self.assertEqual(server.get(f"/jobs/{job}").json["state"], "done", "running work ends first")
                server.close()

    def test_what_does_not_end_in_time_begins_again(self):
        server = self.further("--grace", "0.2")
        job = server.submit({"classes": ["red star"], "steps": 1000, "count": 4})
        server.wait(job, "running")
        os.kill(server.rank(0), signal.SIGTERM)
        self.assertEqual(server.process.wait(60), 0, server.log())
        server.start()
        self.assertIn(server.get(f"/jobs/{job}").json["state"], ("queued", "running"))
        server.ask("DELETE", f"/jobs/{job}")

    def test_a_rank_that_is_killed_ends_all_and_its_job_begins_again(self):
        server = self.further()
        job = server.submit({"classes": ["red star"], "steps": 1000})
        server.wait(job, "running")
        os.kill(server.rank(1), signal.SIGKILL)
        self.assertNotEqual(server.process.wait(90), 0)
        server.start()
        self.assertIn(server.get(f"/jobs/{job}").json["state"], ("queued", "running"))
        server.ask("DELETE", f"/jobs/{job}")


if __name__ == "__main__":
    main()
