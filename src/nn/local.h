#pragma once

#include "nn/seams.h"

namespace tessera::nn {

/// Attention where all tokens of all rows are on this rank.
class LocalAttention : public Attention {
 public:
  explicit LocalAttention(const Geometry& geometry) : geometry_(geometry) {}
  Joint attend(int site, const TokenView& view, const Heads& prefix, const Heads& body) override;

 private:
  const Geometry& geometry_;
};

/// What the experts of one layer were asked for, in one call.
struct ExpertUse {
  int site = 0;
  int64_t tokens = 0;
  int64_t distinct = 0;  ///< experts with at least one token
};

/// Experts that are all on this rank.
class LocalExperts : public Experts {
 public:
  Tensor apply(int site, const TokenView& view, const Tensor& tokens, const Router& router,
               const ExpertBank& bank) override;
  /// Every call since the start, in order.
  const std::vector<ExpertUse>& uses() const;
  /// The calls that were recorded (tensor::Recording) have been made once more.
  void replayed();

 private:
  void settle() const;
  void note(const ExpertUse& use, const Tensor& ids);
  mutable std::vector<ExpertUse> uses_;
  mutable std::vector<std::pair<size_t, Tensor>> uncounted_;  // ids, by use
  std::vector<std::pair<ExpertUse, Tensor>> recorded_;
};

/// The shared expert of a layer: down(silu(gate x) * up x).
Tensor shared_expert(const Tensor& tokens, const ExpertWeightSet& bank);

}  // namespace tessera::nn
