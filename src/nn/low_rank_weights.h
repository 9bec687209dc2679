#pragma once

#include <map>
#include <mutex>

#include "nn/weight_change.h"
#include "nn/weights_over.h"

namespace tessera::nn {

/// The pairs of a model part, packed at first use for products on a device. Thread-safe.
class LowRanks {
 public:
  LowRanks(std::shared_ptr<const WeightChanges> changes, tensor::Device device)
      : changes_(std::move(changes)), device_(device) {}

  /// The weight of `name`, or of gate `name` and up `second`, with its pairs cut alike. Without
  /// pairs the weight itself.
  ops::Weight beside(const ops::Weight& weight, const std::string& name, const std::string& second,
                     ops::DType compute, const Cut& cut) const;

 private:
  const std::vector<WeightChange>* pairs_of(const std::string& name) const;
  std::shared_ptr<const ops::LowRank> packed(const std::string& name, const std::string& second,
                                             ops::DType compute, const Cut& cut,
                                             tensor::Device device) const;

  std::shared_ptr<const WeightChanges> changes_;
  tensor::Device device_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<const ops::LowRank>> packed_;
};

/// Weights whose products add pairs. Matrices are shared with the base, quantised ones too.
class LowRankWeights final : public WeightsOver {
 public:
  LowRankWeights(std::shared_ptr<const Weights> base, std::shared_ptr<const LowRanks> pairs)
      : WeightsOver(std::move(base)), pairs_(std::move(pairs)) {}

  ops::Weight matrix(const std::string& name, int64_t n, int64_t k, ops::DType compute,
                     const Cut& cut = {}) const override {
    return pairs_->beside(base_->matrix(name, n, k, compute, cut), name, "", compute, cut);
  }
  ops::Weight paired(const std::string& gate, const std::string& up, int64_t n, int64_t k,
                     ops::DType compute, const Cut& cut = {}) const override {
    return pairs_->beside(base_->paired(gate, up, n, k, compute, cut), gate, up, compute, cut);
  }
  std::shared_ptr<const Weights> at_use() const override {
    auto base = base_->at_use();
    return base ? std::make_shared<LowRankWeights>(std::move(base), pairs_) : nullptr;
  }

 private:
  std::shared_ptr<const LowRanks> pairs_;
};

/// Weights with pairs; null: as they are.
inline std::shared_ptr<const Weights> with_pairs(std::shared_ptr<const Weights> weights,
                                                 const std::shared_ptr<const LowRanks>& pairs) {
  if (!pairs) return weights;
  return std::make_shared<LowRankWeights>(std::move(weights), pairs);
}

}  // namespace tessera::nn
