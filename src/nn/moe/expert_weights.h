#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/weights.h"
#include "ops/experts.h"

namespace tessera::nn {

/// A gated MLP (swiglu or geglu), or a shard: `<name>gate_proj.weight` and `<name>up_proj.weight`
/// [inner, hidden], `<name>down_proj.weight` [hidden, inner].
ops::Expert load_expert(const Weights& weights, const std::string& name, int64_t inner,
                        int64_t hidden, ops::DType dtype,
                        ops::Activation activation = ops::Activation::swiglu);

/// The expert weights of a layer: a handle, for shared ownership by work in flight.
struct ExpertWeights {
  std::shared_ptr<const std::vector<ops::Expert>> routed;
  ops::Expert shared;  ///< null weights: no shared expert

  int64_t experts() const { return static_cast<int64_t>(routed->size()); }
  /// The shared expert's rows; undefined without a shared expert.
  tensor::Tensor shared_rows(const tensor::Tensor& tokens) const;
};

}  // namespace tessera::nn
