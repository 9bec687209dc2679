#pragma once

#include <array>
#include <map>
#include <vector>

#include "nn/moe/log.h"
#include "tessera/report.h"

namespace tessera::diffusion {

/// Observes the experts of one rank and compares each step with the one before: how much a layer
/// repeats itself (DICE, ICCV 2025, section 2).
class RedundancyProbe {
 public:
  void see(const nn::MoeWork& work);

  const std::vector<Report::Similarity>& steps() const { return steps_; }
  /// Ranges of scores that hold rows, layer by layer.
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
