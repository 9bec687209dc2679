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

    def test_library_names_no_option(self):
        for text in ('fail("use --top-k");', 'fail("start mpirun");', "fail(\"'tessera inspect' says\");"):
            self.expect({"src/nn/a.cpp": text}, "names an option or a command")
        self.expect({"src/nn/a.cpp": '// --top-k\nfind("models--a", "--", "a -- b");', "apps/cli/a.cpp": 'f("--top-k");'})

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
        self.expect({"src/nn/a.cpp": "void rehearse();"}, "say dry run")
        self.expect({"src/nn/a.cpp": "WebPPicture p; Image image; int sequence; // a row of a matrix\n"})
        self.expect({"src/nn/a.h": "struct Picture {};"}, "say image")
        self.expect({"tests/nn/a_test.cpp": "KvSlots slots; TwoLinears two;"}, "say KvCache", "say Mlp")

    def test_comments_begin_with_their_subject(self):
        for comment in ("/// Of a step.", "// What a rank has.", "int a;  ///< of a step", "/// Who has it."):
            self.expect({"src/parallel/a.h": comment + "\n"}, "begins with its subject")
            self.expect({"apps/cli/a.h": comment + "\n"}, "begins with its subject")
        self.expect({"src/parallel/a.h": "/// The part\n/// of a step.\nint a;  ///< a rank\n"})

    def test_comments_name_their_things(self):
        words = "/// A rank sends rows to the experts of a layer and waits for the results of all ranks of the group.\n"
        self.expect({"include/tessera/a.h": words})
        self.expect({"include/tessera/a.h": words + "/// It sends that which it has to those of it.\n"}, "5% at most")
        self.expect({"include/tessera/a.h": 'auto that = "it is what it is";\n' + words})

    def test_file_names(self):
        self.expect({"src/nn/utils.h": ""}, "named for what is in it")


if __name__ == "__main__":
    unittest.main()
