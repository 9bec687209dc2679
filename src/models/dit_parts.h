#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/block_stack.h"
#include "nn/linear.h"
#include "ops/elementwise.h"

namespace tessera::models {

using nn::DType;
using nn::Tensor;

/// Two linear layers with an activation between them, by the names that diffusers gives them.
class TwoLinears {
 public:
  TwoLinears() = default;
  /// `<name>.linear_1` [inner, in], `<name>.linear_2` [out, inner].
  TwoLinears(const nn::Weights& weights, const std::string& name, int64_t in, int64_t inner,
             int64_t out, ops::Activation activation, DType dtype);
  /// A block's feed-forward layer: `<name>.net.0.proj`, `<name>.net.2`, GELU by tanh.
  static TwoLinears feed_forward(const nn::Weights& weights, const std::string& name, int64_t dim,
                                 int64_t inner, DType dtype);
  /// x [tokens, in] -> [tokens, out]; `last` is what follows the second layer.
  Tensor operator()(const Tensor& x, const ops::MatmulOptions& last = {}) const;

 private:
  nn::Linear first_, second_;
  ops::Activation activation_ = ops::Activation::silu;
};

/// A norm of each head's channels; without a weight, nothing.
struct HeadNorm {
  Tensor weight, bias;  ///< f32 [head_dim]; a bias makes it a layer norm, else it is an RMS norm
  float eps = 1e-6f;

  static HeadNorm rms(const nn::Weights& weights, const std::string& name, int64_t dim);
  static HeadNorm layer(const nn::Weights& weights, const std::string& name, int64_t dim);
  Tensor operator()(const Tensor& x) const;
};

/// Queries, keys and values of one stream: `<prefix><q|k|v><suffix>` with a norm on q and k.
struct Projections {
  nn::Linear q, k, v;
  HeadNorm q_norm, k_norm;

  nn::Heads operator()(const Tensor& x) const;
};

/// A layer norm of a block: with or without weights.
struct TokenNorm {
  Tensor weight, bias;
  float eps = 1e-6f;

  static TokenNorm load(const nn::Weights& weights, const std::string& name, int64_t dim,
                        float eps);
  /// Then x * (1 + scale[row]) + shift[row]; either may be undefined.
  Tensor operator()(const Tensor& x, const Tensor& shift = {}, const Tensor& scale = {},
                    std::span<const int32_t> row_of = {}) const;
};

/// Columns [i * width, (i + 1) * width).
inline Tensor part(const Tensor& x, int64_t i, int64_t width) {
  return x.slice(1, i * width, (i + 1) * width);
}
/// A stored tensor, widened to f32 and seen as [rows, columns].
Tensor stored_f32(const nn::Weights& weights, const std::string& name, const tensor::Shape& shape,
                  int64_t rows, int64_t columns);

/// The text that each row of a batch attends to: tokens packed without padding.
struct PackedText {
  Tensor tokens;                 ///< [sum of lengths, channels]
  std::vector<nn::Range> spans;  ///< of each row
};
/// Leaves out what `mask` (i32 or f32 [rows, length], undefined: all ones) says is padding.
PackedText pack_text(const Tensor& tokens, const Tensor& mask);
/// Attention of latent tokens over the text of their rows, all on this rank.
Tensor cross_attention(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads,
                       const nn::Segments& body, const std::vector<nn::Range>& text);

/// A conditioning tensor as f32 or bf16 [rows * length, channels], checked: [rows, length,
/// channels]. Throws Error(usage) naming it and what fits. `length` receives what was found.
Tensor text_input(const nn::Conditioning& conditioning, const char* name, int64_t rows,
                  int64_t channels, int64_t* length);
/// A conditioning tensor f32 [rows, channels]. Throws Error(usage) unless it is there and fits.
Tensor row_input(const nn::Conditioning& conditioning, const char* name, int64_t rows,
                 int64_t channels);
/// A conditioning tensor, or none.
Tensor optional_input(const nn::Conditioning& conditioning, const char* name);

/// The last layer of a model that emits (p, q, C) for each token, turned to (C, p, q).
class PatchHead {
 public:
  PatchHead() = default;
  /// `proj_out` [patch * channels, dim]; `turn` false: it emits (C, p, q) already.
  PatchHead(const nn::Weights& weights, int64_t patch, int64_t channels, int64_t dim, bool turn,
            DType dtype);
  /// -> f32 [tokens, channels * patch].
  Tensor operator()(const Tensor& x) const;

 private:
  ops::Weight weight_;
  Tensor bias_;
};

/// The first layer: `<name>.weight` [dim, channels, p, q] on patches of a latent in token layout.
class PatchEmbed {
 public:
  PatchEmbed() = default;
  PatchEmbed(const nn::Weights& weights, const std::string& name, int64_t dim, int64_t channels,
             int64_t patch, bool bias, DType dtype);
  /// latent f32 [tokens, channels * patch] + positions f32 (or undefined) -> [tokens, dim] of
  /// `out`.
  Tensor operator()(const Tensor& latent, const Tensor& positions, DType out) const;

 private:
  ops::Weight weight_;
  Tensor bias_;
};

}  // namespace tessera::models
