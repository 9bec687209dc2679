#include "nn/token_layout.h"

#include "base/fail.h"
#include "ops/permute.h"

namespace tessera::nn {
namespace {

using tensor::DType;
using tensor::Tensor;

void check(const TokenLayout& layout) {
  for (size_t i = 0; i < 3; ++i) {
    require(layout.patch[i] > 0 && layout.size[i] % layout.patch[i] == 0, ErrorCode::usage,
            "a latent of {} x {} x {} cannot be cut into patches of {} x {} x {}", layout.size[0],
            layout.size[1], layout.size[2], layout.patch[0], layout.patch[1], layout.patch[2]);
  }
}

}  // namespace

Tensor to_tokens(const Tensor& latent, const TokenLayout& l) {
  check(l);
  const bool five = latent.rank() == 5;
  const bool fits = (five || (latent.rank() == 4 && l.size[0] == 1)) &&
                    latent.size(1) == l.channels && (!five || latent.size(2) == l.size[0]) &&
                    latent.size(-2) == l.size[1] && latent.size(-1) == l.size[2];
  require(fits && latent.dtype() == DType::f32, ErrorCode::usage,
          "latents {} {} do not fit: expected f32 [batch, {}{}, {}, {}]",
          tensor::name_of(latent.dtype()), latent.shape().str(), l.channels,
          l.size[0] > 1 ? fmt::format(", {}", l.size[0]) : "", l.size[1], l.size[2]);
  const int64_t batch = latent.size(0);
  const auto [pt, p, q] = l.patch;
  const auto [gt, gh, gw] = l.grid();
  const int64_t sizes[] = {batch, l.channels, gt, pt, gh, p, gw, q};
  const int order[] = {0, 2, 4, 6, 1, 3, 5, 7};
  return with_extra(ops::permute(latent.contiguous(), sizes, order,
                                 {batch * l.latent_tokens(), l.token_channels()}),
                    l);
}

Tensor with_extra(const Tensor& tokens, const TokenLayout& l) {
  if (l.extra == 0) return tokens;
  const int64_t tokens_each = l.latent_tokens(), batch = tokens.size(0) / tokens_each;
  const Tensor padded =
      Tensor::zeros({batch * l.tokens(), tokens.size(1)}, tokens.dtype(), tokens.device());
  for (int64_t r = 0; r < batch; ++r)
    tensor::copy_into(padded.slice(0, r * l.tokens(), r * l.tokens() + tokens_each),
                      tokens.slice(0, r * tokens_each, (r + 1) * tokens_each));
  return padded;
}

Tensor without_extra(const Tensor& tokens, const TokenLayout& l) {
  if (l.extra == 0) return tokens;
  const int64_t tokens_each = l.latent_tokens(), batch = tokens.size(0) / l.tokens();
  const Tensor result =
      Tensor::empty({batch * tokens_each, tokens.size(1)}, tokens.dtype(), tokens.device());
  for (int64_t r = 0; r < batch; ++r)
    tensor::copy_into(result.slice(0, r * tokens_each, (r + 1) * tokens_each),
                      tokens.slice(0, r * l.tokens(), r * l.tokens() + tokens_each));
  return result;
}

Tensor from_tokens(const Tensor& tokens, const TokenLayout& l, bool frames) {
  check(l);
  require(tokens.rank() == 2 && tokens.size(1) == l.token_channels() &&
              tokens.dtype() == DType::f32 && tokens.size(0) % l.tokens() == 0,
          ErrorCode::usage, "tokens {} do not fit a latent of {} tokens with {} channels",
          tokens.shape().str(), l.tokens(), l.token_channels());
  const int64_t batch = tokens.size(0) / l.tokens();
  const tensor::Shape shape =
      frames ? tensor::Shape{batch, l.channels, l.size[0], l.size[1], l.size[2]}
             : tensor::Shape{batch, l.channels, l.size[1], l.size[2]};
  const auto [pt, p, q] = l.patch;
  const auto [gt, gh, gw] = l.grid();
  const int64_t sizes[] = {batch, gt, gh, gw, l.channels, pt, p, q};
  const int order[] = {0, 4, 1, 5, 2, 6, 3, 7};
  return ops::permute(without_extra(tokens, l).contiguous(), sizes, order, shape);
}

Tensor channel_slowest(const Tensor& rows, int64_t patch, int64_t channels) {
  require(rows.size(0) == patch * channels, ErrorCode::usage,
          "{} rows are not {} pixels of {} channels", rows.size(0), patch, channels);
  const int64_t inner = rows.size(0) > 0 ? rows.elements() / rows.size(0) : 0;
  const int64_t sizes[] = {patch, channels, inner};
  const int order[] = {1, 0, 2};
  return ops::permute(rows.contiguous(), sizes, order, rows.shape());
}

}  // namespace tessera::nn
