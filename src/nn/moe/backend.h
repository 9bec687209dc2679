#pragma once

#include <memory>
#include <utility>

#include "nn/moe/log.h"

namespace tessera::nn {

class ExpertCache;

/// Computes the experts of a layer, on any rank. Data beyond a call is keyed by (site, sequence,
/// id).
class ExpertBackend : public StepAware {
 public:
  /// tokens [tokens, hidden] -> the same shape: routed experts, then the shared expert. Adds one
  /// event to the log, and shows the call to the log.
  virtual Tensor run(const MoeCall& call, const Tensor& tokens, const Gate& gate,
                     const ExpertWeights& weights, MoeLog& log) = 0;
};

/// All experts on this rank: in memory, or from a cache with reads on demand.
class LocalBackend final : public ExpertBackend {
 public:
  /// `cache`: routed experts without weights in a layer; null: all have weights.
  explicit LocalBackend(std::shared_ptr<ExpertCache> cache = nullptr) : cache_(std::move(cache)) {}
  Tensor run(const MoeCall& call, const Tensor& tokens, const Gate& gate,
             const ExpertWeights& weights, MoeLog& log) override;

 private:
  std::shared_ptr<ExpertCache> cache_;
};

}  // namespace tessera::nn
