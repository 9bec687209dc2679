import unittest

from scratch_tree import help_of, run_on

TOOL = "check_layers.py"


class CheckLayers(unittest.TestCase):
    def expect(self, files, *words):
        status, said = run_on(TOOL, files)
        self.assertEqual(status, 1 if words else 0, said)
        for word in words:
            self.assertIn(word, said)

    def test_help(self):
        self.assertEqual(help_of(TOOL)[0], 0)

    def test_accepts_what_stands_on_the_line(self):
        self.expect({
            "include/tessera/error.h": "#pragma once\n",
            "src/base/fail.h": '#include "tessera/error.h"\n#include <fmt/format.h>\n',
            "src/nn/local.cpp": '#include "nn/local.h"\n#include <vector>\n',
            "src/nn/local.h": '#include "base/fail.h"\n',
            "apps/cli/main.cpp": '#include "commands.h"\n#include "tessera/error.h"\n',
            "apps/cli/commands.h": "#include <CLI/CLI.hpp>\n",
        })

    def test_models_cannot_see_parallel(self):
        self.expect({
            "src/parallel/denoise.h": "",
            "src/models/x.cpp": '// #include "sample/y.h"\n#include "parallel/denoise.h"\n',
        }, "src/models/x.cpp:2", "not on the line of models")

    def test_names_keep_the_rule(self):
        self.expect({"src/load/x.cpp": "// kernels::Isa\nconst char* s = \"comm::\";\n"
                                       "kernels::Isa isa;\n"},
                    "src/load/x.cpp:3", "kernels:: is not on the line of load")
        self.expect({"src/load/x.cpp": "ops::Weight w;\nbase::load::X y;\n"})
        for line in ("using namespace tessera::comm;", "using namespace comm;", "namespace c = ::tessera::comm;",
                     "namespace tessera::comm {", "auto x = ::tessera::comm::all();"):
            self.expect({"src/models/x.cpp": line + "\n"}, "src/models/x.cpp:1", "comm:: is not on the line of models")
        self.expect({"src/models/x.cpp": "namespace tessera::models {\nusing namespace nn;\n"})
        self.expect({"apps/cli/x.cpp": "tessera::comm::Communicator* c;\n"}, "comm:: is not on the line of apps")

    def test_programs_see_the_public_face_only(self):
        self.expect({"src/base/fail.h": "", "apps/cli/main.cpp": '#include "base/fail.h"\n'},
                    "programs see include/tessera only")

    def test_public_face_stands_alone(self):
        self.expect({"src/base/fail.h": "", "include/tessera/error.h": '#include "base/fail.h"\n'},
                    "the public face")

    def test_parts_have_their_layer(self):
        self.expect({"src/nn/x.cpp": "#include <png.h>\n"}, "<png.h> belongs to media")
        self.expect({"src/ops/x.cpp": "#include <mpi.h>\n"}, "belongs to comm")
        self.expect({"src/nn/x.cpp": "#include <turbojpeg.h>\n"}, "<turbojpeg.h> belongs to media")
        self.expect({"src/nn/x.inc": "#include <cuda_runtime.h>\n"}, "<cuda_runtime.h> belongs to kernels")

    def test_unknown_file_and_layer(self):
        self.expect({"src/nn/x.cpp": '#include "nn/gone.h"\n'}, "nn/gone.h")
        self.expect({"src/odd/x.cpp": '#include "base/a.h"\n', "src/base/a.h": ""},
                    'layer "odd" is not in the table')

    def test_climbing_paths(self):
        self.expect({"src/nn/x.cpp": '#include "../nn/y.h"\n', "src/nn/y.h": ""},
                    "include from the source root")

    def test_cycles(self):
        self.expect({"src/nn/a.h": '#include "nn/b.h"\n', "src/nn/b.h": '#include "nn/a.h"\n'},
                    "include cycle: src/nn/a.h -> src/nn/b.h -> src/nn/a.h")

    def test_knots_of_four_modules(self):
        ring = {}
        for name, following in ("ab", "bc", "cd", "da"):
            ring[f"src/nn/{name}.h"] = ""
            ring[f"src/nn/{name}.cpp"] = f'#include "nn/{name}.h"\n#include "nn/{following}.h"\n'
        self.expect(ring, "knot of 4 modules", "src/nn/a, src/nn/b, src/nn/c, src/nn/d")
        ring["src/nn/d.cpp"] = '#include "nn/d.h"\n'
        self.expect(ring)
        ring["src/nn/c.cpp"] = '#include "nn/a.h"\n'  # a header and a source of one name are one module
        self.expect(ring)


if __name__ == "__main__":
    unittest.main()
