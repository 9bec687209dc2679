import unittest

from scratch_tree import help_of, run_on

TOOL = "check_mirror.py"


class CheckMirror(unittest.TestCase):
    def expect(self, files, *words):
        status, said = run_on(TOOL, dict.fromkeys(files, ""))
        self.assertEqual(status, 1 if words else 0, said)
        for word in words:
            self.assertIn(word, said)

    def test_help(self):
        self.assertEqual(help_of(TOOL)[0], 0)

    def test_accepts_a_mirror(self):
        self.expect(["src/nn/a.cpp", "tests/nn/a_test.cpp", "src/models/vae/b.cpp",
                     "tests/models/vae/b_test.cpp", "src/nn/only_header.h"])

    def test_what_goes_through_a_model_is_in_whole(self):
        self.expect(["src/diffusion/a.cpp", "tests/whole/diffusion/a_test.cpp"])
        self.expect(["src/diffusion/a.cpp", "tests/whole/a_test.cpp"], "write tests/diffusion/a_test.cpp")

    def test_missing(self):
        self.expect(["src/nn/a.cpp"], "src/nn/a.cpp: write tests/nn/a_test.cpp")
        self.expect(["src/models/vae/b.cpp", "tests/models/b_test.cpp"], "tests/models/vae/b_test.cpp")

    def test_kernels_share_a_test_over_instruction_sets(self):
        self.expect(["src/kernels/amx/m.cpp", "src/kernels/reference/m.cpp", "tests/kernels/m_test.cpp"])
        self.expect(["src/kernels/amx/m.cpp"], "write tests/kernels/m_test.cpp")


if __name__ == "__main__":
    unittest.main()
