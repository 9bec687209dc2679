#pragma once

#include "nn/weight_change.h"
#include "nn/weights_over.h"

namespace tessera::nn {

/// Weights with changes merged into copies of their matrices: `all` changes, or only those without
/// a place beside a product (LowRankWeights): dense changes, DoRA, and tensors from get().
class MergedWeights final : public WeightsOver {
 public:
  MergedWeights(std::shared_ptr<const Weights> base, std::shared_ptr<const WeightChanges> changes,
                bool all, tensor::Device device)
      : WeightsOver(std::move(base)), changes_(std::move(changes)), all_(all), device_(device) {}

  /// A changed stored tensor is f32. Throws Error(usage) for a changed tensor stored in integers.
  FetchedWeight fetch(const WeightRequest& request) const override;

 private:
  bool merges(const std::string& name) const;
  tensor::Tensor merged(const std::string& name, const tensor::Shape& shape) const;

  std::shared_ptr<const WeightChanges> changes_;
  bool all_;
  tensor::Device device_;
};

}  // namespace tessera::nn
