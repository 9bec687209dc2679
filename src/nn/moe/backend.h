#pragma once

#include "nn/moe/log.h"

namespace tessera::nn {

/// Who computes the experts of a layer, wherever they are. What outlives a call is keyed (site,
/// sequence, id).
class ExpertBackend : public StepAware {
 public:
  /// tokens [tokens, hidden] -> the same shape: routed experts, then the shared one. Puts one event
  /// into the log, and shows it the call.
  virtual Tensor run(const MoeCall& call, const Tensor& tokens, const Gate& gate,
                     const ExpertWeights& weights, MoeLog& log) = 0;
};

/// All experts on this rank.
class LocalBackend final : public ExpertBackend {
 public:
  Tensor run(const MoeCall& call, const Tensor& tokens, const Gate& gate,
             const ExpertWeights& weights, MoeLog& log) override;
};

}  // namespace tessera::nn
