#pragma once

#include "models/pipeline_spec.h"
#include "nn/moe/expert_weights.h"
#include "nn/moe/router.h"
#include "tessera/request.h"

namespace tessera::models {

/// One MoE layer in a folder of its own, whose configuration has this type. It may hold several
/// routers, `gate.<name>.weight`, and experts of two forms: `swiglu.gate_proj`, `.up_proj` and
/// `.down_proj`, or `mlp.up.weight` and `mlp.down.weight`, which may have a `.bias`; a layer's
/// experts are one tensor each.
inline constexpr const char* kMoeLayerType = "moe_layer";

struct MoeLayerConfig {
  int64_t hidden = 0, inner = 0, experts = 0;
};
/// Reads hidden_size, intermediate_size and num_experts. Throws Error(model).
MoeLayerConfig moe_layer_of(const Source& source);

/// A router and experts of one form, of those of a folder.
struct MoeLayer {
  /// With the experts of a portion. Throws Error(model) for tensors that are missing or do not fit.
  MoeLayer(const MoeLayerConfig& config, const MoeLayerForm& form, const nn::Weights& weights,
           const nn::Portion& portion, nn::DType dtype);

  nn::Router router;
  nn::ExpertWeights experts;
};

/// The tensor that a form's router is.
std::string gate_of(const MoeLayerForm& form, const nn::Weights& weights);
/// The layer as plans see it. Throws Error(usage) for more experts a token than the layer has.
nn::Geometry geometry_of(const MoeLayerConfig& config, const MoeLayerForm& form);

}  // namespace tessera::models
