#pragma once

#include <array>
#include <map>
#include <vector>

#include "nn/seams.h"
#include "ops/routing.h"
#include "tessera/report.h"

namespace tessera::pipeline {

/// Experts of one rank that compare each step with the one before: how much a layer repeats itself
/// (DICE, ICCV 2025, section 2). The results are those of nn::LocalExperts, bit by bit.
class RedundancyProbe : public nn::Experts {
 public:
  nn::Tensor apply(int site, const nn::TokenView& view, const nn::Tensor& tokens,
                   const nn::Router& router, const nn::ExpertBank& bank) override;
  void finish() override { before_.clear(); }

  const std::vector<Report::Similarity>& steps() const { return steps_; }
  /// Ranges of scores that hold rows, layer by layer.
  std::vector<Report::StaleError> stale_rows() const;

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
  void compare(int site, const Before& old, const Before& now);

  std::map<int, Before> before_;
  std::map<int, std::array<Bin, kBins>> bins_;
  std::vector<Report::Similarity> steps_;
};

}  // namespace tessera::pipeline
