#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/linear.h"
#include "ops/attention.h"
#include "ops/rope.h"

namespace tessera::models {

/// Texts as token ids, all of one length.
struct TextBatch {
  std::vector<int32_t> ids;  ///< [batch, length]
  std::vector<int64_t>
      visible;  ///< of each text: how many tokens are text; what follows is padding
  int64_t length = 0;
  /// Hidden states that are asked for in place of `last`, as transformers numbers them: 0 is the
  /// embeddings, n the state after layer n without a final norm, -2 that after the last but one.
  std::vector<int> hidden = {};
  int64_t texts() const { return static_cast<int64_t>(visible.size()); }
  /// [batch * length]: the place of each token in its text.
  std::vector<int32_t> places() const;
};

/// What an encoder makes of a batch; what it does not make is undefined.
struct TextStates {
  tensor::Tensor last;         ///< [batch, length, width], after the final norm
  tensor::Tensor previous;     ///< [batch, length, width] of the last layer but one, without norm
  tensor::Tensor pooled;       ///< f32 [batch, width]: `last` at the end of each text
  tensor::Tensor projected;    ///< f32 [batch, projection]: `pooled` after a last matrix
  tensor::Tensor chosen = {};  ///< [batch, length, states * width]: TextBatch::hidden side by side

  std::array<tensor::Tensor*, 5> all() { return {&last, &previous, &pooled, &projected, &chosen}; }
};

/// Receives "hidden.0" (embeddings), "hidden.1", ... (of each layer), [batch, length, width].
using TextTrace = std::function<void(const std::string& name, const tensor::Tensor& x)>;

/// Weights of a layer for the time of its turn, of whom they do not lie where the others do.
using LayerWeights = std::function<std::shared_ptr<const nn::Weights>(int64_t layer)>;

/// What the tokens of a batch attend to, the same in every layer: one or the other.
struct TextSight {
  std::vector<ops::AttentionSpan> spans;  ///< of plain attention
  tensor::Tensor bias;                    ///< f32 [heads, 2 * length - 1], by key - query
  ops::RotaryTable rotary = {};           ///< of each token, where places turn queries and keys
};

/// A text encoder: embeddings, layers, and what is made of the last. A layer's weights are packed
/// when its turn comes and released after it, so that one layer is in memory at a time. Const and
/// thread-safe.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  /// Throws Error(usage) for ids outside the vocabulary and texts that are too long, Error(model)
  /// for hidden states that it does not have. With TextBatch::hidden it ends behind the last of
  /// these, and `chosen` is all that it gives. Layers read
  /// what `from` gives, else the encoder's weights, as all that stands before and behind them does.
  TextStates encode(const TextBatch& batch, const TextTrace& trace = {},
                    const LayerWeights& from = {}) const;
  virtual int64_t layers() const = 0;
  /// How many of them make these hidden states: all without any.
  int64_t layers_for(const std::vector<int>& hidden) const;
  /// Asks `weights` for all that a layer reads. They and the encoder's own are on meta.
  void ask(int64_t index, const nn::Weights& weights) const;
  /// Tokens that it knows.
  virtual int64_t vocabulary() const = 0;
  /// Tokens of a text at most; 0: any.
  virtual int64_t longest() const { return 0; }
  /// Names that a file may hold and the encoder does not read: a name, or a beginning and '*'.
  virtual std::vector<std::string> unused() const { return {}; }

 protected:
  /// `prefix` stands before the names of all weights.
  TextEncoder(std::shared_ptr<const nn::Weights> weights, std::string prefix, tensor::DType dtype);

  /// [batch * length, width] of `dtype`, which the first layer reads.
  virtual tensor::Tensor embed(const TextBatch& batch) const = 0;
  virtual TextSight sight(const TextBatch& batch) const = 0;
  /// With the weights of that layer.
  virtual tensor::Tensor layer(int64_t index, const nn::Weights& from, tensor::Tensor x,
                               const TextBatch& batch, const TextSight& sight) const = 0;
  /// What becomes of the last layer's x and its input `previous`: `last` is x, unless overridden.
  virtual TextStates finish(const tensor::Tensor& x, const tensor::Tensor& previous,
                            const TextBatch& batch) const;

  /// Layer norm of x [tokens, width] with the weights `<name>.weight` and `<name>.bias`.
  tensor::Tensor layer_norm(const nn::Weights& from, const tensor::Tensor& x,
                            const std::string& name, double eps) const;
  /// The layer `<name>` from k to n channels.
  nn::Linear linear(const nn::Weights& from, const std::string& name, int64_t n, int64_t k,
                    bool bias = true) const;
  /// Rows `ids` of the table `name` [count, width], as `out`.
  tensor::Tensor look_up(const std::string& name, int64_t count, int64_t width,
                         const std::vector<int32_t>& ids, tensor::DType out) const;
  const nn::Weights& weights() const { return *weights_; }
  const std::string& prefix() const { return prefix_; }
  tensor::DType dtype() const { return dtype_; }

 private:
  std::shared_ptr<const nn::Weights> weights_;
  std::string prefix_;
  tensor::DType dtype_;
};

/// Throws Error(model) naming `where` unless the heads share the width, each with 512 channels at
/// most.
void check_heads(int64_t width, int64_t heads, const std::string& where);

/// The shape in which traces and results show tokens [batch * length, width].
tensor::Tensor by_rows(const tensor::Tensor& x, const TextBatch& batch);

}  // namespace tessera::models
