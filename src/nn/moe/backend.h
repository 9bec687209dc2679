#pragma once

#include <memory>
#include <utility>

#include "nn/moe/log.h"

namespace tessera::nn {

class ExpertCache;

/// Who computes the experts of a layer, wherever they are. What outlives a call is keyed (site,
/// sequence, id).
class ExpertBackend : public StepAware {
 public:
  /// tokens [tokens, hidden] -> the same shape: routed experts, then the shared one. Puts one event
  /// into the log, and shows it the call.
  virtual Tensor run(const MoeCall& call, const Tensor& tokens, const Gate& gate,
                     const ExpertWeights& weights, MoeLog& log) = 0;
};

/// All experts on this rank: in memory, or given by a cache that reads them.
class LocalBackend final : public ExpertBackend {
 public:
  /// `cache`: of routed experts that the weights of a layer lack; null: they lack none.
  explicit LocalBackend(std::shared_ptr<ExpertCache> cache = nullptr) : cache_(std::move(cache)) {}
  Tensor run(const MoeCall& call, const Tensor& tokens, const Gate& gate,
             const ExpertWeights& weights, MoeLog& log) override;

 private:
  std::shared_ptr<ExpertCache> cache_;
};

}  // namespace tessera::nn
