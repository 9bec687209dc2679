#include "nn/latent_form.h"

#include <cstring>

#include "base/fail.h"
#include "ops/permute.h"

namespace tessera::nn {

using tensor::Tensor;

tensor::Shape latent_shape(const TokenLayout& l, LatentForm form, int64_t rows) {
  switch (form) {
    case LatentForm::packed: return {rows, l.tokens(), l.token_channels()};
    case LatentForm::video: return {rows, l.size[0], l.channels, l.size[1], l.size[2]};
    case LatentForm::picture: break;
  }
  return {rows, l.channels, l.size[1], l.size[2]};
}

Tensor swap_frames(const Tensor& x) {
  Tensor y =
      Tensor::empty({x.size(0), x.size(2), x.size(1), x.size(3), x.size(4)}, x.dtype(), x.device());
  if (x.is_meta() || x.elements() == 0) return y;
  const Tensor dense = x.contiguous();
  const int64_t b = x.size(1), c = x.size(2);
  if (x.device() != tensor::Device::cpu) {
    const int64_t sizes[] = {x.size(0), b, c, x.size(3) * x.size(4)};
    const int order[] = {0, 2, 1, 3};
    return ops::permute(dense, sizes, order, y.shape());
  }
  const size_t run = static_cast<size_t>(x.size(3) * x.size(4) * tensor::size_of(x.dtype()));
  for (int64_t a = 0; a < x.size(0); ++a)
    for (int64_t i = 0; i < b; ++i)
      for (int64_t j = 0; j < c; ++j)
        std::memcpy(y.data<std::byte>() + static_cast<size_t>((a * c + j) * b + i) * run,
                    dense.data<std::byte>() + static_cast<size_t>((a * b + i) * c + j) * run, run);
  return y;
}

Tensor tokens_of_latent(const Tensor& latent, const TokenLayout& layout, LatentForm form) {
  const int64_t rows = latent.rank() > 0 ? latent.size(0) : 0;
  require(latent.shape() == latent_shape(layout, form, rows), ErrorCode::usage,
          "latents {}; expected {}", latent.shape().str(), latent_shape(layout, form, rows).str());
  if (form == LatentForm::packed)
    return latent.contiguous().reshape({rows * layout.tokens(), layout.token_channels()});
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
