#!/usr/bin/env python3
"""One MoE layer by `tessera forward`: golden runs from the command line, and every way to ask for what is not there."""

import array
import json
import math
import struct
import unittest

from program import DATA, ProgramTest, read_safetensors, write_safetensors

CASE = DATA / "moe/moe_layer_e8"
FORM = "gate=skew,top_k=2,experts=swiglu,renormalise=0"


def floats(tensor):
    return array.array("f", tensor[2])


class MoeLayer(ProgramTest):
    def setUp(self):
        super().setUp()
        self.io, _ = read_safetensors(CASE / "io.safetensors")
        self.give(self.io["x.7"])

    def give(self, tensor, name="x"):
        write_safetensors(self.folder / "in", {name: tensor})

    def command(self, *more, model=CASE / "model", moe=FORM):
        return ("forward", model, "--component", "moe_layer", *(("--moe", moe) if moe else ()),
                "--inputs", "in", "--outputs", "out", *more)

    def made(self, *more, **how):
        done = self.run_here(*self.command(*more, **how))
        self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", "out\n"))
        return read_safetensors(self.folder / "out")[0]

    def changed(self, change):
        """A model folder whose tensors are those of `change`."""
        folder = self.copy_model(source=CASE / "model")
        tensors, _ = read_safetensors(folder / "model.safetensors")
        change(tensors)
        write_safetensors(folder / "model.safetensors", tensors)
        return folder


class Runs(MoeLayer):
    def test_golden_runs(self):
        runs = [r for r in json.loads((CASE / "case.json").read_text())["runs"]
                if r["k"] == 2 and r["gate"] == "gate.skew.weight"]
        self.assertGreaterEqual(len(runs), 20)
        for one in runs:
            form = (f"gate={one['gate']},top_k=2,experts={one['experts']},"
                    f"renormalise={int(one['renormalise'])}")
            if one["capacity"] is not None:
                form += f",capacity={one['capacity']}"
            self.give(self.io[one["x"]])
            made = self.made(moe=form)
            self.assertEqual(sorted(made), ["counts", "kept_counts", "out"])
            want, got = floats(self.io[one["name"] + ".y"]), floats(made["out"])
            self.assertEqual(made["out"][1], self.io[one["name"] + ".y"][1])
            worst = max((abs(a - b) for a, b in zip(got, want)), default=0)
            self.assertLessEqual(worst, 1e-4 * max(map(abs, want), default=0), one["name"])
            route = f"route.{one['x'][2:]}.skew.k2.counts"
            self.assertEqual(made["counts"], self.io[route], one["name"])
            if one["capacity"] is not None:
                self.assertEqual(list(array.array("i", made["kept_counts"][2])), one["kept_counts"])

    def test_ranks(self):
        self.give(self.io["x.129"])
        for form in (FORM, "gate=uniform,top_k=8,experts=relu,capacity=3"):
            for dtype in ("f32", "bf16", "int8"):
                alone = self.made("--dtype", dtype, moe=form)
                for plan in (("--plan", "expert=4", "--ranks", "4"), ("--plan", "expert=8"),
                             ("--plan", "expert=3,placement=0+1+2+2+1+0+0+1"),
                             ("--plan", "expert=4,moe=fused", "--ranks", "4"),
                             ("--plan", "expert=3,moe=fused,placement=0+1+2+2+1+0+0+1")):
                    self.assertEqual(self.made("--dtype", dtype, *plan, moe=form), alone)


class Refusals(MoeLayer):
    def test_forms(self):
        for moe, says in (("gate=skew,top_k=2", ["lacks 'experts'", "gate=NAME,top_k=K"]),
                          ("top_k=2,experts=relu", "lacks 'gate'"),
                          ("gate=skew,experts=relu", "lacks 'top_k'"),
                          ("gate=,top_k=2,experts=relu", "name a router"),
                          ("gate=skew,top_k,experts=relu", "'top_k' has no value"),
                          ("gate=skew,gate=skew,top_k=2,experts=relu", "'gate' stands twice"),
                          ("gate=skew,top_k=0,experts=relu", "top_k='0': expected a whole number from 1"),
                          ("gate=skew,top_k=two,experts=relu", "top_k='two'"),
                          ("gate=skew,top_k=2,experts=tanh",
                           ["--moe experts 'tanh'", "swiglu, relu, gelu, gelu_tanh, silu"]),
                          (FORM + ",capacity=-1", "capacity='-1'"),
                          (FORM + ",capacity=1.5", "capacity='1.5'"),
                          ("gate=skew,top_k=2,experts=relu,renormalise=2", "renormalise='2'"),
                          (FORM + ",moe=fused", "no entry 'moe'"),
                          (FORM.replace("2", "9"), "top_k=9: the layer has 8 experts; choose 1 to 8"),
                          ("gate=ske,top_k=2,experts=relu",
                           ["--moe gate='ske'", "'gate.ske.weight'", "empty, skew, uniform"])):
            self.refused(2, *self.command(moe=moe), says=says)
        self.refused(2, *self.command(moe=None), says=["a moe_layer runs as --moe says", "gate=NAME"])
        self.refused(2, "forward", CASE / "model", "--component", "model", "--moe", FORM, "--inputs", "in",
                     "--outputs", "out", says="--moe is for --component moe_layer")

    def test_components(self):
        self.refused(2, *self.command(model=DATA / "moe/dit_moe_flash/model"), says="has no moe_layer")
        for component in ("transformer", "vae.decode", "text_encoder"):
            self.refused(2, "forward", CASE / "model", "--component", component, "--inputs", "in",
                         "--outputs", "out", says="has no")
        self.refused(2, *self.command("--trace"), says=["no blocks", "--trace"])
        for command in (("generate", CASE / "model", "--class", "1"),
                        ("complete", CASE / "model", "--prompt", "x")):
            self.refused(2, *command, says="a forward with --component moe_layer runs it")

    def test_inputs(self):
        rows = struct.pack("<48f", *range(48))
        for tensor, says in ((("F32", [2, 3, 8], rows), "'x' is [2, 3, 8]"),
                             (("F32", [2, 23], rows[:184]), "expected floats [tokens, 24]"),
                             (("F32", [48], rows), "'x' is [48]"),
                             (("I32", [2, 24], rows), "of i32"),
                             (("F32", [2, 24], rows[:-4] + struct.pack("<f", math.nan)), "NaN or infinity"),
                             (("F32", [2, 24], rows[:-4] + struct.pack("<f", math.inf)), "NaN or infinity")):
            self.give(tensor)
            self.refused(2, *self.command(), says=says)
        self.give(self.io["x.7"], "hidden_states")
        self.refused(2, *self.command(), says=["'hidden_states'", "takes x [tokens, 24] alone"])
        write_safetensors(self.folder / "in", {})
        self.refused(2, *self.command(), says="holds no tensor 'x'")

    def test_weights(self):
        def lacks(tensors):
            del tensors["swiglu.up_proj"]
        self.refused(3, *self.command(model=self.changed(lacks)), says="swiglu.up_proj")

    def test_weights_of_another_shape(self):
        def cut(tensors):
            dtype, shape, data = tensors["gate.skew.weight"]
            tensors["gate.skew.weight"] = (dtype, [shape[0] // 2, shape[1]], data[:len(data) // 2])
        self.refused(3, *self.command(model=self.changed(cut)), says=["gate.skew.weight", "[4, 24]", "[8, 24]"])

    def test_weights_of_another_type(self):
        def whole(tensors):
            tensors["swiglu.down_proj"] = ("I32", *tensors["swiglu.down_proj"][1:])
        self.refused(3, *self.command(model=self.changed(whole)), says=["swiglu.down_proj", "floats"])

    def test_weights_that_are_no_numbers(self):
        def spoil(tensors):
            for name in ("swiglu.down_proj", "gate.uniform.weight"):
                dtype, shape, data = tensors[name]
                tensors[name] = (dtype, shape, struct.pack("<f", math.nan) * (len(data) // 4))
        folder = self.changed(spoil)
        self.refused(3, *self.command(model=folder), says="the layer")
        for plan in ((), ("--plan", "expert=2")):
            self.refused(3, *self.command(*plan, model=folder, moe=FORM.replace("skew", "uniform")),
                         says="the router of block 0")

    def test_configurations(self):
        folder = self.copy_model(source=CASE / "model")
        for key in ("hidden_size", "intermediate_size", "num_experts"):
            before = json.loads((folder / "config.json").read_text())[key]
            for value in (None, 0, "many"):
                self.change_json(folder / "config.json", **{key: value})
                self.refused(3, *self.command(model=folder), says=key)
            self.change_json(folder / "config.json", **{key: before})

    def test_plans(self):
        for plan, says in (("expert=9", "the model has 8 experts"),
                           ("tensor=2", "takes expert=N, moe= and placement= alone"),
                           ("data=2", "takes expert=N, moe= and placement= alone"),
                           ("expert=2,schedule=displaced", "takes expert=N, moe= and placement= alone"),
                           ("expert=2,warmup=2", "takes expert=N, moe= and placement= alone"),
                           ("expert=2,moe=slow", "expected one of bulk, fused"),
                           ("moe=fused", "add it, or leave out moe="),
                           ("expert=2,placement=0+1", "places 2 experts")):
            self.refused(4, *self.command("--plan", plan), says=says)
        self.refused(4, *self.command("--plan", "expert=2", "--ranks", "3"), says="needs 2 ranks")


if __name__ == "__main__":
    unittest.main()
