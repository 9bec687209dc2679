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

/// Texts as token ids, all padded to the same length.
struct TextBatch {
  std::vector<int32_t> ids;      ///< [batch, length]
  std::vector<int64_t> visible;  ///< number of text tokens in each row; padding follows
  int64_t length = 0;
  /// Hidden states requested in place of `last`, numbered as in transformers: 0 is the embeddings,
  /// n the state after layer n without a final norm, -2 the state after the last layer but one.
  std::vector<int> hidden = {};
  int64_t texts() const { return static_cast<int64_t>(visible.size()); }
  /// [batch * length]: position of each token in its text.
  std::vector<int32_t> places() const;
};

/// Outputs of an encoder for a batch; unsupported outputs are undefined.
struct TextStates {
  tensor::Tensor last;         ///< [batch, length, width], after the final norm
  tensor::Tensor previous;     ///< [batch, length, width], after the last layer but one, no norm
  tensor::Tensor pooled;       ///< f32 [batch, width]: `last` at the end of each text
  tensor::Tensor projected;    ///< f32 [batch, projection]: `pooled` after the projection
  tensor::Tensor chosen = {};  ///< [batch, length, states * width]: states of TextBatch::hidden

  std::array<tensor::Tensor*, 5> all() { return {&last, &previous, &pooled, &projected, &chosen}; }
};

/// Receives "hidden.0" (embeddings), "hidden.1", ... (after each layer), [batch, length, width].
using TextTrace = std::function<void(const std::string& name, const tensor::Tensor& x)>;

/// Loads a layer's weights for the duration of the layer, if stored separately.
using LayerWeights = std::function<std::shared_ptr<const nn::Weights>(int64_t layer)>;

/// Attention pattern of a batch, the same in every layer: spans or a bias.
struct TextSight {
  std::vector<ops::AttentionSpan> spans;  ///< spans of plain attention
  tensor::Tensor bias;                    ///< f32 [heads, 2 * length - 1], by key - query
  ops::RotaryTable rotary = {};           ///< angles of each token, for rotary positions
};

/// A text encoder: embeddings, layers and a final stage. A layer's weights are loaded before the
/// layer and released after, so that a single layer is in memory at a time. Const and thread-safe.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  /// Throws Error(usage) for ids outside the vocabulary and texts that are too long, Error(model)
  /// for missing hidden states. With TextBatch::hidden, encoding ends after the last requested
  /// state, and only `chosen` is set. Layers read weights from `from` if given, else from the
  /// encoder's weights; embeddings and final stage always use the encoder's.
  TextStates encode(const TextBatch& batch, const TextTrace& trace = {},
                    const LayerWeights& from = {}) const;
  virtual int64_t layers() const = 0;
  /// Number of layers needed for these hidden states; empty: all layers.
  int64_t layers_for(const std::vector<int>& hidden) const;
  /// Requests all weights of a layer from `weights`. These and the encoder's own must be on meta.
  void ask(int64_t index, const nn::Weights& weights) const;
  /// Number of token ids.
  virtual int64_t vocabulary() const = 0;
  /// Maximum tokens of a text; 0: unlimited.
  virtual int64_t longest() const { return 0; }
  /// Unused names in files: a name, or a prefix followed by '*'.
  virtual std::vector<std::string> unused() const { return {}; }

 protected:
  /// `prefix` precedes the names of all weights.
  TextEncoder(std::shared_ptr<const nn::Weights> weights, std::string prefix, tensor::DType dtype);

  /// Returns the first layer's input, [batch * length, width] in `dtype`.
  virtual tensor::Tensor embed(const TextBatch& batch) const = 0;
  virtual TextSight sight(const TextBatch& batch) const = 0;
  /// Runs a layer with weights from `from`.
  virtual tensor::Tensor layer(int64_t index, const nn::Weights& from, tensor::Tensor x,
                               const TextBatch& batch, const TextSight& sight) const = 0;
  /// Final stage with the last layer's output x and input `previous`: `last` is x, unless
  /// overridden.
  virtual TextStates finish(const tensor::Tensor& x, const tensor::Tensor& previous,
                            const TextBatch& batch) const;

  /// Layer norm of x [tokens, width] with the weights `<name>.weight` and `<name>.bias`.
  tensor::Tensor layer_norm(const nn::Weights& from, const tensor::Tensor& x,
                            const std::string& name, double eps) const;
  /// Linear layer `<name>` from k to n channels.
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

/// Throws Error(model) naming `where` unless the heads divide the width and have at most 512
/// channels each.
void check_heads(int64_t width, int64_t heads, const std::string& where);

/// Reshapes tokens [batch * length, width] for traces and results.
tensor::Tensor by_rows(const tensor::Tensor& x, const TextBatch& batch);

}  // namespace tessera::models
