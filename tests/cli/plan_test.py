#!/usr/bin/env python3
"""`tessera plan`: what plans would take on hardware that is described, and `--plan auto`."""

import json
import unittest

from program import DATA, SHAPES, SOURCE, ProgramTest

TINY = DATA / "moe/dit_moe_flash/model"
TASKS = SOURCE / "models/tasks-a"
RUN = ("plan", TINY, "--hardware", "A100", "--steps", "6")
PAIR = {"device": {"flops": {"bf16": 1e13}, "memory_bytes": 1e10, "memory_bandwidth": 1e11},
        "devices_per_host": 2, "link": {"bytes_per_second": 1e10, "latency": 1e-5}}


class Plan(ProgramTest):
    def object(self, *arguments):
        done = self.run_here(*arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_plans_are_ranked_and_refused_ones_have_reasons(self):
        found = self.object(*RUN, "--ranks", "4")
        seconds = [plan["seconds"] for plan in found["plans"]]
        self.assertEqual(seconds, sorted(seconds))
        self.assertIn("ring=4", {plan["plan"] for plan in found["plans"]})
        for plan in found["plans"]:
            for key in ("text_seconds", "denoising_seconds", "decoding_seconds", "waiting_share", "rank_bytes",
                        "sent_bytes", "link_bytes"):
                self.assertIn(key, plan)
        self.assertTrue(all(plan["reason"] for plan in found["refused"]))

    def test_stale_plans_are_asked_for(self):
        exact = {plan["plan"] for plan in self.object(*RUN, "--ranks", "2")["plans"]}
        stale = {plan["plan"] for plan in self.object(*RUN, "--ranks", "2", "--quality", "stale")["plans"]}
        self.assertNotIn("distrifusion=2", exact)
        self.assertIn("distrifusion=2", stale)

    def test_bytes_messages_and_memory_are_those_of_a_run(self):
        size = ("--steps", "6", "--count", "2", "--guidance", "1.5")
        for plan in ("ulysses=2", "ring=2", "pipefusion=2,patches=2", "tensor=2", "cfg=2,ulysses=2", "distrifusion=2"):
            found = self.object("plan", TINY, "--hardware", "A100", *size, "--plan", plan)["plans"][0]
            done = self.run_here("generate", TINY, "--class", "1", *size, "--plan", plan, "--latents-only", "--dtype", "bf16",
                                 "--save-latents", "x.safetensors", "--overwrite", "--report", "r.json", "--progress", "none")
            self.assertEqual(done.returncode, 0, done.stderr)
            report = json.loads((self.folder / "r.json").read_text())
            for key, predicted in (("bytes", "sent_bytes"), ("messages", "messages")):
                self.assertEqual(found[predicted], sum(row[key] for row in report["traffic"]), f"{plan} {key}")
            most = max(rank["peak_bytes"]["total"] for rank in report["per_rank"])
            self.assertLess(abs(found["rank_bytes"] / most - 1), 0.05, plan)

    def test_with_a_measured_routing_experts_send_what_a_run_sends(self):
        size = ("--steps", "6", "--count", "4", "--guidance", "1.5")
        run = ("generate", TINY, "--class", "1", *size, "--latents-only", "--dtype", "bf16", "--save-latents", "x.safetensors",
               "--overwrite", "--progress", "none")
        self.assertEqual(self.run_here(*run, "--trace", "one.safetensors").returncode, 0)
        (self.folder / "four.json").write_text(json.dumps(PAIR | {"devices_per_host": 4}))
        differ = 0
        for ranks in (2, 4):
            for more in ("", ",moe=fused", ",schedule=displaced", ",schedule=displaced,moe=fused", ",schedule=interweaved",
                         ",schedule=interweaved,sync=deep,conditional=low", ",schedule=staggered-batch"):
                plan = f"data={ranks},expert={ranks}{more}"
                exact = "displaced" not in more and "interweaved" not in more
                trace = "one.safetensors" if exact else "stale.safetensors"
                if not exact:
                    self.assertEqual(self.run_here(*run, "--plan", plan, "--trace", trace).returncode, 0)
                done = self.run_here(*run, "--plan", plan, "--report", "r.json")
                self.assertEqual(done.returncode, 0, done.stderr)
                traffic = {(row["operation"], row["layer"]): row for row in
                           json.loads((self.folder / "r.json").read_text())["traffic"]}
                predict = ("plan", TINY, "--hardware", "four.json", *size, "--plan", plan)
                found = self.object(*predict, "--routing", trace, "--recording", "p.json", "--overwrite")["plans"][0]
                for key, predicted in (("bytes", "sent_bytes"), ("messages", "messages")):
                    self.assertEqual(found[predicted], sum(row[key] for row in traffic.values()), f"{plan} {key}")
                for place, sums in self.sent(json.loads((self.folder / "p.json").read_text())).items():
                    self.assertEqual(sums, (traffic[place]["bytes"], traffic[place]["messages"]), f"{plan} {place}")
                differ += self.object(*predict)["plans"][0]["sent_bytes"] != found["sent_bytes"]
        self.assertGreater(differ, 0, "even routing would have done")
        self.refused(2, "plan", TINY, "--hardware", "A100", "--steps", "5", "--routing", "one.safetensors",
                     says="of 6 steps; the predicted run has 5")
        self.refused(2, "plan", "llada_moe", "--hardware", "A100", "--routing", "one.safetensors", says="--routing")
        self.refused(2, *predict, "--routing", trace, "--expert-load", "1,1,1,1", says="--expert-load")

    def sent(self, recording):
        """Returns {(operation, layer): (bytes, messages)} of all ranks."""
        found = {}
        for rank in recording["ranks"]:
            for kind, number, *_ in (event for part in (rank["prepare"], *rank["steps"], rank["gather"]) for event in part):
                if kind == "send":
                    message = recording["messages"][number]
                    bytes_, count = found.get((message["operation"], message["layer"]), (0, 0))
                    found[message["operation"], message["layer"]] = (bytes_ + message["bytes"], count + message["messages"])
        return found

    def test_a_file_describes_a_cluster(self):
        (self.folder / "pair.json").write_text(json.dumps(PAIR))
        fast = self.object("plan", TINY, "--hardware", "pair.json", "--plan", "ring=2")
        slow = self.object("plan", TINY, "--hardware", "pair.json", "--plan", "ring=2", "--what-if", "link=1Mbit")
        self.assertGreater(slow["plans"][0]["seconds"], fast["plans"][0]["seconds"])

    def test_files_are_written(self):
        done = self.run_here(*RUN, "--plan", "ring=2", "--timeline", "t.json", "--recording", "r.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(json.loads((self.folder / "t.json").read_text())["traceEvents"])
        self.assertEqual(len(json.loads((self.folder / "r.json").read_text())["ranks"]), 2)
        self.assertEqual(self.run_here(*RUN, "--plan", "ring=2", "--timeline", "t.svg").returncode, 0)
        self.assertTrue((self.folder / "t.svg").read_text().startswith("<svg"))

    def test_a_run_has_the_same_timeline(self):
        done = self.run_here(*RUN, "--plan", "ulysses=2", "--timeline", "predicted.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("measured.json", "measured.svg"):
            done = self.run_here("generate", TINY, "--class", "1", "--steps", "6", "--plan", "ulysses=2",
                                 "--latents-only", "--save-latents", "x.safetensors", "--overwrite",
                                 "--timeline", name, "--progress", "none")
            self.assertEqual(done.returncode, 0, done.stderr)
        lanes, spans = {}, {}
        for name in ("predicted", "measured"):
            events = json.loads((self.folder / f"{name}.json").read_text())["traceEvents"]
            lanes[name] = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
            spans[name] = [event for event in events if event["ph"] == "X"]
        ranks = {"rank 0", "messages of rank 0", "rank 1", "messages of rank 1"}
        self.assertEqual(lanes["measured"], ranks)
        self.assertTrue(any(lane.startswith("link ") for lane in lanes["predicted"] - ranks))
        steps = {name: {span["args"]["step"] for span in spans[name]} for name in spans}
        self.assertEqual(steps["measured"] - {-1}, set(range(6)))
        self.assertEqual(steps["measured"] - {-1}, steps["predicted"] - {-1, 6})
        operations = {name: {span["name"] for span in spans[name]} - {"go"} for name in spans}
        self.assertLessEqual(operations["predicted"], operations["measured"])
        self.assertTrue((self.folder / "measured.svg").read_text().startswith("<svg"))

    def test_a_report_says_how_tokens_load_the_experts(self):
        done = self.run_here("generate", SHAPES, "--class", "1", "--steps", "2", "--latents-only", "--save-latents",
                             "x.safetensors", "--report", "images.json", "--plan", "expert=2", "--count", "2",
                             "--progress", "none")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.run_here("complete", TASKS, "--prompt", "3+4=", "--max-tokens", "16", "--report", "text.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        for model, name in ((SHAPES, "images.json"), (TASKS, "text.json")):
            report = json.loads((self.folder / name).read_text())
            load = report["expert_load"]
            if name == "images.json":
                self.assertEqual(sum(load), sum(layer["assignments"] for layer in report["experts_touched"]))
            run = ("plan", model, "--hardware", "A100", "--ranks", "2", "--plan", "expert=2", "--steps", "2")
            even, measured, listed = (self.object(*run, *more)["plans"][0] for more in (
                (), ("--expert-load", name), ("--expert-load", ",".join(map(str, load)))))
            self.assertEqual(measured, listed, model)
            self.assertNotEqual(measured, even, model)
        self.refused(2, "plan", TINY, "--hardware", "A100", "--expert-load", "text.json",
                     says=["the model's layers have", "experts"])

    def test_a_completion_has_a_timeline(self):
        for name in ("t.json", "t.svg"):
            done = self.run_here("complete", TASKS, "--prompt", "3+4=", "--max-tokens", "16", "--plan", "expert=2",
                                 "--timeline", name, "--report", "r.json")
            self.assertEqual(done.returncode, 0, done.stderr)
        events = json.loads((self.folder / "t.json").read_text())["traceEvents"]
        spans = [event for event in events if event["ph"] == "X"]
        forwards = json.loads((self.folder / "r.json").read_text())["forwards"]
        self.assertEqual({span["args"]["step"] for span in spans}, set(range(forwards)))
        self.assertLessEqual({"compute", "wait", "dispatch", "combine"}, {span["name"] for span in spans})
        self.assertEqual({span["tid"] for span in spans}, {0, 1, 2, 3})
        self.assertTrue((self.folder / "t.svg").read_text().startswith("<svg"))
        self.refused(2, "complete", TASKS, "--prompt", "x", "--timeline", "/no/folder/t.json", says="/no/folder")

    def test_this_machine_is_measured(self):
        for command in (("bench", "calibrate"), ("plan", "--calibrate")):
            done = self.run_here(*command, "--ranks", "2", "--threads", "1")
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(done.stdout)
            self.assertEqual((found["devices_per_host"], found["hosts"]), (2, 1))

    def test_language_models(self):
        run = ("plan", "llada_moe", "--hardware", "A100", "--max-tokens", "64", "--steps", "8")
        found = self.object(*run, "--ranks", "2")["plans"]
        self.assertEqual({plan["plan"] for plan in found},
                         {"data=2,expert=2", "tensor=2"})
        self.assertTrue(all(plan["passes"] == 16 and plan["pass_seconds"] > 0 for plan in found))
        done = self.run_here(*run, "--sweep", "ranks=1..2", "--what-if", "link=25Gbit")
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()], ["ranks", "1", "2"])
        self.assertIn("a pass", done.stdout)
        self.refused(2, *run, "--prompt-tokens", "9000", says="9000 tokens")

    def test_sweeps_and_deadlines(self):
        done = self.run_here(*RUN, "--sweep", "ranks=1..4")
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()[1:]], ["1", "2", "4"])
        self.assertEqual(self.object(*RUN, "--deadline", "1000")["ranks"], 1)

    def test_scores(self):
        rows = {"rows": [{"id": "a", "metric": "fid", "value": 1}]}
        (self.folder / "p.json").write_text(json.dumps(rows))
        lines = [json.loads(line) for line in self.run_here("plan", "--score", "p.json", "--json").stdout.splitlines()]
        self.assertIn("skipped", lines[0])
        self.assertEqual(lines[-1]["rows_skipped"], 1)

    def test_bad_input_is_one_line(self):
        (self.folder / "bad.json").write_text(json.dumps(PAIR | {"link": {"bytes_per_second": -4}}))
        self.refused(2, "plan", TINY, "--ranks", "2", says="--hardware is missing")
        self.refused(2, "plan", TINY, "--hardware", "abacus", says="abacus")
        self.refused(2, "plan", TINY, "--hardware", "bad.json", says="'bytes_per_second' is '-4'")
        self.refused(2, *RUN, "--what-if", "link=soon", says="link=soon")
        self.refused(2, *RUN, "--expert-load", "1,2", says="2 numbers")
        self.refused(2, *RUN, "--expert-load", "nan,1,1,1", says="nan")
        (self.folder / "load.json").write_text('{"expert_load": [3, 1, -1, 1]}')
        self.refused(2, *RUN, "--expert-load", "load.json", says="of expert 2 it is '-1'")
        self.refused(3, *RUN, "--expert-load", "gone.json", says="gone.json")
        self.refused(2, *RUN, "--sweep", "ranks=4..1", says="ranks=4..1")
        self.refused(4, *RUN, "--plan", "tensor=5", says="tensor=5")
        self.refused(4, *RUN, "--ranks", "3", "--plan", "ulysses=2", says="needs 2 ranks, 3 were given")
        self.refused(4, *RUN, "--what-if", "memory=1KB", says=["no plan runs on 1 rank: ", "960 bytes"])
        self.refused(2, *RUN, "--ranks", "2", "--what-if", "link=-5Gbit", says="link=-5Gbit")
        self.refused(4, *RUN, "--deadline", "0.000001", "--most", "1", says="--deadline 1e-06: no plan of 1 rank is")

    def test_automatic_plans_run(self):
        done = self.run_here("generate", TINY, "--class", "1", "--steps", "2", "--ranks", "2", "--plan", "auto",
                             "--latents-only", "--save-latents", "x.safetensors", "--progress", "none")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("predicted to take", done.stderr)


if __name__ == "__main__":
    unittest.main()
