import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(os.environ.get("TESSERA_SOURCE", ".")) / "tools/check_sass.py"
NVCC = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
NAME = {"attention": "_ZN7tessera7kernels4cuda12_GLOBAL__N_121attention_sm90_kernelILi128EEEvv",
        "matmul": "_ZN7tessera7kernels4cuda12_GLOBAL__N_118matmul_sm90_kernelILi128ELb0EEEvv"}
NAME["copy"] = "_ZN7tessera7kernels4cuda12_GLOBAL__N_111copy_kernelI5uint4EEvv"
NAME["fused"] = ("_ZN7tessera5fused4cuda12_GLOBAL__N_116moe_layer_kernelINS1_13GroupProductsIaLb1EEENS1_5SoundEEEvv")
NAME["fetched"] = NAME["fused"].replace("13GroupProductsIaLb1EEE", "15FetchedProductsINS_6tensor8BFloat16ELb1EEE")
SCORES, VALUES = "WARPGROUP.DEPBAR.LE gsb0, 0x1", "WARPGROUP.DEPBAR.LE gsb0, 0x0"
EXPONENTIAL = "MUFU.EX2 R7, R2"


def listing(kernel, code):
    lines = [f'\t.section\t.text.{NAME[kernel]},"ax",@progbits']
    lines += [f"        /*{16 * i:04x}*/                   {what} ;" for i, what in enumerate(code)]
    return "\n".join(lines) + "\n"


def run(*arguments):
    done = subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True,
                          check=False)
    return done.returncode, done.stdout + done.stderr


def check(text):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "listing"
        path.write_text(text)
        return run("--listing", path)


class CheckSass(unittest.TestCase):
    def test_exponentials_run_beside_the_product_with_values(self):
        status, said = check(listing("attention", [VALUES, SCORES] + 66 * [EXPONENTIAL] + [VALUES]))
        self.assertEqual(status, 0, said)
        self.assertIn("0 faults", said)

    def test_finds_a_wait_that_was_moved_above_them(self):
        for before in (0, 61):
            status, said = check(listing("attention", [SCORES] + before * [EXPONENTIAL] + [VALUES] +
                                         (66 - before) * [EXPONENTIAL]))
            self.assertEqual(status, 1, said)
            self.assertIn(f"attention_sm90_kernel<128>: {before} exponentials", said)
        self.assertEqual(check(listing("attention", [VALUES]))[0], 1)

    def test_finds_code_that_grew(self):
        self.assertEqual(check(listing("matmul", 84 * 64 * ["NOP"]))[0], 0)
        status, said = check(listing("matmul", (84 * 64 + 1) * ["NOP"]))
        self.assertEqual(status, 1, said)
        self.assertIn("86032 bytes of code", said)

    def test_finds_divisions_and_elements_one_by_one(self):
        self.assertEqual(check(listing("copy", ["LDG.E.128 R4, desc[UR4][R2.64]"]))[0], 0)
        self.assertIn("no words", check(listing("copy", ["LDG.E R4, desc[UR4][R2.64]"]))[1])
        status, said = check(listing("copy", ["LDG.E.128 R4, [R2]",
                                              "CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_s64)"]))
        self.assertEqual(status, 1)
        self.assertIn("divides 64 bits", said)

    def test_finds_flags_of_the_fused_kernel_without_fences(self):
        fence, flag = "MEMBAR.ALL.SYS", "STG.E.64.STRONG.SYS desc[UR4][R2.64], R4"
        sound = ["HGMMA.64x128x16.F32.BF16 R24", "FENCE.VIEW.ASYNC.S", "LDG.E.64.STRONG.SYS R2, [R4]", "CCTL.IVALL"]
        status, said = check(listing("fused", sound + [fence, flag]))
        self.assertEqual(status, 0, said)
        for code, why in ((sound + [flag], "a flag without a fence"), (sound[1:] + [fence, flag], "no HGMMA"),
                          (sound[:3] + [fence, flag], "L1 cache"), (sound, "no flags")):
            status, said = check(listing("fused", code))
            self.assertEqual(status, 1)
            self.assertIn(why, said)

    def test_fetched_weights_come_by_the_copy_engine(self):
        code = ["HGMMA.64x128x16.F32.BF16 R24", "FENCE.VIEW.ASYNC.S", "UTMALDG.3D [UR8], [UR4]",
                "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR6]", "LDG.E.64.STRONG.SYS R2, [R4]", "CCTL.IVALL",
                "MEMBAR.ALL.SYS", "STG.E.64.STRONG.SYS desc[UR4][R2.64], R4"]
        status, said = check(listing("fetched", code))
        self.assertEqual(status, 0, said)
        for at, why in ((2, "no UTMALDG"), (3, "no SYNCS")):
            status, said = check(listing("fetched", code[:at] + code[at + 1:]))
            self.assertEqual(status, 1)
            self.assertIn(why, said)

    def test_an_empty_listing_is_no_success(self):
        self.assertEqual(check("nothing")[0], 1)

    @unittest.skipUnless(NVCC, "there is no nvcc here: this tree's kernels were not compiled")
    def test_programs_for_other_architectures_know_what_they_lack(self):
        status, said = run("--forms")  # .ci/run makes the other checks of this tree
        self.assertEqual(status, 0, said)


if __name__ == "__main__":
    unittest.main()
