#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "nn/weights.h"

namespace tessera::models {

/// Texts as token ids, all of one length.
struct TextBatch {
  std::vector<int32_t> ids;      ///< [rows, length]
  std::vector<int64_t> visible;  ///< of each row: how many tokens are text; what follows is padding
  int64_t length = 0;
  int64_t rows() const { return static_cast<int64_t>(visible.size()); }
};

/// What an encoder makes of a batch; what it does not make is undefined.
struct TextStates {
  tensor::Tensor last;       ///< [rows, length, width], after the final norm
  tensor::Tensor previous;   ///< [rows, length, width] of the last layer but one, without norm
  tensor::Tensor pooled;     ///< f32 [rows, width]: `last` at the end of each text
  tensor::Tensor projected;  ///< f32 [rows, projection]: `pooled` after a last matrix
};

/// Receives "hidden.0" (embeddings), "hidden.1", ... (of each layer), [rows, length, width].
using TextTrace = std::function<void(const std::string& name, const tensor::Tensor& x)>;

/// A text encoder. A layer's weights are packed when its turn comes and released after it, so that
/// one layer is in memory at a time. Const and thread-safe.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  /// Throws Error(usage) for ids outside the vocabulary and texts that are too long.
  TextStates encode(const TextBatch& batch, const TextTrace& trace = {}) const;
  /// Tokens that it knows.
  virtual int64_t vocabulary() const = 0;
  /// Tokens of a text at most; 0: any.
  virtual int64_t longest() const { return 0; }
  /// Names that a file may hold and the encoder does not read: a name, or a beginning and '*'.
  virtual std::vector<std::string> unused() const { return {}; }

 protected:
  virtual TextStates run(const TextBatch& batch, const TextTrace& trace) const = 0;
};

/// An encoder by the class that model_index.json names: T5EncoderModel, CLIPTextModel,
/// CLIPTextModelWithProjection or BertModel. `where` names its config.json. Throws Error(model) for
/// other classes and for configurations that are not supported.
std::unique_ptr<TextEncoder> make_text_encoder(const std::string& class_name,
                                               const base::Json& config, const std::string& where,
                                               std::shared_ptr<const nn::Weights> weights,
                                               tensor::DType dtype);

/// The shape in which traces and results show tokens [rows * length, width].
tensor::Tensor by_rows(const tensor::Tensor& x, const TextBatch& batch);

}  // namespace tessera::models
