#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/pipeline_spec.h"
#include "models/token_spec.h"
#include "models/vae/vae.h"

namespace tessera::models {

/// A family, selected by the `model_type` or `_class_name` of a configuration. Lists are searched
/// from top to bottom.
template <class Make>
struct Family {
  const char* type;
  Make make;
};
/// Transformers of pipelines.
using PipelineFamily = Family<PipelineSpec (*)(const Source&)>;
const std::vector<PipelineFamily>& pipelines();
using VaeFamily = Family<VaeSpec (*)(const Source&)>;
const std::vector<VaeFamily>& vaes();
using TextEncoderFamily = Family<std::unique_ptr<TextEncoder> (*)(
    const Source&, const std::shared_ptr<const nn::Weights>&, tensor::DType)>;
const std::vector<TextEncoderFamily>& text_encoders();
/// Language models, selected by the first of their `architectures`.
using LanguageFamily = Family<TokenSpec (*)(const Source&)>;
const std::vector<LanguageFamily>& language_models();

/// Joins the type names: "DiTMoE, FluxTransformer2DModel, ...".
template <class Families>
std::string known_types(const Families& families) {
  std::string names;
  for (const auto& family : families)
    names += (names.empty() ? "" : ", ") + std::string(family.type);
  return names;
}

/// Parse the configuration of a type. Each throws Error(model) for an unknown type, listing the
/// known types, and for invalid values.
PipelineSpec pipeline_of(const std::string& type, const Source& source);
VaeSpec vae_of(const std::string& type, const Source& source);
std::unique_ptr<TextEncoder> text_encoder_of(const std::string& type, const Source& source,
                                             const std::shared_ptr<const nn::Weights>& weights,
                                             tensor::DType dtype);
/// Selected by `architectures` or `model_type` of the configuration.
TokenSpec language_model_of(const Source& source);

}  // namespace tessera::models
