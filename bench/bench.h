#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/probe.h"
#include "tensor/scope.h"
#include "tensor/tensor.h"

namespace tessera::bench {

/// Threads of a benchmark, bound to the creating thread: as many as the first argument says, or
/// one.
class Threads {
 public:
  /// `memory`: tracker of allocations, or null.
  Threads(int argc, char** argv, std::shared_ptr<tensor::MemoryTracker> memory = nullptr)
      : pool_(argc > 1 ? std::atoi(argv[1]) : 1), bind_(scope_of(pool_, std::move(memory))) {}

 private:
  static tensor::Scope scope_of(base::ThreadPool& pool,
                                std::shared_ptr<tensor::MemoryTracker> memory) {
    tensor::Scope scope;
    scope.pool = &pool;
    scope.memory = std::move(memory);
    return scope;
  }
  base::ThreadPool pool_;
  tensor::BindScope bind_;
};

/// The middle value, or the next above; `values` must not be empty.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Normal values with a prime period: cheap, and all rows differ.
inline tensor::Tensor random_tensor(const tensor::Shape& shape, tensor::DType dtype, uint32_t seed,
                                    float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> block(65521);
  for (float& v : block) v = normal(generator);
  tensor::Tensor t = tensor::Tensor::empty(shape, dtype);
  tensor::with_float_type(dtype, [&](auto type) {
    using T = decltype(type);
    for (int64_t i = 0; i < t.elements(); ++i)
      t.data<T>()[i] = tensor::from_float<T>(block[static_cast<size_t>(i) % block.size()]);
  });
  return t;
}

/// Prints a JSON line for `flops` and `bytes` done in `seconds`, with the share of limits probed at
/// the same time.
inline void print(const std::string& bench, const std::string& shape, double flops, double bytes,
                  double seconds, double peak_flops, double peak_bytes) {
  std::string line = fmt::format(
      "{{\"bench\":\"{}\",\"shape\":\"{}\",\"threads\":{},\"ms\":{:.4f},\"gflops\":{:.1f},"
      "\"share_of_peak\":{:.3f}",
      bench, shape, tensor::thread_count(), seconds * 1e3, flops / seconds / 1e9,
      flops / seconds / peak_flops);
  if (peak_bytes > 0)
    line += fmt::format(",\"gbytes_per_s\":{:.2f},\"share_of_bandwidth\":{:.3f}",
                        bytes / seconds / 1e9, bytes / seconds / peak_bytes);
  std::puts((line + "}").c_str());
  std::fflush(stdout);
}

/// Times `run`, probing the unit's limit between runs, and prints the best time with the meter's
/// counts of a run.
template <class Run>
void print_best(const std::string& bench, const std::string& shape, int times, const Run& run) {
  tensor::Scope counting = tensor::current_scope();
  counting.meter = std::make_shared<tensor::Meter>();
  {
    const tensor::BindScope count(counting);
    run();
  }
  double seconds = 1e30, peak = 0;
  for (int i = 0; i < times; ++i) {
    peak = std::max(peak, kernels::probe_units().product(true));
    seconds = std::min(seconds, kernels::best_seconds(run, 1));
  }
  print(bench, shape, counting.meter->total().flops, 0, seconds, peak, 0);
}

}  // namespace tessera::bench
