#include "bench.h"

#include <cstdio>

#include "arguments.h"
#include "tessera/prediction.h"

namespace tessera::cli {
namespace {

Command add_bench_kernels(CLI::App& bench) {
  CLI::App* app = bench.add_subcommand("kernels", "Speed of kernels, beside this machine's limits");
  auto threads = std::make_shared<int>(1);
  auto device = std::make_shared<std::string>("cpu");
  app->add_option("--device", *device, "Device: cpu (default) or cuda[:N]")->type_name("D");
  app->add_option("--threads", *threads, "Threads (default 1)")
      ->check(whole(1, 4096))
      ->type_name("N");
  return {app, [threads, device](const std::stop_token& stop) {
            refuse_processes("bench kernels");
            const auto print = [&](const std::string& line) {
              std::printf("%s\n", line.c_str());
              flush_results();
              if (stop.stop_requested())
                throw Error(ErrorCode::cancelled, "stopped before the last kernel");
            };
            bench_kernels(*threads, print, parse_device(*device));
          }};
}

Command add_bench_calibrate(CLI::App& bench) {
  CLI::App* app =
      bench.add_subcommand("calibrate", "Measure this machine for 'plan --hardware FILE'");
  auto ranks = std::make_shared<int>(1), threads = std::make_shared<int>(0);
  app->add_option("--ranks", *ranks, "Ranks that share the cores (default 1)")
      ->check(whole(1, 512))
      ->type_name("N");
  app->add_option("--threads", *threads, "Threads of all ranks (default: all cores)")
      ->check(whole(1, 4096))
      ->type_name("N");
  return {app, [ranks, threads](const std::stop_token& stop) {
            refuse_processes("bench calibrate");
            std::printf("%s\n", calibrate(*ranks, *threads, stop).c_str());
          }};
}

}  // namespace

Command add_bench(CLI::App& program) {
  CLI::App* app = program.add_subcommand("bench", "Measure kernels, plans, or this machine");
  const std::vector<Command> commands{add_bench_kernels(*app), add_bench_parallel(*app),
                                      add_bench_calibrate(*app)};
  return {app,
          [commands](const std::stop_token& stop) {
            for (const Command& command : commands)
              if (command.app->parsed()) return command.run(stop);
            throw Error(ErrorCode::usage,
                        "bench: name what to measure: kernels, parallel or calibrate (see "
                        "'tessera bench --help')");
          },
          true};
}

}  // namespace tessera::cli
