#include "runtime/count_parameters.h"

#include "load/meta_weights.h"
#include "load/tiny_vae.h"
#include "models/registry.h"
#include "tensor/uncounted.h"

namespace tessera::runtime {

int64_t parameters_on_meta(const ModelState& state, const load::Component& part) {
  const tensor::Uncounted aside;
  const auto weights = std::make_shared<load::MetaWeights>();
  const models::Source source{part.config, part.description()};
  if (part.name == "transformer" && state.spec) {
    state.spec->make(*weights, state.spec->whole(), state.dtype());
  } else if (part.name == "vae" || part.name == load::kPreviewVae) {
    const models::VaeSpec vae = models::vae_of(part.class_name, source);
    const auto decoder = vae.decoder(*weights, state.dtype());
    const auto encoder = vae.encoder(*weights, state.dtype());
  } else if (part.name == "model" && state.language) {
    const models::TokenSpec& spec = state.language->spec();
    spec.make(*weights, spec.whole(), state.dtype(), 0);
  } else if (part.name.starts_with("text_encoder")) {
    models::text_encoder_of(part.class_name, source, weights, state.dtype())->encode({{0}, {1}, 1});
  }
  return weights->parameters();
}

}  // namespace tessera::runtime
