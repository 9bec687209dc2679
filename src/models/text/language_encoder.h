#pragma once

#include "base/json.h"
#include "models/text/text_encoder.h"

namespace tessera::models {

/// Sizes and options of a decoder language model, named as in config.json.
struct LanguageEncoderConfig {
  int64_t vocab_size = 151936, hidden_size = 4096, intermediate_size = 22016;
  int64_t num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 32;
  int64_t head_dim = 128;
  double rope_theta = 10000, eps = 1e-6;
  bool qk_norm = false;   ///< RMS norm of each head of queries and keys
  bool qkv_bias = false;  ///< biases of queries, keys and values
  bool out_bias = false;  ///< bias of the output projection
};

/// Qwen3 (Yang et al. 2025), alone or inside a Qwen3-VL. Throws Error(model) for invalid values and
/// unsupported features: scaled rotary positions, a sliding window.
LanguageEncoderConfig parse_qwen3_config(const base::Json& config, const std::string& where);
/// The language model of Qwen2.5-VL (Bai et al. 2025). Throws Error(model) alike.
LanguageEncoderConfig parse_qwen25_config(const base::Json& config, const std::string& where);

/// A decoder language model used as a text encoder: pre-norm RMS norms, grouped queries, rotary
/// positions, causal attention, SwiGLU. Padding is masked; padding rows attend to the text. For
/// pure text, a vision-language model has the same positions as a language model.
class LanguageEncoder : public TextEncoder {
 public:
  LanguageEncoder(const LanguageEncoderConfig& config,
                  const std::shared_ptr<const nn::Weights>& weights, tensor::DType dtype);
  int64_t layers() const override { return config_.num_hidden_layers; }
  int64_t vocabulary() const override { return config_.vocab_size; }
  std::vector<std::string> unused() const override;

 protected:
  tensor::Tensor embed(const TextBatch& batch) const override;
  TextSight sight(const TextBatch& batch) const override;
  tensor::Tensor layer(int64_t index, const nn::Weights& from, tensor::Tensor x,
                       const TextBatch& batch, const TextSight& sight) const override;
  TextStates finish(const tensor::Tensor& x, const tensor::Tensor& previous,
                    const TextBatch& batch) const override;

 private:
  tensor::Tensor norm(const nn::Weights& from, const tensor::Tensor& x, const std::string& name,
                      int64_t width) const;
  tensor::Tensor attended(const nn::Weights& from, const std::string& name, const tensor::Tensor& x,
                          const TextSight& sight) const;

  LanguageEncoderConfig config_;
};

}  // namespace tessera::models
