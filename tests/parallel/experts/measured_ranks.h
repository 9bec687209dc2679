#pragma once

#include <vector>

#include "nn/moe/router.h"
#include "nn/random_bank.h"
#include "tensor/scope.h"

namespace tessera::parallel {

/// Experts of 16 x 32 and a shared expert, on the CPU or without elements (`meta`).
inline nn::ExpertWeights bank_on(int experts, tensor::Device where) {
  using tensor::DType;
  const auto weight = [&](int64_t n, int64_t k, bool paired) {
    const tensor::Tensor w = nn::random_bank::normal({n, k}, 1).to(where);
    return paired ? ops::pack_paired_weight(w, w, DType::f32) : ops::pack_weight(w, DType::f32);
  };
  const ops::Expert one{weight(16, 32, true), weight(32, 16, false)};
  return {std::make_shared<std::vector<ops::Expert>>(static_cast<size_t>(experts), one), one};
}

/// A router of two experts a token, with the same score for all experts.
inline nn::Router even_router(int experts, tensor::Device where) {
  using tensor::DType;
  nn::Router router{
      ops::pack_weight(tensor::Tensor::zeros({experts, 32}, DType::f32).to(where), DType::f32), {}};
  router.options.top_k = 2;
  return router;
}

/// Scopes of three ranks that measure memory and work. A dry run assumes what `even_router` chooses
/// among six experts.
inline std::vector<tensor::Scope> measured_scopes() {
  std::vector<tensor::Scope> scopes(3);
  for (tensor::Scope& scope : scopes) {
    scope.memory = std::make_shared<tensor::MemoryTracker>();
    scope.meter = std::make_shared<tensor::Meter>();
    scope.assumptions.expert_load = {1, 1, 0, 0, 0, 0};
  }
  return scopes;
}

}  // namespace tessera::parallel
