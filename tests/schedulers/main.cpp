// Runs schedulers for tools/compare_schedulers.py. Each line of standard input is a run: {"class":
// ..., "config": {...}, "tokens": N, "steps": N} and each line of standard output the result:
// {"timesteps": [...], "initial_scale": X, "input_scales": [...], "x": [[...], ...]} or {"refused":
// "..."}.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "sample/scheduler_walk.h"

namespace tessera::sample {
namespace {

base::Json walked(const base::Json& run) {
  const auto sampler = make_sampler(run.at("class"), run.at("config"), "scheduler_config.json",
                                    {.steps = run.at("steps"),
                                     .tokens = run.at("tokens"),
                                     .even_sigmas = run.value("even_sigmas", false)});
  base::Json scales = base::Json::array();
  for (int i = 0; i < sampler->steps(); ++i) scales.push_back(sampler->input_scale(i));
  return {{"timesteps", times_of(*sampler)},
          {"initial_scale", sampler->initial_scale()},
          {"input_scales", scales},
          {"x", walk_latents(*sampler)}};
}

std::string answer(const std::string& line) {
  try {
    return walked(base::Json::parse(line)).dump();
  } catch (const Error& e) {
    return base::Json{{"refused", e.what()}}.dump();
  }
}

}  // namespace
}  // namespace tessera::sample

int main() {
  for (std::string line; std::getline(std::cin, line);)
    fmt::print("{}\n", tessera::sample::answer(line));
}
