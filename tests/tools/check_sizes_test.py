import unittest

from scratch_tree import help_of, run_on

TOOL = "check_sizes.py"
BODY = "  f();\n"


class CheckSizes(unittest.TestCase):
    def expect(self, files, *words):
        status, said = run_on(TOOL, files)
        self.assertEqual(status, 1 if words else 0, said)
        for word in words:
            self.assertIn(word, said)

    def test_help(self):
        self.assertEqual(help_of(TOOL)[0], 0)

    def test_accepts_small_files(self):
        self.expect({"src/nn/a.cpp": "void a() {\n" + BODY * 58 + "}\n"})

    def test_long_function(self):
        self.expect({"src/nn/a.cpp": "namespace t {\nvoid long_one(int) {\n" + BODY * 60 + "}\n}\n"},
                    "src/nn/a.cpp:2: function long_one has 62 lines, the limit is 60")

    def test_long_method_and_nested_blocks(self):
        inner = "  if (x) {\n  f({1});\n  }\n" * 25
        self.expect({"src/nn/a.h": "struct A {\n  int b{3};\n  void m() const {\n" + inner + "  }\n};\n"},
                    "function m has 77 lines")

    def test_constructor_with_braced_members(self):
        self.expect({"src/nn/a.cpp": "A::A(int x) : b_{x}, c_(x) {\n" + BODY * 60 + "}\n"},
                    "function A::A has 62 lines")

    def test_braces_in_strings_and_comments(self):
        self.expect({"src/nn/a.cpp": 'void a() {\n  f("}{{{"); // {{{\n' + "  g('{');\n}\n"
                                     "void b() {\n" + BODY * 58 + "}\n"})

    def test_kernels_may_be_longer(self):
        self.expect({"src/kernels/a.cpp": "void a() {\n" + BODY * 190 + "}\n"})
        self.expect({"src/kernels/a.cpp": "void a() {\n" + BODY * 200 + "}\n"}, "the limit is 200")

    def test_long_file(self):
        self.expect({"src/nn/a.h": "int x;\n" * 601}, "601 lines", "the limit is 600")

    def test_one_file_in_ten_may_pass_350(self):
        small = {f"src/nn/a{i}.h": "int x;\n" for i in range(9)}
        self.expect({**small, "src/nn/b.h": "int x;\n" * 400})
        self.expect({**small, "src/nn/b.h": "int x;\n" * 400, "src/nn/c.h": "int x;\n" * 400},
                    "one file in ten")

    def test_python(self):
        self.expect({"tools/a.py": "def long_one():\n" + "    f()\n" * 60}, "long_one has 61 lines")

    def test_heavy_data(self):
        self.expect({"tests/data/a.bin": "x" * 21000001}, "tests/data: 21.0 MB")


if __name__ == "__main__":
    unittest.main()
