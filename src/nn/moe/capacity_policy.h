#pragma once

#include <memory>
#include <utility>

#include "nn/moe/policy.h"

namespace tessera::nn {

/// Another policy under a fixed capacity: of the tokens of a call that it sends to an expert the
/// first `capacity` count, in the order of all ranks' tokens. The assignments of later ones are
/// dropped (-1, weight 0); no other weight changes.
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
