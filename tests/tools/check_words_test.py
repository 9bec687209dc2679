import unittest

from scratch_tree import help_of, run_on

TOOL = "check_words.py"


class CheckWords(unittest.TestCase):
    def expect(self, files, *words):
        status, said = run_on(TOOL, files)
        self.assertEqual(status, 1 if words else 0, said)
        for word in words:
            self.assertIn(word, said)

    def test_help(self):
        self.assertEqual(help_of(TOOL)[0], 0)

    def test_accepts_clean_files(self):
        self.expect({"src/nn/a.cpp": '// printf( is not for us\nvoid a() { snprintf(b, 1, "abort()"); }\n',
                     "apps/cli/main.cpp": "int main() { std::exit(1); }\n"})

    def test_library_never_prints(self):
        for line in ("printf(x);", "std::fprintf(stderr, x);", "std::cout << 1;", "fmt::print(x);"):
            self.expect({"src/nn/a.cpp": line}, "the library prints")

    def test_library_never_ends_the_process(self):
        for line in ("exit(1);", "std::abort();", "_exit(2);", "std::terminate();"):
            self.expect({"src/nn/a.cpp": line}, "ends the process")
        self.expect({"src/nn/a.cpp": "assert(x);"}, "aborts")
        self.expect({"src/nn/a.inc": "assert(x);"}, "aborts")

    def test_own_names_are_free(self):
        self.expect({"src/nn/a.cpp": "communicator.abort(e); on_exit(x); static_assert(true);\n"
                                     "void abort(const Error&);"})

    def test_loose_ends(self):
        self.expect({"docs/a.md": "TODO: write\n"}, "docs/a.md:1: TODO")
        self.expect({"tests/nn/a_test.cpp": "GTEST_SKIP();"}, "gives no reason")
        self.expect({"tests/nn/a_test.cpp": "TEST(A, DISABLED_B) {}"}, "does not run")
        self.expect({"tests/nn/a_test.cpp": 'GTEST_SKIP() << "no AVX-512 here";\n'
                                            'GTEST_SKIP() <<\n    "a long reason";'})

    def test_paths_of_one_machine(self):
        self.expect({"tools/a.py": "open('/home/me/x')"}, "a path of one machine")

    def test_words_of_the_glossary(self):
        self.expect({"src/nn/a.cpp": "WebPPicture p; Image image; int sequence; // a row of a matrix\n"})
        self.expect({"src/nn/a.h": "struct Picture {};"}, "say image")
        self.expect({"tests/nn/a_test.cpp": "KvSlots slots; TwoLinears two;"}, "say KvCache", "say Mlp")

    def test_file_names(self):
        self.expect({"src/nn/utils.h": ""}, "named for what is in it")


if __name__ == "__main__":
    unittest.main()
