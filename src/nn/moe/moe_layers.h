#pragma once

#include <memory>
#include <utility>

#include "nn/moe/backend.h"

namespace tessera::nn {

/// The MoE layers of a request on a rank: a policy chooses, a backend computes, a log counts.
class MoeLayers final : public Experts {
 public:
  /// The model's router, with all experts on this rank.
  MoeLayers() : MoeLayers(std::make_shared<VanillaPolicy>(), std::make_unique<LocalBackend>()) {}
  MoeLayers(std::shared_ptr<const ExpertPolicy> policy, std::unique_ptr<ExpertBackend> backend)
      : policy_(std::move(policy)), backend_(std::move(backend)) {}

  void begin_step(const StepInfo& info) override {
    Experts::begin_step(info);
    backend_->begin_step(info);
  }
  void finish() override { backend_->finish(); }
  Tensor apply(int site, const TokenView& view, const Tensor& tokens, const Router& router,
               const ExpertWeights& weights) override {
    const MoeCall call{site, step_, view};
    return backend_->run(call, tokens, Gate(router, *policy_, call), weights, log_);
  }

  MoeLog& log() { return log_; }
  const MoeLog& log() const { return log_; }
  /// The calls of a recorded step ran again, in the current step.
  void replayed() { log_.replayed(step_.index); }

 private:
  std::shared_ptr<const ExpertPolicy> policy_;
  std::unique_ptr<ExpertBackend> backend_;
  MoeLog log_;
};

}  // namespace tessera::nn
