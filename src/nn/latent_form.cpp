#include "nn/latent_form.h"

#include "base/fail.h"
#include "ops/permute.h"

namespace tessera::nn {

using tensor::Tensor;

tensor::Shape latent_shape(const TokenLayout& l, LatentForm form, int64_t batch) {
  switch (form) {
    case LatentForm::packed: return {batch, l.tokens(), l.token_channels()};
    case LatentForm::video: return {batch, l.size[0], l.channels, l.size[1], l.size[2]};
    case LatentForm::image: break;
  }
  return {batch, l.channels, l.size[1], l.size[2]};
}

Tensor swap_frames(const Tensor& x) {
  const tensor::Shape turned{x.size(0), x.size(2), x.size(1), x.size(3), x.size(4)};
  const int64_t sizes[] = {x.size(0), x.size(1), x.size(2), x.size(3) * x.size(4)};
  const int order[] = {0, 2, 1, 3};
  return ops::permute(x.contiguous(), sizes, order, turned);
}

Tensor tokens_of_latent(const Tensor& latent, const TokenLayout& layout, LatentForm form) {
  const int64_t batch = latent.rank() > 0 ? latent.size(0) : 0;
  require(latent.shape() == latent_shape(layout, form, batch), ErrorCode::usage,
          "latents {}; expected {}", latent.shape().str(), latent_shape(layout, form, batch).str());
  if (form == LatentForm::packed)
    return latent.contiguous().reshape({batch * layout.tokens(), layout.token_channels()});
  return to_tokens(form == LatentForm::video ? swap_frames(latent) : latent, layout);
}

Tensor latent_of_tokens(const Tensor& tokens, const TokenLayout& layout, LatentForm form) {
  if (form == LatentForm::packed)
    return tokens.contiguous().reshape(
        {tokens.size(0) / layout.tokens(), layout.tokens(), layout.token_channels()});
  const Tensor latent = from_tokens(tokens, layout, form == LatentForm::video);
  return form == LatentForm::video ? swap_frames(latent) : latent;
}

}  // namespace tessera::nn
