#pragma once

#include <memory>
#include <utility>

#include "nn/moe/policy.h"

namespace tessera::nn {

/// Another policy under a fixed capacity: each expert keeps its first `capacity` tokens of a call,
/// in the order of all ranks' tokens. Later assignments are dropped (-1, weight 0); other weights
/// do not change.
class CapacityPolicy final : public ExpertPolicy {
 public:
  CapacityPolicy(std::shared_ptr<const ExpertPolicy> chooses, int64_t capacity)
      : chooses_(std::move(chooses)), capacity_(capacity) {}

  ops::Routing choose(const MoeCall& call, const Tensor& tokens, const Tensor& logits,
                      const ops::RoutingOptions& router) const override;

 private:
  std::shared_ptr<const ExpertPolicy> chooses_;
  int64_t capacity_;
};

}  // namespace tessera::nn
