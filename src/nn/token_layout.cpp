#include "nn/token_layout.h"

#include <cstring>

#include "base/fail.h"
#include "ops/permute.h"
#include "tensor/scope.h"

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

// Calls f(offset in the latent, offset in the tokens, run) for each run of q adjacent pixels of a
// row.
template <class F>
void each_run(const TokenLayout& l, int64_t row, F f) {
  const auto [pt, p, q] = l.patch;
  const auto [frames, height, width] = l.size;
  const auto [gt, gh, gw] = l.grid();
  for (int64_t c = 0; c < l.channels; ++c)
    for (int64_t t = 0; t < frames; ++t)
      for (int64_t y = 0; y < height; ++y) {
        const int64_t line = (((row * l.channels + c) * frames + t) * height + y) * width;
        const int64_t token = ((row * gt + t / pt) * gh + y / p) * gw;
        const int64_t channel = ((c * pt + t % pt) * p + y % p) * q;
        for (int64_t x = 0; x < gw; ++x)
          f(line + x * q, (token + x) * l.token_channels() + channel, q);
      }
}

template <class F>
void each_row(int64_t rows, F f) {
  tensor::parallel_tasks(rows, f);
}

}  // namespace

Tensor to_tokens(const Tensor& latent, const TokenLayout& l) {
  check(l);
  const bool five = latent.rank() == 5;
  const bool fits = (five || (latent.rank() == 4 && l.size[0] == 1)) &&
                    latent.size(1) == l.channels && (!five || latent.size(2) == l.size[0]) &&
                    latent.size(-2) == l.size[1] && latent.size(-1) == l.size[2];
  require(fits && latent.dtype() == DType::f32, ErrorCode::usage,
          "latents {} {} do not fit: expected f32 [rows, {}{}, {}, {}]",
          tensor::name_of(latent.dtype()), latent.shape().str(), l.channels,
          l.size[0] > 1 ? fmt::format(", {}", l.size[0]) : "", l.size[1], l.size[2]);
  const int64_t rows = latent.size(0);
  Tensor tokens =
      Tensor::empty({rows * l.tokens(), l.token_channels()}, DType::f32, latent.device());
  if (latent.is_meta()) return tokens;
  if (latent.device() != tensor::Device::cpu) {
    const auto [pt, p, q] = l.patch;
    const auto [gt, gh, gw] = l.grid();
    const int64_t sizes[] = {rows, l.channels, gt, pt, gh, p, gw, q};
    const int order[] = {0, 2, 4, 6, 1, 3, 5, 7};
    return ops::permute(latent.contiguous(), sizes, order, tokens.shape());
  }
  const Tensor dense = latent.contiguous();
  const float* from = dense.data<float>();
  float* to = tokens.data<float>();
  each_row(rows, [&](int64_t row) {
    each_run(l, row, [&](int64_t a, int64_t b, int64_t n) {
      std::memcpy(to + b, from + a, static_cast<size_t>(n) * sizeof(float));
    });
  });
  return tokens;
}

Tensor from_tokens(const Tensor& tokens, const TokenLayout& l, bool frames) {
  check(l);
  require(tokens.rank() == 2 && tokens.size(1) == l.token_channels() &&
              tokens.dtype() == DType::f32 && tokens.size(0) % l.tokens() == 0,
          ErrorCode::usage, "tokens {} do not fit a latent of {} tokens with {} channels",
          tokens.shape().str(), l.tokens(), l.token_channels());
  const int64_t rows = tokens.size(0) / l.tokens();
  const tensor::Shape shape = frames
                                  ? tensor::Shape{rows, l.channels, l.size[0], l.size[1], l.size[2]}
                                  : tensor::Shape{rows, l.channels, l.size[1], l.size[2]};
  Tensor latent = Tensor::empty(shape, DType::f32, tokens.device());
  if (tokens.is_meta()) return latent;
  if (tokens.device() != tensor::Device::cpu) {
    const auto [pt, p, q] = l.patch;
    const auto [gt, gh, gw] = l.grid();
    const int64_t sizes[] = {rows, gt, gh, gw, l.channels, pt, p, q};
    const int order[] = {0, 4, 1, 5, 2, 6, 3, 7};
    return ops::permute(tokens.contiguous(), sizes, order, shape);
  }
  const Tensor dense = tokens.contiguous();
  const float* from = dense.data<float>();
  float* to = latent.data<float>();
  each_row(rows, [&](int64_t row) {
    each_run(l, row, [&](int64_t a, int64_t b, int64_t n) {
      std::memcpy(to + a, from + b, static_cast<size_t>(n) * sizeof(float));
    });
  });
  return latent;
}

Tensor channel_slowest(const Tensor& rows, int64_t patch, int64_t channels) {
  require(rows.size(0) == patch * channels, ErrorCode::usage,
          "{} rows are not {} pixels of {} channels", rows.size(0), patch, channels);
  Tensor out = Tensor::empty(rows.shape(), rows.dtype(), rows.device());
  if (rows.is_meta()) return out;
  const Tensor dense = rows.contiguous();
  if (rows.device() != tensor::Device::cpu) {
    const int64_t sizes[] = {patch, channels, dense.elements() / dense.size(0)};
    const int order[] = {1, 0, 2};
    return ops::permute(dense, sizes, order, rows.shape());
  }
  const size_t run = static_cast<size_t>(dense.bytes() / dense.size(0));
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = 0; i < patch; ++i)
      std::memcpy(out.data<std::byte>() + static_cast<size_t>(c * patch + i) * run,
                  dense.data<std::byte>() + static_cast<size_t>(i * channels + c) * run, run);
  return out;
}

}  // namespace tessera::nn
