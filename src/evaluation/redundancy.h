#pragma once

#include <array>
#include <map>
#include <vector>

#include "nn/seams.h"
#include "ops/routing.h"

namespace tessera::evaluation {

/// How much a layer repeats itself from one step to the next (DICE, ICCV 2025, section 2).
struct StepSimilarity {
  int layer = 0, step = 0;  ///< the step, beside the one before
  double same_experts = 0;  ///< share of tokens whose set of experts is the same
  double outputs = 0;       ///< mean cosine of what the routed experts add to a token
};

/// What a row of the step before would be wrong by, for rows of a range of router scores.
struct StaleRows {
  int layer = 0;
  double lowest = 0, highest = 0;  ///< scores of the range; the scores of a token's slots sum to 1
  int64_t rows = 0;
  double error = 0;  ///< mean of |row - old row of the same expert| / |row|
};

/// Experts of one rank that compare each step with the one before; the results are those of
/// nn::LocalExperts, bit by bit.
class RedundancyProbe : public nn::Experts {
 public:
  nn::Tensor apply(int site, const nn::TokenView& view, const nn::Tensor& tokens,
                   const nn::Router& router, const nn::ExpertBank& bank) override;
  void finish() override { before_.clear(); }

  const std::vector<StepSimilarity>& steps() const { return steps_; }
  /// Ranges that hold rows, layer by layer.
  std::vector<StaleRows> stale_rows() const;

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
  std::vector<StepSimilarity> steps_;
};

}  // namespace tessera::evaluation
