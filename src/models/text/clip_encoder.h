#pragma once

#include "base/json.h"
#include "models/text/text_encoder.h"

namespace tessera::models {

/// Sizes of a CLIP text encoder (Radford et al. 2021).
struct ClipConfig {
  int64_t vocab_size = 49408, hidden_size = 512, intermediate_size = 2048, num_hidden_layers = 12,
          num_attention_heads = 8, max_position_embeddings = 77, projection_dim = 512;
  int64_t eos_token_id = 49407;  ///< 2, as published: the text ends at the largest id
  double eps = 1e-5;
  bool quick_gelu = true;  ///< x * sigmoid(1.702 x) instead of GELU
  bool projects = false;   ///< with a projection of the pooled state
};
/// Throws Error(model) for invalid values.
ClipConfig parse_clip_config(const base::Json& config, const std::string& where, bool projects);

/// A causal transformer; pooled is the hidden state at the end of the text.
class ClipEncoder : public TextEncoder {
 public:
  ClipEncoder(const ClipConfig& config, const std::shared_ptr<const nn::Weights>& weights,
              tensor::DType dtype);
  int64_t layers() const override { return config_.num_hidden_layers; }
  int64_t vocabulary() const override { return config_.vocab_size; }
  int64_t longest() const override { return config_.max_position_embeddings; }
  std::vector<std::string> unused() const override;

 protected:
  tensor::Tensor embed(const TextBatch& batch) const override;
  TextSight sight(const TextBatch& batch) const override;
  tensor::Tensor layer(int64_t index, const nn::Weights& from, tensor::Tensor x,
                       const TextBatch& batch, const TextSight& sight) const override;
  TextStates finish(const tensor::Tensor& x, const tensor::Tensor& previous,
                    const TextBatch& batch) const override;

 private:
  ClipConfig config_;
};

}  // namespace tessera::models
