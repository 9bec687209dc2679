#include "load/held_weights.h"

#include <fmt/format.h>

#include "nn/weight_key.h"

namespace tessera::load {

nn::FetchedWeight HeldWeights::fetch(const nn::WeightRequest& request) const {
  if (!request.cut.whole()) return base_->fetch(request);
  const std::string key = fmt::format("{} {}", nn::weight_key(request), request.shape.str());
  const std::lock_guard lock(held_->mutex);
  const auto it = held_->all.find(key);
  if (it != held_->all.end()) return it->second;
  return held_->all.emplace(key, base_->fetch(request)).first->second;
}

}  // namespace tessera::load
