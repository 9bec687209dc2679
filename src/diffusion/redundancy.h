#pragma once

#include <array>
#include <map>
#include <vector>

#include "nn/moe/log.h"
#include "tessera/report.h"

namespace tessera::diffusion {

/// Observes the experts of a rank and compares each step with the previous step: how much a layer
/// repeats earlier results (DICE, ICCV 2025, section 2).
class RedundancyProbe {
 public:
  void see(const nn::MoeWork& work);

  const std::vector<Report::Similarity>& steps() const { return steps_; }
  /// The ranges of scores with rows, layer by layer.
  std::vector<Report::StaleError> stale_errors() const;

 private:
  struct Before {
    ops::Routing routing;
    nn::Tensor rows, sum;
  };
  struct Bin {
    int64_t rows = 0;
    double error = 0;
  };
  static constexpr int kBins = 10;
  void compare(const nn::MoeCall& call, const Before& old, const Before& now);

  std::map<int, Before> before_;
  std::map<int, std::array<Bin, kBins>> bins_;
  std::vector<Report::Similarity> steps_;
};

}  // namespace tessera::diffusion
