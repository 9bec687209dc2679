#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/block_stack.h"
#include "nn/low_rank_weights.h"
#include "runtime/network_cache.h"

namespace tessera::runtime {

/// The adapters of a request, read and checked. Weights loaded with adapters belong to the request
/// alone, except the model's packed weights, which are shared.
struct Adapters {
  std::map<std::string, std::shared_ptr<const nn::WeightChanges>> parts;  ///< by their names
  bool merge = false;              ///< merge all adapters into the weights
  int64_t bytes = 0;               ///< bytes of all matrices
  std::vector<std::string> notes;  ///< a note for each adapter, naming the changed weights
  mutable NetworkCache<nn::Denoiser> transformers{};

  bool change(const std::string& part) const { return parts.contains(part); }
  /// Weights of a part with the adapters to be merged, for products on a device.
  std::shared_ptr<const nn::Weights> merged(const std::string& part,
                                            std::shared_ptr<const nn::Weights> weights,
                                            tensor::Device device) const;
  /// Low-rank pairs that products add; null: none.
  std::shared_ptr<const nn::LowRanks> pairs(const std::string& part, tensor::Device device) const;
  /// Merged weights together with the pairs.
  std::shared_ptr<const nn::Weights> over(const std::string& part,
                                          std::shared_ptr<const nn::Weights> weights,
                                          tensor::Device device) const;
};

}  // namespace tessera::runtime
