#!/usr/bin/env python3
"""Answers of a model that denoises canvases: followed, in batches, one that is joined, and on ranks."""

import json
import subprocess
import time

import canvas_model
from serving import PROGRAM, Server, ServerTest, main

CHAT = [{"role": "user", "content": "Why is the sky blue?"}]


class Canvas(ServerTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = canvas_model.written_for(cls)
        cls.server = Server(models=("shapes", str(cls.folder)))
        cls.addClassCleanup(cls.server.close)

    def asked(self, server=None, **request):
        """A job that is done."""
        server = server or self.server
        shown = server.wait(server.submit(request, "canvas"))
        self.assertEqual(shown["state"], "done", shown)
        return shown

    def of_the_command_line(self, *arguments):
        done = subprocess.run([PROGRAM, "complete", self.folder, "--json", *map(str, arguments)], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    def test_an_answer_is_that_of_the_command_line(self):
        job = self.asked(self.another(models=(str(self.folder),)), prompt="The sky", seed=5)
        alone = self.of_the_command_line("--prompt", "The sky", "--seed", 5)
        self.assertEqual(job["report"]["completions"], alone["completions"])
        self.assertEqual((alone["max_tokens"], alone["limit"]), (40, "generation_config.json"))
        self.assertEqual(len(alone["completions"][0]["ids"]), 40, "two canvases and a half")
        other = self.asked(prompt="The sky", seed=6, max_tokens=20)
        self.assertNotEqual(other["text"][:10], job["text"][:10])
        self.assertEqual((other["report"]["max_tokens"], other["report"]["limit"]), (20, "request"))

    def test_text_comes_canvas_by_canvas_with_drafts_between(self):
        job = self.server.submit({"prompt": "The sky"}, "canvas")
        told = self.server.events(job)
        blocks = [data for _, name, data in told if name == "block"]
        done = self.server.wait(job)
        begins = sorted({block["begin"] for block in blocks if block["texts"]})
        self.assertEqual([begin - begins[0] for begin in begins], [0, 16, 32])
        drafts = [block["texts"] for block in blocks if block["begin"] == begins[0]]
        self.assertTrue(any(None in draft for draft in drafts), "what is not accepted is noise, and not shown")
        self.assertNotIn(None, drafts[-1], "a finished canvas")
        order = [name for _, name, _ in told if name in ("text", "block")]
        self.assertIn("block", order[order.index("text") + 1:], "text comes while later canvases are denoised")
        self.assertEqual("".join(data["delta"] for _, name, data in told if name == "text"), done["text"])

    def test_the_thinking_switch(self):
        ids = lambda **more: self.asked(messages=CHAT, max_tokens=1, **more)["report"]["completions"][0]["prompt_ids"]
        self.assertEqual(ids(), ids(enable_thinking=False))
        thinks = ids(enable_thinking=True)
        self.assertIn(98, thinks)
        self.assertEqual(thinks[-len(ids()) + 1:], ids()[1:], "a turn before the others")
        for model, request in (("canvas", {"prompt": "x", "enable_thinking": True}), ("canvas", {"messages": CHAT, "enable_thinking": 1})):
            answer = self.server.post("/jobs", {"model": model, "request": request})
            self.assertEqual((answer.status, answer.json["error"]["param"]), (400, "enable_thinking"), answer.body)

    def test_several_answers_have_a_seed_each(self):
        three = self.asked(prompt="The sky", n=3, seed=5)
        self.assertEqual(three["text"], [self.asked(prompt="The sky", seed=seed)["text"] for seed in (5, 6, 7)])

    def test_answers_of_other_seeds_are_not_mixed(self):
        server = self.another("--at-once", 1, models=("shapes", str(self.folder)))
        blocker = server.submit({"classes": ["red star"], "steps": 300})
        server.wait(blocker, "running")
        requests = [{"prompt": f"The {word}", "seed": seed, "n": n} for word in ("sky", "sun") for seed, n in ((1, 1), (2, 1), (2, 2))]
        jobs = [server.submit(request, "canvas") for request in requests]
        server.ask("DELETE", f"/jobs/{blocker}")
        for request, job in zip(requests, jobs):
            self.assertEqual(server.wait(job)["text"], self.asked(**request)["text"], request)

    def joined(self, server):
        """More prompts, of several canvases each, than a batch holds."""
        blocker = server.submit({"classes": ["red star"], "steps": 300})
        server.wait(blocker, "running")
        requests = [{"prompt": "The sky " * (1 + i % 5), "max_tokens": 33 + i % 3, "seed": 4} for i in range(9)]
        requests += [{"prompt": f"a {i}", "max_tokens": 40, "seed": 4} for i in range(12)]
        jobs = [server.submit(request, "canvas") for request in requests]
        server.ask("DELETE", f"/jobs/{jobs[-3]}")
        server.ask("DELETE", f"/jobs/{blocker}")
        shown = [server.wait(job) for job in jobs]
        for i, (request, job) in enumerate(zip(requests, shown)):
            if i == len(jobs) - 3:
                self.assertEqual(job["state"], "cancelled")
                continue
            alone = self.asked(**request)
            for usage in (job["usage"], alone["usage"]):
                usage.pop("prompt_tokens_details")
            self.assertEqual((job["text"], job["usage"]), (alone["text"], alone["usage"]), request)
        return server.get("/metrics").body.decode()

    def test_answers_join_a_batch_at_work(self):
        said = self.joined(self.another("--batch", 3, "--at-once", 1, models=("shapes", str(self.folder))))
        joined = [line for line in said.splitlines() if line.startswith('tessera_jobs_joined_total{model="canvas"}')]
        self.assertGreater(float(joined[0].split()[-1]), 5)

    def test_answers_join_a_batch_on_several_ranks(self):
        self.joined(self.another("--batch", 3, "--at-once", 1, "--plan", "expert=2", models=("shapes", str(self.folder))))

    def test_a_second_turn_computes_only_what_is_new(self):
        keeping, forgetting = (self.another("--prefix-cache", size, models=(str(self.folder),)) for size in ("1MiB", "0"))
        talk = list(CHAT)
        for turn in range(3):
            kept, alone = (self.asked(server, messages=talk, seed=3, max_tokens=20) for server in (keeping, forgetting))
            self.assertEqual(kept["text"], alone["text"])
            self.assertEqual(kept["usage"]["prompt_tokens"], alone["usage"]["prompt_tokens"])
            computed = lambda job: sum(one["to"] - one["from"] for one in job["report"]["completions"][0]["passes"])
            cached = lambda job: job["usage"]["prompt_tokens_details"]["cached_tokens"]
            self.assertEqual(computed(kept) + cached(kept), computed(alone))
            self.assertEqual(cached(alone), 0)
            if turn > 0:
                self.assertGreater(cached(kept), before / 2, "the prompt of the turn before, up to where the template goes on in another way")
            before = kept["usage"]["prompt_tokens"]
            talk += [{"role": "assistant", "content": kept["text"]}, {"role": "user", "content": "Why?"}]

    def test_a_cancelled_turn_leaves_what_is_computed(self):
        server = self.another(models=(str(self.folder),))
        prompt = "The sky is blue because " * 8
        job = server.submit({"prompt": prompt, "max_tokens": 2000}, "canvas")
        server.wait(job, "running")
        while (shown := server.get(f"/jobs/{job}").json)["state"] == "running" and shown["progress"]["step"] < 3:
            time.sleep(0.01)
        server.ask("DELETE", f"/jobs/{job}")
        server.wait(job)
        kept, alone = (self.asked(one, prompt=prompt, max_tokens=16, seed=1) for one in (server, self.another("--prefix-cache", 0, models=(str(self.folder),))))
        self.assertEqual(kept["text"], alone["text"])
        self.assertEqual(kept["usage"]["prompt_tokens_details"]["cached_tokens"], kept["usage"]["prompt_tokens"])

    def test_an_image_in_a_chat_is_refused_by_name(self):
        for content in ([{"type": "image_url", "image_url": {"url": "x"}}], "look: <|image|>"):
            messages = [{"role": "user", "content": content}]
            answer = self.server.post("/v1/chat/completions", {"model": "canvas", "messages": messages})
            self.assertEqual(answer.status, 400)
            self.assertIn("image", answer.message)
        done = subprocess.run([PROGRAM, "complete", self.folder, "--chat", "-"], capture_output=True, text=True,
                              input=json.dumps([{"role": "user", "content": [{"type": "image", "image": "x"}]}]))
        self.assertEqual(done.returncode, 2)
        self.assertIn("message 0 holds a part of type 'image'", done.stderr)


if __name__ == "__main__":
    main()
