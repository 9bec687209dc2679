import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(os.environ.get("TESSERA_SOURCE", ".")) / "tools/check_ptxas.py"
KERNEL = """ptxas info    : Compiling entry function '_Z4wideP' for 'sm_90a'
ptxas info    : Function properties for _Z4wideP
    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers, 4096 bytes smem
"""


def run(report):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "report"
        path.write_text(report)
        done = subprocess.run([sys.executable, TOOL, "--report", path], capture_output=True,
                              text=True, check=False)
        return done.returncode, done.stdout


class CheckPtxas(unittest.TestCase):
    def test_accepts_kernels_in_registers(self):
        status, said = run(KERNEL.format(stack=0, stores=0, loads=0, registers=168) * 2)
        self.assertEqual(status, 0, said)
        self.assertIn("168 registers", said)
        self.assertIn("2 kernels, 0 with", said)

    def test_finds_spills_and_stack_frames(self):
        for stack, stores, loads in (8, 0, 0), (0, 4, 0), (0, 0, 4):
            status, said = run(KERNEL.format(stack=stack, stores=stores, loads=loads, registers=255))
            self.assertEqual(status, 1, said)
            self.assertIn("1 kernels, 1 with", said)

    def test_finds_products_that_wait_for_each_other(self):
        status, said = run(KERNEL.format(stack=0, stores=0, loads=0, registers=168) +
                           "ptxas info    : (C7512) Potential Performance Loss: wgmma.mma_async instructions are "
                           "serialized due to insufficient register resources for the function '_Z4wideP'\n")
        self.assertEqual(status, 1, said)
        self.assertIn("multiplies one by one: insufficient register", said)

    def test_an_empty_report_is_no_success(self):
        self.assertEqual(run("nothing")[0], 1)


if __name__ == "__main__":
    unittest.main()
