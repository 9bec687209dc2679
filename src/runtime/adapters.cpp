#include "runtime/adapters.h"

#include <utility>

#include "nn/merged_weights.h"

namespace tessera::runtime {

std::shared_ptr<const nn::Weights> Adapters::merged(const std::string& part,
                                                    std::shared_ptr<const nn::Weights> weights,
                                                    tensor::Device device) const {
  const auto it = parts.find(part);
  if (it == parts.end()) return weights;
  return std::make_shared<nn::MergedWeights>(std::move(weights), it->second, merge, device);
}

std::shared_ptr<const nn::LowRanks> Adapters::pairs(const std::string& part,
                                                    tensor::Device device) const {
  const auto it = parts.find(part);
  if (it == parts.end() || merge) return nullptr;
  return std::make_shared<nn::LowRanks>(it->second, device);
}

std::shared_ptr<const nn::Weights> Adapters::over(const std::string& part,
                                                  std::shared_ptr<const nn::Weights> weights,
                                                  tensor::Device device) const {
  return nn::with_pairs(merged(part, std::move(weights), device), pairs(part, device));
}

}  // namespace tessera::runtime
