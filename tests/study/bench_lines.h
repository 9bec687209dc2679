#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/thread_pool.h"
#include "study/bench_products.h"
#include "study/bench_rows.h"
#include "tensor/scope.h"

namespace tessera::study {

/// Counts the lines of each kernel, from small problems with a single thread; each line has a time
/// and a share of a limit, set above any machine's speed.
inline std::map<std::string, int> lines_of(void (*bench)(const Bench&),
                                           tensor::Device device = tensor::Device::cpu) {
  std::map<std::string, int> lines;
  const std::function<void(const std::string&)> listener = [&](const std::string& line) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_GT(json.at("ms"), 0) << line;
    const bool moves = !json.contains("gflops");
    const double share = json.at(moves ? "share_of_bandwidth" : "share_of_peak");
    EXPECT_GE(share, 0) << line;
    EXPECT_LE(share, 1) << line;
    ++lines[json.at("bench")];
  };
  base::ThreadPool pool(1);
  tensor::Scope scope;
  scope.pool = &pool;
  const tensor::BindScope bind(scope);
  bench({listener, device, 1e15, 1e15, 1e15, 1.0 / 256});
  return lines;
}

}  // namespace tessera::study
