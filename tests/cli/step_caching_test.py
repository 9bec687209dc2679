#!/usr/bin/env python3
"""`generate --cache`: what the report says, what plans change, and what is refused."""

import json
import unittest

from program import SHAPES, ProgramTest

RUN = ("generate", SHAPES, "--class", "3", "--steps", "8", "--width", "32", "--height", "32", "--latents-only",
       "--save-latents", "l.safetensors", "--progress", "none")


class StepCaching(ProgramTest):
    def made(self, *arguments):
        done = self.run_here(*RUN, "--report", "r.json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return (self.folder / "l.safetensors").read_bytes(), json.loads((self.folder / "r.json").read_text())

    def test_the_report_says_which_blocks_ran(self):
        _, plain = self.made()
        self.assertNotIn("computed_blocks", plain)
        _, report = self.made("--cache", "dbcache,Fn=1,Bn=1,warmup=2,threshold=2,max_continuous=2")
        sizes = [len(blocks) for blocks in report["computed_blocks"]]
        depth = sizes[0]
        self.assertEqual(sizes, [depth, depth, 2, 2, depth, 2, 2, depth])
        self.assertEqual(report["computed_blocks"][2], [0, depth - 1])
        self.assertEqual(report["blocks_computed"], sum(sizes))
        self.assertEqual(report["blocks_reused"], 8 * depth - sum(sizes))
        self.assertEqual(len(report["cache_changes"]), 8)
        self.assertGreater(report["flops_saved"], 0)
        self.assertAlmostEqual(report["flops"] + report["flops_saved"], plain["flops"], delta=0.02 * plain["flops"])

    def test_the_same_bits_on_one_rank_and_more(self):
        for cache in ("fbcache,threshold=0.15", "teacache,coefficients=1+0,threshold=0.2", "drift,threshold=0.1",
                      "taylorseer,before=3,interval=3"):
            alone, one = self.made("--cache", cache)
            for plan in ("cfg=2,ulysses=2", "shard=2", "expert=2"):
                count = () if plan == "cfg=2,ulysses=2" else ("--count", "2")
                same = self.made("--cache", cache, *count) if count else (alone, one)
                ranks, report = self.made("--cache", cache, "--plan", plan, *count)
                self.assertEqual(report["computed_blocks"], same[1]["computed_blocks"], (cache, plan))
                self.assertEqual(ranks, same[0], (cache, plan))

    def test_branches_decide_apart_on_one_rank_and_more(self):
        cache = "fbcache,threshold=0.15,branches=apart"
        alone, one = self.made("--cache", cache)
        self.assertEqual(one["cache"], "fbcache,threshold=0.15,branches=apart")
        self.assertEqual(len(one["negative_computed_blocks"]), 8)
        self.assertEqual(len(one["negative_cache_changes"]), 8)
        ran = sum(len(blocks) for key in ("computed_blocks", "negative_computed_blocks") for blocks in one[key])
        self.assertEqual(one["blocks_computed"], ran)
        for plan in ("cfg=2", "cfg=2,ulysses=2"):
            ranks, report = self.made("--cache", cache, "--plan", plan)
            for key in ("cache", "computed_blocks", "negative_computed_blocks", "blocks_computed", "blocks_reused"):
                self.assertEqual(report[key], one[key], (key, plan))
            self.assertEqual(ranks, alone, plan)
        self.assertNotIn("negative_computed_blocks", self.made("--cache", "fbcache,threshold=0.15")[1])
        self.refused(4, *RUN, "--cache", cache, "--plan", "cfg=2,expert=2", says=["branches=apart", "expert=2"])
        self.refused(2, *RUN, "--cache", "fbcache,branches=both", says="together or apart")

    def test_no_threshold_is_no_cache(self):
        plain, _ = self.made()
        cached, report = self.made("--cache", "fbcache,threshold=0")
        self.assertEqual(cached, plain)
        self.assertEqual(report["blocks_reused"], 0)

    def test_what_does_not_fit_is_refused(self):
        for cache, says in (("fbcach", "known are fbcache"), ("fbcache,treshold=1", "known are threshold"),
                            ("fbcache,threshold=nan", "threshold='nan'"), ("fbcache,threshold=-1", "from 0"),
                            ("dbcache,Fn=4000", "blocks"), ("dbcache,mask=101", "3 digits for 8 steps"),
                            ("magcache", "ratios"), ("teacache", "coefficients")):
            self.refused(2, *RUN, "--cache", cache, says=says)
        for plan in ("pipefusion=2,patches=2", "distrifusion=2"):
            self.refused(4, *RUN, "--cache", "fbcache", "--plan", plan, says=["--cache fbcache", plan.split(",")[0]])


if __name__ == "__main__":
    unittest.main()
