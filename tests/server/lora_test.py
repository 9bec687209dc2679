#!/usr/bin/env python3
"""Adapters of requests: from the server's folder, beside weights that all requests share."""

import pathlib
import shutil
import tempfile

from serving import SOURCE, ServerTest, main

ADAPTER = SOURCE / "tests/data/features/lora/adapters/scenes.safetensors"
ASK = {"prompt": "a red circle left of a blue square", "steps": 3, "seed": 5}


class Lora(ServerTest):
    models = ("scenes",)

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        folder = pathlib.Path(holder.name)
        shutil.copy(ADAPTER, folder / "ink.safetensors")
        (folder / "broken.safetensors").write_bytes(ADAPTER.read_bytes()[:5000])
        cls.arguments = ("--lora-dir", folder)
        super().setUpClass()

    def done(self, loras):
        request = ASK if loras is None else {**ASK, "loras": loras}
        return self.server.submit(request, "scenes")

    def pixels(self, job):
        self.assertEqual(self.server.wait(job)["state"], "done")
        return self.server.get(f"/jobs/{job}/results/0").body

    def test_requests_have_their_own_adapters(self):
        all_of = ([], [{"name": "ink"}], [{"name": "ink", "strength": 0.4}], [{"name": "ink.safetensors", "strength": 0}])
        jobs = [self.done(loras) for loras in all_of for _ in range(2)]
        pixels = [self.pixels(job) for job in jobs]
        for i in range(0, len(pixels), 2):
            self.assertEqual(pixels[i], pixels[i + 1])
        self.assertEqual(len({pixels[0], pixels[2], pixels[4]}), 3)
        shown = self.server.get(f"/jobs/{jobs[2]}").json
        self.assertEqual(shown["request"]["loras"], [{"name": "ink"}])

    def test_refusals(self):
        for loras, param in (([{"name": "../ink"}], "loras[0].name"), ([{"name": "absent"}], "loras[0].name"),
                             ([{"name": "ink"}, {"name": "ink", "strength": "much"}], "loras[1].strength"),
                             ("ink", "loras"), ([{"path": "ink"}], "loras[0].name")):
            answer = self.server.post("/jobs", {"model": "scenes", "request": {**ASK, "loras": loras}})
            self.assertEqual(answer.status, 400, loras)
            self.assertEqual(answer.json["error"]["param"], param)
        answer = self.server.post("/jobs", {"model": "scenes", "request": {**ASK, "loras": [{"name": "broken"}]}})
        self.assertEqual(answer.status, 500)  # the operator's file is at fault
        self.assertTrue(answer.json["error"]["message"].startswith("broken.safetensors: "), answer.body)
        plain = self.another(models=("scenes",))
        answer = plain.post("/jobs", {"model": "scenes", "request": {**ASK, "loras": [{"name": "ink"}]}})
        self.assertEqual((answer.status, answer.json["error"]["param"]), (400, "loras"))


if __name__ == "__main__":
    main()
