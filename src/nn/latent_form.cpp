#include "nn/latent_form.h"

#include "base/fail.h"
#include "ops/permute.h"

namespace tessera::nn {

using tensor::Tensor;

namespace {

// Between [batch, channels, tokens] and [batch * tokens, channels].
Tensor transpose_tokens(const Tensor& x, const TokenLayout& l, bool to_tokens) {
  const int64_t tokens = l.latent_tokens(), channels = l.token_channels();
  const int64_t batch = x.elements() / (tokens * channels);
  const int64_t sizes[] = {batch, to_tokens ? channels : tokens, to_tokens ? tokens : channels};
  const int order[] = {0, 2, 1};
  return ops::permute(x.contiguous(), sizes, order, {batch * tokens, channels});
}

}  // namespace

tensor::Shape latent_shape(const TokenLayout& l, LatentForm form, int64_t batch) {
  switch (form) {
    case LatentForm::packed: return {batch, l.latent_tokens(), l.token_channels()};
    case LatentForm::video: return {batch, l.size[0], l.channels, l.size[1], l.size[2]};
    case LatentForm::patches: return {batch, l.token_channels(), l.grid()[1], l.grid()[2]};
    case LatentForm::image: break;
  }
  return {batch, l.channels, l.size[1], l.size[2]};
}

Tensor swap_frames(const Tensor& x) {
  const tensor::Shape shape{x.size(0), x.size(2), x.size(1), x.size(3), x.size(4)};
  const int64_t sizes[] = {x.size(0), x.size(1), x.size(2), x.size(3) * x.size(4)};
  const int order[] = {0, 2, 1, 3};
  return ops::permute(x.contiguous(), sizes, order, shape);
}

Tensor tokens_of_latent(const Tensor& latent, const TokenLayout& layout, LatentForm form) {
  const int64_t batch = latent.rank() > 0 ? latent.size(0) : 0;
  require(latent.shape() == latent_shape(layout, form, batch), ErrorCode::usage,
          "latents {}; expected {}", latent.shape().str(), latent_shape(layout, form, batch).str());
  if (form == LatentForm::packed)
    return with_extra(
        latent.contiguous().reshape({batch * layout.latent_tokens(), layout.token_channels()}),
        layout);
  if (form == LatentForm::patches)
    return with_extra(transpose_tokens(latent, layout, true), layout);
  return to_tokens(form == LatentForm::video ? swap_frames(latent) : latent, layout);
}

Tensor latent_of_tokens(const Tensor& tokens, const TokenLayout& layout, LatentForm form) {
  if (form == LatentForm::packed)
    return without_extra(tokens, layout)
        .contiguous()
        .reshape(
            {tokens.size(0) / layout.tokens(), layout.latent_tokens(), layout.token_channels()});
  if (form == LatentForm::patches)
    return transpose_tokens(without_extra(tokens, layout), layout, false)
        .reshape(latent_shape(layout, form, tokens.size(0) / layout.tokens()));
  const Tensor latent = from_tokens(tokens, layout, form == LatentForm::video);
  return form == LatentForm::video ? swap_frames(latent) : latent;
}

}  // namespace tessera::nn
