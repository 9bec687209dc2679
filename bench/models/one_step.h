#pragma once

#include <memory>
#include <string>

#include "models/families.h"
#include "nn/local.h"
#include "nn/moe/moe_layers.h"

namespace tessera::bench {

/// A network and the inputs for a step.
class OneStep {
 public:
  OneStep(const Family& family, const std::string& name, int64_t tokens, const nn::Weights& weights,
          const Place& place)
      : spec_(models::pipeline_of(family.type, {base::Json::parse(family.config), name})),
        model_(spec_.make(weights, spec_.whole(), DType::bf16)) {
    const nn::TokenLayout layout = layout_of(spec_, name, tokens);
    const nn::Conditioning conditioning = filled(spec_.example(1), place);
    const nn::TokenShape rows{1, spec_.prefix(conditioning), layout.grid()};
    nn::TokenView view;
    view.sequences = {0};
    if (rows.prefix > 0) view.prefix = {{0, {-rows.prefix, 0}}};
    view.body = {{0, {0, rows.tokens()}}};
    latent_ = place(random_tensor({rows.tokens(), layout.token_channels()}, DType::f32, 5));
    const float when[] = {500};
    time_ = place(Tensor::from(std::span<const float>(when), {1}));
    context_ = model_->prepare(conditioning, rows);
    placement_ = model_->place(*context_, view);
  }
  Tensor run(bool int8_scores = false) const {
    nn::LocalAttention attention(model_->geometry(), int8_scores);
    nn::MoeLayers experts;
    const auto step = model_->at(*context_, time_);
    nn::Hidden hidden = model_->embed(*placement_, latent_);
    for (int b = 0; b < model_->geometry().blocks; ++b)
      model_->block(b, *step, *placement_, hidden, {attention, experts});
    return model_->head(*step, *placement_, hidden);
  }

 private:
  models::PipelineSpec spec_;
  std::unique_ptr<nn::Denoiser> model_;
  Tensor latent_, time_;
  nn::ContextPtr context_;
  nn::PlacementPtr placement_;
};

/// |a - b| / |b|, L2.
inline double relative_error(const Tensor& result, const Tensor& want) {
  const std::vector<float> a = result.to_floats(), b = want.to_floats();
  double off = 0, size = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    off += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    size += double{b[i]} * b[i];
  }
  return std::sqrt(off / size);
}

}  // namespace tessera::bench
