#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nn/block_stack.h"
#include "nn/linear.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/rope.h"

namespace tessera::models {

using nn::DType;
using nn::Tensor;

/// Two linear layers with an activation between them, by the names that diffusers gives them.
class Mlp {
 public:
  Mlp() = default;
  /// `<name>.linear_1` [inner, in], `<name>.linear_2` [out, inner].
  Mlp(const nn::Weights& weights, const std::string& name, int64_t in, int64_t inner, int64_t out,
      ops::Activation activation, DType dtype);
  /// A block's MLP: `<name>.net.0.proj`, `<name>.net.2`, GELU by tanh; its width is
  /// split.
  static Mlp of_block(const nn::Weights& weights, const std::string& name, int64_t dim,
                      int64_t inner, DType dtype);
  /// FLUX.2's MLP of a block: `<name>.linear_in` [2 * inner, dim], SwiGLU, `<name>.linear_out`,
  /// without biases; its width is split.
  static Mlp gated_block(const nn::Weights& weights, const std::string& name, int64_t dim,
                         int64_t inner, DType dtype);
  /// x [tokens, in] -> [tokens, out]; `last` is what follows the second layer.
  Tensor operator()(const Tensor& x, const ops::MatmulOptions& last = {},
                    nn::Reduce* reduce = nullptr) const;
  /// The same of two streams, each by its own layers, side by side; with SwiGLU in turn, since
  /// their inner tensors are large.
  static nn::Joint both(const Mlp& of_prefix, const Mlp& of_body, const nn::Joint& x,
                        const ops::MatmulOptions& prefix, const ops::MatmulOptions& body,
                        nn::Reduce* reduce);

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
  /// Then turned by the angles of its token, neighbouring channels, where they are given.
  Tensor operator()(const Tensor& x, const Tensor& into = {},
                    const ops::RotaryTable& angles = {}) const;
};

/// Queries or keys: a product, a norm of each head, and a turn by the token's angles (neighbouring
/// channels; undefined: none). Written to `into` where that is given.
struct NormedHeads {
  nn::Linear linear;
  HeadNorm norm;

  Tensor operator()(const Tensor& x, const ops::RotaryTable& angles = {},
                    const Tensor& into = {}) const;
  /// The product alone, and what follows it once `group` has run.
  Tensor product(const Tensor& x, const Tensor& into, ops::MatmulGroup& group) const;
  Tensor finish(const Tensor& product, const ops::RotaryTable& angles, const Tensor& into) const;
};

/// Queries, keys and values of one stream.
struct Projections {
  NormedHeads q, k;
  nn::Linear v;

  nn::Qkv operator()(const Tensor& x, const ops::RotaryTable& angles = {},
                     const nn::Qkv& into = {}) const;
  /// The products alone, and what follows them once `group` has run. Without queries where there
  /// are no weights of theirs.
  nn::Qkv products(const Tensor& x, const nn::Qkv& into, ops::MatmulGroup& group) const;
  nn::Qkv finish(const nn::Qkv& products, const ops::RotaryTable& angles,
                 const nn::Qkv& into) const;
  /// Those of two streams, each by its own layers, to `heads`: the prefix first, which nothing
  /// turns unless it has angles.
  static void both(const Projections& of_prefix, const Projections& of_body, const nn::Joint& x,
                   const ops::RotaryTable& angles, const nn::Qkv& heads,
                   const ops::RotaryTable& prefix_angles = {});
  /// Room for heads of so many tokens like those of x; without queries of the first `silent` ones.
  nn::Qkv room(const Tensor& x, int64_t tokens, int64_t silent = 0) const;
};

/// Heads, side by side as in a projection, are split one by one.
inline nn::Split split_heads(int64_t width, int64_t head_dim) {
  return nn::Split::outputs({{width, head_dim}});
}
/// The heads of some of its tokens.
nn::Qkv part_of(const nn::Qkv& heads, int64_t begin, int64_t end);
/// Text and latent of a tensor of both; and the tensor of both, put together if they are apart.
nn::Joint apart(const Tensor& both, int64_t prefix_tokens);
Tensor together(const nn::Joint& streams);

/// A layer norm of a block: with or without weights.
struct TokenNorm {
  Tensor weight, bias;
  float eps = 1e-6f;

  static TokenNorm load(const nn::Weights& weights, const std::string& name, int64_t dim,
                        float eps);
  /// Then x * (1 + scale[sequence]) + shift[sequence]; either may be undefined.
  Tensor operator()(const Tensor& x, const Tensor& shift = {}, const Tensor& scale = {},
                    const ops::RowMap& row_of = {}) const;
};

/// Columns [i * width, (i + 1) * width).
inline Tensor part(const Tensor& x, int64_t i, int64_t width) {
  return x.slice(1, i * width, (i + 1) * width);
}
/// What follows a branch of a block: the i-th part of a modulation gates it, and the stream is
/// added.
inline ops::MatmulOptions gated(const Tensor& modulation, int64_t i, const ops::RowMap& batch,
                                const Tensor& stream, ops::MatmulGroup* group = nullptr) {
  return {.gate = part(modulation, i, stream.size(1)),
          .row_of = batch,
          .residual = stream,
          .group = group};
}
/// A stored tensor, widened to f32 and seen as [rows, columns].
Tensor stored_f32(const nn::Weights& weights, const std::string& name, const tensor::Shape& shape,
                  int64_t rows, int64_t columns);

/// A stored table, seen as [rows, columns], of which a request reads some rows.
class RowTable {
 public:
  RowTable() = default;
  RowTable(const nn::Weights& weights, const std::string& name, const tensor::Shape& shape,
           int64_t rows, int64_t columns);
  /// -> f32 [rows asked for, columns].
  Tensor operator()(std::span<const int32_t> rows) const;
  bool defined() const { return table_.defined(); }

 private:
  Tensor table_;                   // as it is stored; on meta where it is brought
  std::function<Tensor()> bring_;  // when it is used; null: it is here
};

/// The text that each sequence of a batch attends to: tokens packed without padding.
struct PackedText {
  Tensor tokens;                 ///< [sum of lengths, channels]
  std::vector<nn::Range> spans;  ///< of each sequence
};
/// Whether each element of a mask of whole numbers or floats is not 0.
std::vector<bool> ones_of(const Tensor& mask);
/// Leaves out what `mask` (of any numbers [batch, length], undefined: all ones) says is padding.
PackedText pack_text(const Tensor& tokens, const Tensor& mask);
/// What latent tokens see of the text of their sequences, all on this rank.
std::vector<ops::AttentionSpan> text_spans(const nn::Segments& body,
                                           const std::vector<nn::Range>& text);

/// What blocks need of a view's tokens, where kernels read it; what a model has no use for is
/// empty.
struct DitPlacement : nn::Placement {
  DitPlacement(const nn::Context& in, const nn::TokenView& of, tensor::Device device)
      : Placement(of),
        context(in),
        sequences(nn::sequences_of(of.body), device),
        text_sequences(nn::sequences_of(of.prefix), device) {}
  template <class C>
  const C& in() const {
    return dynamic_cast<const C&>(context);
  }
  const nn::Context& context;
  ops::RowMap sequences, text_sequences;  ///< of the body's tokens, the prefix's
  ops::RotaryTable angles;                ///< of the body's tokens
  ops::RotaryTable text_angles{};         ///< of the prefix's tokens; undefined: nothing turns them
  std::vector<ops::AttentionSpan> sees{};  ///< of the text: cross attention
};
inline const DitPlacement& dit(const nn::Placement& placement) {
  return dynamic_cast<const DitPlacement&>(placement);
}

/// A step of blocks that are all modulated by one vector a sequence.
struct DitStep : nn::StepContext {
  Tensor condition;                              ///< f32 [batch, channels]
  Tensor final_modulation;                       ///< f32 [batch, 2 * hidden], of the head
  nn::PerBlock<std::vector<Tensor>> modulation;  ///< f32 [batch, n * hidden] each

  /// What the layers of a block make of the condition.
  const std::vector<Tensor>& of(int block, std::initializer_list<const nn::Linear*> layers) const;
};
inline const DitStep& dit(const nn::StepContext& step) {
  return dynamic_cast<const DitStep&>(step);
}

/// FLUX's double block (MM-DiT, Esser et al. 2024, section 4): text and image attend to each other,
/// each stream by its own layers and modulation.
struct DoubleBlock {
  struct Stream {
    Projections heads;
    nn::Linear out;
    Mlp mlp;
  };
  Stream image, text;
  TokenNorm norm;

  /// `modulation` of each stream, f32 [batch, 6 * hidden]: shift, scale and gate of the attention,
  /// then of the MLP.
  nn::Joint operator()(int site, const nn::Joint& modulation, const DitPlacement& placement,
                       const nn::Joint& streams, const nn::Seams& seams) const;
};

/// The norm before the head; `shift` and `scale` number parts of the step's final modulation.
Tensor head_norm(const nn::StepContext& step, const nn::Placement& placement, const Tensor& body,
                 int shift, int scale);

/// Blocks with one attention each over the body, or with the text if it is joint; no long skips.
nn::Geometry dit_geometry(int64_t blocks, int64_t heads, int64_t head_dim, bool joint);

/// A conditioning tensor as f32 or bf16 [batch * length, channels], checked: [batch, length,
/// channels]. Throws Error(usage) naming it and what fits. `length` receives what was found.
Tensor text_input(const nn::Conditioning& conditioning, const char* name, int64_t batch,
                  int64_t channels, int64_t* length);
/// A conditioning tensor f32 [batch, channels]. Throws Error(usage) unless it is there and fits.
Tensor batch_input(const nn::Conditioning& conditioning, const char* name, int64_t batch,
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
