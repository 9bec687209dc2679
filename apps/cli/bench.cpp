#include <cstdio>

#include "arguments.h"
#include "commands.h"

namespace tessera::cli {

Command add_bench(CLI::App& program) {
  CLI::App* app = program.add_subcommand("bench", "Measure this machine and the kernels on it");
  auto what = std::make_shared<std::string>();
  auto threads = std::make_shared<int>(1);
  auto device = std::make_shared<std::string>("cpu");
  app->add_option("WHAT", *what, "kernels: their speed, beside this machine's limits")
      ->required()
      ->check(one_of({"kernels"}));
  app->add_option("--device", *device, "cpu (default) or cuda[:N]")->type_name("D");
  app->add_option("--threads", *threads, "Threads (default 1)")
      ->check(whole(1, 4096))
      ->type_name("N");
  return {app, [what, threads, device](const std::stop_token& stop) {
            const auto print = [&](const std::string& line) {
              std::printf("%s\n", line.c_str());
              flush_results();
              if (stop.stop_requested())
                throw Error(ErrorCode::cancelled, "stopped before the last kernel");
            };
            bench_kernels(*threads, print, parse_device(*device));
          }};
}

}  // namespace tessera::cli
