#include <cstdio>

#include "commands.h"

namespace tessera::cli {

Command add_bench(CLI::App& program) {
  CLI::App* app = program.add_subcommand("bench", "Measure this machine and the kernels on it");
  auto what = std::make_shared<std::string>();
  auto threads = std::make_shared<int>(1);
  app->add_option("WHAT", *what, "kernels")->required()->check(CLI::IsMember({"kernels"}));
  app->add_option("--threads", *threads, "Threads (default 1)")
      ->check(CLI::Range(1, 4096))->type_name("N");
  return {app, [what, threads](std::stop_token) {
            bench_kernels(*threads, [](const std::string& line) {
              std::printf("%s\n", line.c_str());
              std::fflush(stdout);
            });
          }};
}

}  // namespace tessera::cli
