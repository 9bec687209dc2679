#!/usr/bin/env python3
"""Jobs from their request to their files: as the command line does it, followed, cancelled, removed."""

import json
import subprocess
import tempfile
import threading
import time

from serving import PROGRAM, ServerTest, main


class Jobs(ServerTest):
    def drawn(self, *arguments):
        """The file that the command line writes."""
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([PROGRAM, "generate", "shapes", *arguments, "--progress", "none", "-o", f"{folder}/x.png"],
                           check=True, timeout=60, capture_output=True)
            with open(f"{folder}/x.png", "rb") as file:
                return file.read()

    def test_an_image_is_that_of_the_command_line_byte_by_byte(self):
        job = self.server.submit({"classes": ["red circle"], "steps": 6, "seed": 7})
        done = self.server.wait(job)
        self.assertEqual((done["state"], done["kind"], done["model"]), ("done", "image", "shapes"))
        (result,) = done["results"]
        self.assertEqual({k: result[k] for k in ("type", "width", "height", "seed")},
                         {"type": "image/png", "width": 128, "height": 128, "seed": 7})
        answer = self.server.get(result["url"])
        self.assertEqual((answer.status, answer.headers["Content-Type"]), (200, "image/png"))
        self.assertEqual(answer.body, self.drawn("--class", "red circle", "--steps", "6", "--seed", "7"))
        self.assertEqual(done["report"]["model"], "shapes")
        self.assertLessEqual(done["created"], done["started"])
        self.assertLessEqual(done["started"], done["ended"])

    def test_a_plan_may_be_chosen_for_this_machine(self):
        for form in ((), ("--log", "json")):
            server = self.another("--ranks", 2, "--plan", "auto", *form)
            lines = server.log().splitlines()
            said = json.loads(lines[0])["note"] if form else lines[0].removeprefix("note: ")
            self.assertRegex(said, r"^plan [a-z]\S*=2\S*, predicted to take [0-9.e-]+ s after loading$")
            done = server.wait(server.submit({"classes": ["red circle"], "steps": 2}))
            self.assertEqual(done["report"]["plan"], said.split()[1].rstrip(","))

    def test_each_image_of_a_job_has_a_seed_that_gives_it_again(self):
        for request, seeds in (({"count": 2, "seed": 7}, [7, 8]), ({"count": 2}, [0, 1]), ({"count": 2, "seeds": [9, 4]}, [9, 4]), ({"seed": 7}, [7])):
            done = self.server.wait(self.server.submit({"classes": ["red circle"], "steps": 2, **request}))
            self.assertEqual([result["seed"] for result in done["results"]], seeds)
            for result in done["results"]:
                self.assertEqual(self.server.get(result["url"]).body,
                                 self.drawn("--class", "red circle", "--steps", "2", "--seed", str(result["seed"])))

    def test_jobs_that_run_as_one_have_the_bits_of_those_alone(self):
        server = self.another("--batch", 8, "--at-once", 1)
        blocker = server.submit({"classes": ["red star"], "steps": 1000, "count": 8})
        server.wait(blocker, "running")
        asked = [{"classes": [name], "steps": 5, "seed": seed} for seed, name in
                 enumerate(["red circle", "blue star", "green ring", "yellow bar", "red cross", "blue ring"])]
        asked.append({"classes": ["red bar", "blue bar"], "steps": 5, "seeds": [11, 12]})
        jobs = [server.submit(request) for request in asked]
        server.ask("DELETE", f"/jobs/{blocker}")
        shown = [server.wait(job) for job in jobs]
        self.assertEqual({job["state"] for job in shown}, {"done"})
        begun = [job["started"] for job in shown]
        self.assertLess(max(begun) - min(begun), 1, "they did not begin together")
        for request, job in zip(asked, shown):
            for i, result in enumerate(job["results"]):
                seed = request.get("seeds", [request.get("seed")])[i]
                alone = self.server.wait(self.server.submit({**request, "classes": [request["classes"][i]],
                                                             "seed": seed, "seeds": None}))
                self.assertEqual(server.get(result["url"]).body[-4096:],
                                 self.server.get(alone["results"][0]["url"]).body[-4096:])
        self.assertIn('tessera_batch_jobs_bucket{model="shapes",le="4"} 1', server.get("/metrics").body.decode())

    def test_answers_that_run_as_one_are_those_alone(self):
        words = ["hello", "tessera", "world", "batch"]
        alone = [self.server.wait(self.server.submit({"prompt": f"sort {word}="}, "tasks-a"))["text"] for word in words]
        self.assertEqual(alone[0], "ehllo")
        server = self.another("--at-once", 1, models=("shapes", "tasks-a"))
        blocker = server.submit({"classes": ["red star"], "steps": 300})
        server.wait(blocker, "running")
        jobs = [server.submit({"prompt": f"sort {word}="}, "tasks-a") for word in words]
        server.ask("DELETE", f"/jobs/{blocker}")
        self.assertEqual([server.wait(job)["text"] for job in jobs], alone)
        self.assertIn('tessera_batch_jobs_sum{model="tasks-a"} 4\n', server.get("/metrics").body.decode())

    def test_answers_join_a_batch_at_work(self):
        self.answers_join(self.another("--batch", 3, "--at-once", 1, models=self.models))

    def test_answers_join_a_batch_on_several_ranks(self):
        for plan, joins in (("expert=2", True), ("tensor=2", True), ("expert=2,moe=fused", False)):
            with self.subTest(plan):
                self.answers_join(self.another("--batch", 3, "--at-once", 1, "--plan", plan, models=self.models), joins)

    def test_who_waits_longer_is_not_passed_by_those_who_could_join(self):
        server = self.another("--batch", 2, "--at-once", 1, models=("shapes", "tasks-a"))
        blocker = server.submit({"classes": ["red star"], "steps": 300})
        server.wait(blocker, "running")
        texts = [server.submit({"prompt": "sort hello="}, "tasks-a") for _ in range(2)]
        image = server.submit()
        later = [server.submit({"prompt": "sort world="}, "tasks-a") for _ in range(4)]
        server.ask("DELETE", f"/jobs/{blocker}")
        started = {job: server.wait(job)["started"] for job in [*texts, image, *later]}
        self.assertLess(started[image], min(started[job] for job in later))

    def test_jobs_that_do_not_fit_together_run_alone(self):
        server = self.another("--at-once", 1, "--memory-budget", "3MB")
        blocker = server.submit({"classes": ["red star"], "steps": 300})
        server.wait(blocker, "running")
        jobs = [server.submit({"classes": ["red circle"], "steps": 3, "seed": seed}) for seed in range(8)]
        server.ask("DELETE", f"/jobs/{blocker}")
        self.assertEqual([server.wait(job)["state"] for job in jobs], ["done"] * 8)
        self.assertIn('tessera_batch_jobs_sum{model="shapes"} 9\n', server.get("/metrics").body.decode())

    def test_a_run_that_had_much_of_the_cores_stands_back_for_new_ones(self):
        server = self.another("--at-once", 2, "--batch", 1)
        stood_back = lambda: "tessera_stood_back_seconds_total " in server.get("/metrics").body.decode()
        self.assertEqual(server.wait(server.submit({"classes": ["red circle"], "steps": 20}))["state"], "done")
        self.assertFalse(stood_back(), "for nobody")
        long = server.submit({"classes": ["red star"], "steps": 1000, "seed": 3})
        server.wait(long, "running")
        until = time.monotonic() + 60
        while (server.get(f"/jobs/{long}").json.get("progress") or {}).get("step", 0) < 50:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        self.assertEqual(server.wait(server.submit({"classes": ["red circle"], "steps": 20}))["state"], "done")
        self.assertTrue(stood_back())
        self.assertEqual(server.ask("DELETE", f"/jobs/{long}").json["state"], "cancelled")

    def test_models_that_fit_one_at_a_time_run_in_turn(self):
        models = ("shapes", "tasks-a", "tasks-b")
        asked = [("shapes", {"classes": ["blue star"], "steps": 5, "seed": 4}), ("tasks-a", {"prompt": "sort hello="}),
                 ("tasks-b", {"prompt": "sort hello="})]

        def made(server, job):
            shown = server.wait(job)
            self.assertEqual(shown["state"], "done", shown.get("error"))
            result = server.get(shown["results"][0]["url"]).body if shown["results"] else shown["text"]
            return result, shown["report"]["peak_bytes"]["total"]

        roomy = self.another(models=models)
        alone = [made(roomy, roomy.submit(request, model)) for model, request in asked]
        budget = max(peak for _, peak in alone) * 11 // 10
        server = self.another("--at-once", 3, "--batch", 1, "--memory-budget", f"{budget / 1e6:.2f}MB", models=models)
        for _ in range(2):  # one after the other, then as they come
            for i, (model, request) in enumerate(asked):
                self.assertEqual(made(server, server.submit(request, model))[0], alone[i][0])
        jobs = [(i, server.submit(asked[i][1], asked[i][0])) for _ in range(4) for i in range(3)]
        for i, job in jobs:
            result, peak = made(server, job)
            self.assertEqual(result, alone[i][0])
            self.assertLessEqual(peak, budget + 5000)
        self.assertEqual(server.get("/status").json["running"], [])

    def test_who_does_not_fit_beside_what_is_at_work_waits_for_its_end(self):
        roomy = self.another(models=("shapes", "tasks-a"))
        blocker = {"classes": ["red star"], "steps": 1000, "count": 2}
        peak = roomy.wait(roomy.submit({**blocker, "steps": 2}))["report"]["peak_bytes"]["total"]
        server = self.another("--at-once", 2, "--memory-budget", f"{peak * 1.1 / 1e6:.2f}MB", models=("shapes", "tasks-a"))
        job = server.submit(blocker)
        server.wait(job, "running")
        texts = [server.submit({"prompt": f"sort {word}="}, "tasks-a") for word in ("hello", "world", "words", "pears")]

        def waits(text):
            until = time.monotonic() + 60
            while "waits_for" not in (shown := server.get(f"/jobs/{text}").json) and time.monotonic() < until:
                time.sleep(0.005)
            self.assertEqual((shown["state"], shown["started"], shown["waits_for"]["type"]), ("queued", None, "memory"), shown)
            self.assertRegex(shown["waits_for"]["message"], r"the server's --memory-budget allows .* \('shapes' .*\): wait for its end$")
            return shown["position"]

        self.assertEqual(waits(texts[0]), 0)
        self.assertEqual([server.get(f"/jobs/{text}").json["position"] for text in texts], [0, 1, 2, 3])
        status = server.get("/status").json
        self.assertEqual((status["running"], status["queue"]["waiting"]), ([job], 4))
        said = server.get("/metrics").body.decode()
        self.assertIn("\ntessera_jobs_waiting 4\n", said)
        self.assertIn("\ntessera_jobs_running 1\n", said)
        cancelled = server.ask("DELETE", f"/jobs/{texts[0]}").json
        self.assertEqual((cancelled["state"], cancelled["started"]), ("cancelled", None), "who waits can be cancelled")
        self.assertEqual(waits(texts[1]), 0, "the turn is the next one's")
        self.assertEqual(server.ask("DELETE", f"/jobs/{texts[2]}").json["state"], "cancelled", "one of those that wait together, or behind")
        self.assertEqual([server.get(f"/jobs/{text}").json["position"] for text in (texts[1], texts[3])], [0, 1])
        shown = server.get(f"/jobs/{job}").json
        self.assertEqual(shown["state"], "running", shown.get("error"))
        server.ask("DELETE", f"/jobs/{job}")
        done = [server.wait(text) for text in (texts[1], texts[3])]
        self.assertEqual([one["text"] for one in done], ["dlorw", "aeprs"])
        self.assertTrue(all(one["started"] >= server.get(f"/jobs/{job}").json["ended"] for one in done))
        states = [data for _, name, data in server.events(texts[1]) if name == "state"]
        self.assertEqual((states[-1]["state"], states[-2]["state"], states[-2]["waits_for"]["type"]), ("running", "queued", "memory"))

    def test_events_tell_all_and_are_resumed(self):
        job = self.server.submit({"classes": ["blue star"], "steps": 6}, previews=2)
        events = self.server.events(job)
        names = [name for _, name, _ in events]
        self.assertEqual([number for number, _, _ in events], list(range(1, len(events) + 1)))
        self.assertEqual((names[0], names[-1], names.count("preview")), ("state", "done", 2))
        self.assertEqual(events[0][2]["state"], "queued")
        steps = [data["step"] for _, name, data in events if name == "progress"]
        self.assertEqual((steps, len(set(steps))), (sorted(steps), len(steps)))
        preview = next(data for _, name, data in events if name == "preview")
        self.assertTrue(preview["image"].startswith("data:image/png;base64,iVBOR"))
        self.assertEqual(self.server.events(job, after=events[4][0]), events[5:])
        self.assertEqual(events[-1][2]["results"], self.server.get(f"/jobs/{job}").json["results"])

    def test_a_text_is_told_as_it_comes(self):
        job = self.server.submit({"prompt": "rev abcdef=", "block": 4}, "tasks-a")
        events = self.server.events(job)
        said = "".join(data["delta"] for _, name, data in events if name == "text")
        self.assertEqual((said, events[-1][2]["text"]), ("fedcba", "fedcba"))
        blocks = [data for _, name, data in events if name == "block"]
        self.assertIn(None, blocks[0]["texts"] + [None])
        self.assertEqual(blocks[0]["sequence"], 0)
        self.assertGreater(blocks[0]["experts"], 0)

    def test_what_the_ranks_do_is_told(self):
        server = self.another("--plan", "expert=2,schedule=interweaved")
        events = server.events(server.submit({"classes": ["blue star", "red ring"], "steps": 6}))
        told = [data for _, name, data in events if name == "ranks"]
        self.assertEqual([one["step"] for one in told], list(range(1, 7)))
        for one in told:
            self.assertEqual([rank["rank"] for rank in one["ranks"]], [0, 1])
        for before, after in zip(told, told[1:]):
            for old, new in zip(before["ranks"], after["ranks"]):
                for name in ("compute_seconds", "wait_seconds", "sent_bytes"):
                    self.assertGreaterEqual(new[name], old[name])
        report = events[-1][2]["report"]
        for rank, did in zip(told[-1]["ranks"], report["per_rank"]):
            self.assertEqual(rank["sent_bytes"], did["sent_bytes"])
            self.assertGreater(rank["compute_seconds"], 0)
            self.assertGreater(rank["ages"]["experts"][1], 0, "interweaved results are a step old")
        self.assertEqual([name for _, name, _ in self.server.events(self.server.submit()) if name == "ranks"], [])

    def test_cancelled_within_a_step(self):
        job = self.server.submit({"classes": ["red star"], "steps": 1000, "count": 8})
        self.server.wait(job, "running")
        begun = time.monotonic()
        self.assertEqual(self.server.ask("DELETE", f"/jobs/{job}").json["state"], "cancelled")
        while self.server.get("/status").json["running"] and time.monotonic() - begun < 10:
            time.sleep(0.005)
        quick = self.server.wait(self.server.submit())
        self.assertEqual(quick["state"], "done")
        self.assertLess(time.monotonic() - begun, 20)  # the whole of it takes minutes
        self.assertEqual(self.server.events(job)[-1][1:], ("cancelled", {}))
        self.assertEqual(self.server.ask("DELETE", f"/jobs/{job}").json, {"removed": True})
        self.assertEqual(self.server.get(f"/jobs/{job}").status, 404)

    def test_a_removed_job_takes_its_files_along(self):
        job = self.server.submit()
        url = self.server.wait(job)["results"][0]["url"]
        self.server.ask("DELETE", f"/jobs/{job}")
        self.assertEqual(self.server.get(url).status, 404)
        self.assertFalse((self.server.folder / "store/results" / job).exists())

    def test_the_list_is_cut_into_pages(self):
        jobs = [self.server.submit() for _ in range(3)]
        for job in jobs:
            self.server.wait(job)
        first = self.server.get("/jobs?limit=2").json["jobs"]
        self.assertEqual([job["id"] for job in first], [jobs[2], jobs[1]])
        self.assertNotIn("report", first[0])
        second = self.server.get(f"/jobs?limit=1&before={jobs[1]}").json["jobs"]
        self.assertEqual([job["id"] for job in second], [jobs[0]])

    def test_clients_that_wait_together_all_hear_the_end(self):
        job = self.server.submit({"classes": ["red star"], "steps": 40})
        heard = []
        threads = [threading.Thread(target=lambda: heard.append(self.server.events(job)[-1][1])) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(heard, ["done"] * 8)

    def test_what_there_is(self):
        models = {model["name"]: model for model in self.server.get("/models").json["models"]}
        self.assertEqual({name: model["kind"] for name, model in models.items()}, {"shapes": "image", "tasks-a": "text"})
        self.assertEqual((models["shapes"]["classes"], len(models["shapes"]["class_names"])), (32, 32))
        self.assertEqual(self.server.get("/healthz").status, 200)
        self.assertEqual(self.server.get("/readyz").status, 200)
        self.assertEqual(self.server.get("/status").json["queue"]["limit"], 256)


class Ranks(ServerTest):
    arguments, models = ("--plan", "ulysses=2"), ("shapes",)

    def test_a_plan_of_two_ranks(self):
        self.assertEqual(self.server.get("/models").json["models"][0]["ranks"], 2)
        done = self.server.wait(self.server.submit())
        self.assertEqual((done["state"], done["report"]["ranks"]), ("done", 2))


if __name__ == "__main__":
    main()
