#pragma once

#include "base/json.h"
#include "models/text/text_encoder.h"

namespace tessera::models {

/// Sizes of a BERT (Devlin et al. 2019).
struct BertConfig {
  int64_t vocab_size = 30522, hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12,
          intermediate_size = 3072, max_position_embeddings = 512, type_vocab_size = 2;
  double eps = 1e-12;
};
/// Throws Error(model) for invalid values.
BertConfig parse_bert_config(const base::Json& config, const std::string& where);

/// A post-norm transformer; padding is masked. The pooler is not used.
class BertEncoder : public TextEncoder {
 public:
  BertEncoder(const BertConfig& config, const std::shared_ptr<const nn::Weights>& weights,
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

 private:
  BertConfig config_;
};

}  // namespace tessera::models
