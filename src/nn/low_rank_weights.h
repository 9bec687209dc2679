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

  /// A fetched weight with the pairs of its names, cut alike. Without pairs: unchanged. `base`: of
  /// the weight, for the scale of its inputs.
  ops::Weight beside(const ops::Weight& weight, const WeightRequest& request,
                     const Weights& base) const;

 private:
  const std::vector<WeightChange>* pairs_of(const std::string& name) const;
  std::shared_ptr<const ops::LowRank> packed(const WeightRequest& request, tensor::Device device,
                                             const Weights& base) const;

  std::shared_ptr<const WeightChanges> changes_;
  tensor::Device device_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<const ops::LowRank>> packed_;
};

/// Adds pairs to products. Matrices are shared with the base, also when quantised.
class LowRankWeights final : public WeightsOver {
 public:
  LowRankWeights(std::shared_ptr<const Weights> base, std::shared_ptr<const LowRanks> pairs)
      : WeightsOver(std::move(base)), pairs_(std::move(pairs)) {}

  FetchedWeight fetch(const WeightRequest& request) const override;

 private:
  std::shared_ptr<const LowRanks> pairs_;
};

/// Weights with pairs; null: unchanged.
inline std::shared_ptr<const Weights> with_pairs(std::shared_ptr<const Weights> weights,
                                                 const std::shared_ptr<const LowRanks>& pairs) {
  if (!pairs) return weights;
  return std::make_shared<LowRankWeights>(std::move(weights), pairs);
}

}  // namespace tessera::nn
