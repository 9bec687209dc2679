#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/block_stack.h"
#include "nn/low_rank_weights.h"
#include "runtime/loaded.h"

namespace tessera::runtime {

/// The adapters of a request, read and checked. What is loaded with them is the request's own, but
/// for the packed weights of the model, which it shares.
struct Adapters {
  std::map<std::string, std::shared_ptr<const nn::WeightChanges>> parts;  ///< by their names
  bool merge = false;              ///< all of them into the weights
  int64_t bytes = 0;               ///< of all matrices
  std::vector<std::string> notes;  ///< what each changes
  mutable Loaded<nn::Denoiser> transformers{};

  bool change(const std::string& part) const { return parts.contains(part); }
  /// Weights of a part with what has to be merged into them, for products on a device.
  std::shared_ptr<const nn::Weights> merged(const std::string& part,
                                            std::shared_ptr<const nn::Weights> weights,
                                            tensor::Device device) const;
  /// Changes that products add; null: none.
  std::shared_ptr<const nn::LowRanks> pairs(const std::string& part, tensor::Device device) const;
  /// Both.
  std::shared_ptr<const nn::Weights> over(const std::string& part,
                                          std::shared_ptr<const nn::Weights> weights,
                                          tensor::Device device) const;
};

}  // namespace tessera::runtime
