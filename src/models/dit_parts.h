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

/// Two linear layers with an activation in between, with diffusers names.
class Mlp {
 public:
  Mlp() = default;
  /// `<name>.linear_1` [inner, in], `<name>.linear_2` [out, inner].
  Mlp(const nn::Weights& weights, const std::string& name, int64_t in, int64_t inner, int64_t out,
      ops::Activation activation, DType dtype);
  /// MLP of a block: `<name>.net.0.proj`, `<name>.net.2`, GELU by tanh; the inner width is sharded.
  static Mlp of_block(const nn::Weights& weights, const std::string& name, int64_t dim,
                      int64_t inner, DType dtype);
  /// MLP of a FLUX.2 block: `<name>.linear_in` [2 * inner, dim], SwiGLU, `<name>.linear_out`,
  /// without biases; the inner width is sharded.
  static Mlp gated_block(const nn::Weights& weights, const std::string& name, int64_t dim,
                         int64_t inner, DType dtype);
  /// x [tokens, in] -> [tokens, out]; `last` is the epilogue of the second layer.
  Tensor operator()(const Tensor& x, const ops::MatmulOptions& last = {},
                    nn::Reduce* reduce = nullptr) const;
  /// Applies separate MLPs to two streams in grouped products; with SwiGLU one after the other,
  /// because the inner tensors are large.
  static nn::Joint both(const Mlp& of_prefix, const Mlp& of_body, const nn::Joint& x,
                        const ops::MatmulOptions& prefix, const ops::MatmulOptions& body,
                        nn::Reduce* reduce);

 private:
  nn::Linear first_, second_;
  ops::Activation activation_ = ops::Activation::silu;
};

/// Norm over each head's channels; identity without a weight.
struct HeadNorm {
  Tensor weight, bias;  ///< f32 [head_dim]; layer norm with a bias, else RMS norm
  float eps = 1e-6f;

  static HeadNorm rms(const nn::Weights& weights, const std::string& name, int64_t dim);
  static HeadNorm layer(const nn::Weights& weights, const std::string& name, int64_t dim);
  /// Normalises, then rotates neighbouring channels by the token's angles, if given.
  Tensor operator()(const Tensor& x, const Tensor& into = {},
                    const ops::RotaryTable& angles = {}) const;
};

/// Queries or keys: a product, a norm of each head, and a rotation by the token's angles
/// (neighbouring channels; undefined: none). Writes to `into` if given.
struct NormedHeads {
  nn::Linear linear;
  HeadNorm norm;

  Tensor operator()(const Tensor& x, const ops::RotaryTable& angles = {},
                    const Tensor& into = {}) const;
  /// Queues the product only; finish() does the rest after `group` has run.
  Tensor product(const Tensor& x, const Tensor& into, ops::MatmulGroup& group) const;
  Tensor finish(const Tensor& product, const ops::RotaryTable& angles, const Tensor& into) const;
};

/// Projections to queries, keys and values of a stream.
struct Projections {
  NormedHeads q, k;
  nn::Linear v;

  nn::Qkv operator()(const Tensor& x, const ops::RotaryTable& angles = {},
                     const nn::Qkv& into = {}) const;
  /// Queues the products only; finish() does the rest after `group` has run. Without query weights,
  /// no queries are computed.
  nn::Qkv products(const Tensor& x, const nn::Qkv& into, ops::MatmulGroup& group) const;
  nn::Qkv finish(const nn::Qkv& products, const ops::RotaryTable& angles,
                 const nn::Qkv& into) const;
  /// Projects two streams with separate weights into `heads`, the prefix first. The prefix is not
  /// rotated unless the prefix has angles.
  static void both(const Projections& of_prefix, const Projections& of_body, const nn::Joint& x,
                   const ops::RotaryTable& angles, const nn::Qkv& heads,
                   const ops::RotaryTable& prefix_angles = {});
  /// Allocates heads for `tokens` tokens with the format of x; the first `silent` tokens have no
  /// queries.
  nn::Qkv room(const Tensor& x, int64_t tokens, int64_t silent = 0) const;
};

/// Splits a projection's width by whole heads.
inline nn::Split split_heads(int64_t width, int64_t head_dim) {
  return nn::Split::outputs({{width, head_dim}});
}
/// Heads of a range of tokens.
nn::Qkv part_of(const nn::Qkv& heads, int64_t begin, int64_t end);
/// Splits a joint tensor into text and latent; and joins both, if separate.
nn::Joint apart(const Tensor& joined, int64_t prefix_tokens);
Tensor together(const nn::Joint& streams);

/// Layer norm of a block, with or without weights.
struct TokenNorm {
  Tensor weight, bias;
  float eps = 1e-6f;

  static TokenNorm load(const nn::Weights& weights, const std::string& name, int64_t dim,
                        float eps);
  /// Returns norm(x) * (1 + scale[sequence]) + shift[sequence]; either may be undefined.
  Tensor operator()(const Tensor& x, const Tensor& shift = {}, const Tensor& scale = {},
                    const ops::RowMap& row_of = {}) const;
};

/// Columns [i * width, (i + 1) * width).
inline Tensor part(const Tensor& x, int64_t i, int64_t width) {
  return x.slice(1, i * width, (i + 1) * width);
}
/// Epilogue of a block's branch: gates by part i of the modulation and adds the residual stream.
inline ops::MatmulOptions gated(const Tensor& modulation, int64_t i, const ops::RowMap& batch,
                                const Tensor& stream, ops::MatmulGroup* group = nullptr) {
  return {.gate = part(modulation, i, stream.size(1)),
          .row_of = batch,
          .residual = stream,
          .group = group};
}
/// Reads a tensor as f32 with shape [rows, columns].
Tensor stored_f32(const nn::Weights& weights, const std::string& name, const tensor::Shape& shape,
                  int64_t rows, int64_t columns);

/// A stored table [rows, columns]; each request reads only some rows.
class RowTable {
 public:
  RowTable() = default;
  RowTable(const nn::Weights& weights, const std::string& name, const tensor::Shape& shape,
           int64_t rows, int64_t columns);
  /// -> f32 [requested rows, columns].
  Tensor operator()(std::span<const int32_t> rows) const;
  bool defined() const { return table_.defined(); }

 private:
  Tensor table_;                              // as stored; on meta if loaded on demand
  std::function<nn::FetchedWeight()> bring_;  // loads the table on use; null: already loaded
};

/// Text tokens for cross attention of a batch, packed without padding.
struct PackedText {
  Tensor tokens;                 ///< [sum of lengths, channels]
  std::vector<nn::Range> spans;  ///< range of each sequence
};
/// True for nonzero elements of an integer or float mask.
std::vector<bool> ones_of(const Tensor& mask);
/// Drops padding by `mask` (numbers of any type, [batch, length]; undefined: all ones).
PackedText pack_text(const Tensor& tokens, const Tensor& mask);
/// Attention spans of latent tokens over the text of their sequences, with all text on this rank.
std::vector<ops::AttentionSpan> text_spans(const nn::Segments& body,
                                           const std::vector<nn::Range>& text);

/// Row maps and tables of a view's tokens on the device; unused members are empty.
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
  ops::RowMap sequences, text_sequences;   ///< for body tokens; for prefix tokens
  ops::RotaryTable angles;                 ///< angles of the body's tokens
  ops::RotaryTable text_angles{};          ///< angles of the prefix; undefined: no rotation
  std::vector<ops::AttentionSpan> sees{};  ///< spans of text for cross attention
};
inline const DitPlacement& dit(const nn::Placement& placement) {
  return dynamic_cast<const DitPlacement&>(placement);
}

/// Step context of blocks modulated by a single vector for each sequence.
struct DitStep : nn::StepContext {
  Tensor condition;                              ///< f32 [batch, channels]
  Tensor final_modulation;                       ///< f32 [batch, 2 * hidden], for the head
  nn::PerBlock<std::vector<Tensor>> modulation;  ///< f32 [batch, n * hidden] each

  /// Modulation computed by the layers of a block from the condition.
  const std::vector<Tensor>& of(int block, std::initializer_list<const nn::Linear*> layers) const;
};
inline const DitStep& dit(const nn::StepContext& step) {
  return dynamic_cast<const DitStep&>(step);
}

/// Double block of FLUX (MM-DiT, Esser et al. 2024, section 4): joint attention of text and image
/// with separate layers and modulations.
struct DoubleBlock {
  struct Stream {
    Projections heads;
    nn::Linear out;
    Mlp mlp;
  };
  Stream image, text;
  TokenNorm norm;

  /// `modulation`: for each stream f32 [batch, 6 * hidden], shift, scale and gate of the attention,
  /// then of the MLP.
  nn::Joint operator()(int site, const nn::Joint& modulation, const DitPlacement& placement,
                       const nn::Joint& streams, const nn::Seams& seams) const;
};

/// The norm before the head; `shift` and `scale` are part indices of the step's final modulation.
Tensor head_norm(const nn::StepContext& step, const nn::Placement& placement, const Tensor& body,
                 int shift, int scale);

/// Geometry of blocks with a single attention each, over the body or, if `joint`, over body and
/// text; no long skips.
nn::Geometry dit_geometry(int64_t blocks, int64_t heads, int64_t head_dim, bool joint);

/// Returns a conditioning tensor [batch, length, channels] as f32 or bf16 [batch * length,
/// channels]. Throws Error(usage) naming the tensor and the expected shape. `length` receives the
/// length.
Tensor text_input(const nn::Conditioning& conditioning, const char* name, int64_t batch,
                  int64_t channels, int64_t* length);
/// Returns a conditioning tensor f32 [batch, channels]. Throws Error(usage) if missing or of
/// another shape.
Tensor batch_input(const nn::Conditioning& conditioning, const char* name, int64_t batch,
                   int64_t channels);
/// Returns a conditioning tensor, or an undefined tensor.
Tensor optional_input(const nn::Conditioning& conditioning, const char* name);

/// Last layer of a model: emits (p, q, C) for each token, reordered to (C, p, q).
class PatchHead {
 public:
  PatchHead() = default;
  /// `proj_out` [patch * channels, dim]; `turn` false: the output is (C, p, q) already.
  PatchHead(const nn::Weights& weights, int64_t patch, int64_t channels, int64_t dim, bool turn,
            DType dtype);
  /// -> f32 [tokens, channels * patch].
  Tensor operator()(const Tensor& x) const;

 private:
  ops::Weight weight_;
  Tensor bias_;
};

/// First layer: `<name>.weight` [dim, channels, p, q] applied to patches of a latent in token
/// layout.
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
