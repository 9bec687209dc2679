#pragma once

#include "base/json.h"
#include "models/text/text_encoder.h"

namespace tessera::models {

/// Sizes of the encoder of a T5 1.1 (Raffel et al. 2020; gated GELU as in Shazeer 2020).
struct T5Config {
  int64_t vocab_size = 32128, d_model = 512, d_kv = 64, d_ff = 2048, num_layers = 6, num_heads = 8;
  int64_t buckets = 32, max_distance = 128;  ///< relative position buckets
  double eps = 1e-6;
};
/// Throws Error(model) for invalid values, and for activations other than gated GELU.
T5Config parse_t5_config(const base::Json& config, const std::string& where);

/// Bucket of a distance key - query (Raffel et al. 2020, section 2.1): exact for small distances,
/// logarithmic for large ones; half of the buckets for each direction.
int64_t t5_bucket(int64_t distance, const T5Config& config);

/// Encoder of T5: relative instead of absolute positions, pre-norm layers.
class T5Encoder : public TextEncoder {
 public:
  T5Encoder(const T5Config& config, std::shared_ptr<const nn::Weights> weights,
            tensor::DType dtype);
  int64_t layers() const override { return config_.num_layers; }
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
  tensor::Tensor norm(const nn::Weights& from, const tensor::Tensor& x,
                      const std::string& name) const;

  T5Config config_;
};

}  // namespace tessera::models
