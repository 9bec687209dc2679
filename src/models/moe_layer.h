#pragma once

#include "models/pipeline_spec.h"
#include "nn/moe/expert_weights.h"
#include "nn/moe/router.h"
#include "tessera/request.h"

namespace tessera::models {

/// Type of a folder with a single MoE layer. The layer may hold several routers,
/// `gate.<name>.weight`, and two forms of experts: `swiglu.gate_proj`, `.up_proj` and `.down_proj`,
/// or `mlp.up.weight` and `mlp.down.weight` with an optional `.bias`. The experts of a layer are
/// stacked in a tensor.
inline constexpr const char* kMoeLayerType = "moe_layer";

struct MoeLayerConfig {
  int64_t hidden = 0, inner = 0, experts = 0;
};
/// Parses hidden_size, intermediate_size and num_experts. Throws Error(model).
MoeLayerConfig moe_layer_of(const Source& source);

/// A router and experts of a chosen form.
struct MoeLayer {
  /// Loads the experts of a portion. Throws Error(model) for missing or mismatched tensors.
  MoeLayer(const MoeLayerConfig& config, const MoeLayerForm& form, const nn::Weights& weights,
           const nn::Portion& portion, nn::DType dtype);

  nn::Router router;
  nn::ExpertWeights experts;
};

/// Tensor name of a form's router.
std::string gate_of(const MoeLayerForm& form, const nn::Weights& weights);
/// Geometry of the layer for plans. Throws Error(usage) for a top-k above the number of experts.
nn::Geometry geometry_of(const MoeLayerConfig& config, const MoeLayerForm& form);

}  // namespace tessera::models
