#!/usr/bin/env python3
"""Text from a language model: golden ids, batches, JSON, and one line for what does not fit."""

import json
import unittest

from program import DATA, ProgramTest

MOE, TWO = DATA / "moe/llada_moe", DATA / "moe/llada2"


def golden(case, name):
    return next(r for r in json.loads((case / "case.json").read_text())["runs"] if r["name"] == name)


def ids(values):
    return ",".join(map(str, values))


class Complete(ProgramTest):
    def complete(self, case, *arguments):
        done = self.run_here("complete", case / "model", "--dtype", "f32", *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_golden_ids(self):
        run = golden(MOE, "dual_credit")
        out = self.complete(MOE, "--prompt-ids", ids(run["prompt"]), "--max-tokens", 32, "--block", 8,
                            "--decode", "credit:0.9", "--cache", "dual", "--stop-at-eos", "none")
        self.assertEqual(out.strip(), ids(run["tokens"][len(run["prompt"]):]))
        run = golden(TWO, "half_steps_cached")
        out = self.complete(TWO, "--prompt-ids", ids(run["prompt"]), "--max-tokens", 32, "--block", 8,
                            "--threshold", 0.9, "--steps", 4, "--stop-at-eos", "none")
        self.assertEqual(out.strip(), ids(run["tokens"]))

    def test_json_of_a_batch(self):
        out = json.loads(self.complete(TWO, "--prompt-ids", "1,2,3", "--prompt-ids", "4", "--json",
                                       "--max-tokens", 9, "--select", "des-vote:0.5"))
        self.assertEqual(len(out["completions"]), 2)
        self.assertEqual(out["select"], "des-vote:0.5")
        for one in out["completions"]:
            self.assertEqual(one["forwards"], len(one["passes"]))

    def test_bad_input(self):
        model = MOE / "model"
        self.refused(2, "complete", model, says="no prompt")
        self.refused(2, "complete", model, "--prompt-ids", "1,x", says="numbers joined by commas")
        self.refused(2, "complete", model, "--prompt-ids", "1", "--select", "des-best:2",
                     says=["des-best", "known are"])
        self.refused(2, "complete", model, "--prompt-ids", "1", "--decode", "guess", says="threshold:T")
        self.refused(2, "complete", model, "--prompt-ids", "1", "--cache", "block", says="bidirectional")
        self.refused(2, "complete", model, "--chat", "none.json", says="none.json")
        self.refused(3, "complete", model, "--prompt", "hi", says="tokenizer.json")
        self.refused(2, "complete", "shapes", "--prompt", "hi", says="no language model")
        self.refused(3, "generate", model, "--class", "1")

    def test_evaluation_of_tasks(self):
        self.refused(2, "eval", says="MODEL is required")
        self.refused(2, "eval", "tasks", says=["MODEL is required", "eval tasks --help"])
        self.refused(2, "eval", "tasks", MOE / "model", "--slect", "topk:1",
                     says=["did you mean '--select'", "eval tasks --help"])
        self.refused(2, "eval", "tasks", MOE / "model", says="--data")
        self.refused(3, "eval", "tasks", "shapes", says="no language model")
        self.refused(2, "eval", "experts", MOE / "model", says="--data")
        self.refused(4, "eval", "experts", MOE / "model", "--data", "x.jsonl", "--plan", "expert=2")

    def test_ranks(self):
        words = ("--prompt-ids", "5,17,30", "--prompt-ids", "8", "--max-tokens", 9, "--json",
                 "--select", "des-vote:0.5")
        for case, plans in ((MOE, ("expert=2", "expert=3,placement=strided", "tensor=4")),
                            (TWO, ("expert=4", "tensor=2"))):
            one = json.loads(self.complete(case, *words))
            for plan in plans:
                many = json.loads(self.complete(case, *words, "--plan", plan))
                self.assertEqual(many["completions"], one["completions"], plan)
                self.assertEqual(many["experts_read"], one["experts_read"], plan)
                self.assertGreater(many["bytes_sent"], 0)

    def test_plans_that_cannot_run(self):
        words = ("complete", TWO / "model", "--prompt-ids", "1", "--plan")
        self.refused(4, *words, "expert=17", says="use at most 16")
        self.refused(4, *words, "tensor=3", says=["4 heads", "valid are: 1, 2"])
        self.refused(4, *words, "data=2", says="prompts are not spread")
        self.refused(4, *words, "expert=2,schedule=displaced", says="nothing is stale")
        self.refused(4, *words, "distrifusion=2", says="for pictures")
        self.refused(4, *words, "expert=2,data=2,tensor=2", says="give one of them")
        self.refused(4, *words, "expert=2", "--ranks", 3, says="needs 2 ranks")
        self.refused(4, *words, "ulysses=2", says="leave out")
        self.refused(4, "generate", "shapes", "--class", "red circle", "--plan", "tensor=2",
                     says="language models only")

    def test_visualise_shows_blocks_on_standard_error(self):
        done = self.run_here("complete", MOE / "model", "--prompt-ids", "5", "--max-tokens", "8",
                             "--block", "4", "--visualise")
        self.assertEqual(done.returncode, 0)
        self.assertIn("[0] ", done.stderr)


if __name__ == "__main__":
    unittest.main()
