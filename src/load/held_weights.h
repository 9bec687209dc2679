#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "nn/weights_over.h"

namespace tessera::load {

/// Keeps packed weights in memory for the lifetime of this object or of values(): a complete weight
/// is returned again on the next request, and other users of the same store find the weight there.
/// Thread-safe.
class HeldWeights final : public nn::WeightsOver {
 public:
  using WeightsOver::WeightsOver;

  nn::FetchedWeight fetch(const nn::WeightRequest& request) const override;

  /// Keeps all weights alive as long as the returned pointer, but not the source with its open
  /// files.
  std::shared_ptr<const void> values() const { return held_; }

 private:
  struct Values {
    std::mutex mutex;
    std::map<std::string, nn::FetchedWeight> all;
  };

  const std::shared_ptr<Values> held_ = std::make_shared<Values>();
};

}  // namespace tessera::load
