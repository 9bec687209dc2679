#include "models/text/bert_encoder.h"

#include <fmt/format.h>

#include "base/config_reader.h"
#include "ops/elementwise.h"

namespace tessera::models {

using tensor::DType;
using tensor::Tensor;

BertConfig parse_bert_config(const base::Json& config, const std::string& where) {
  const base::ConfigReader reader(config, where);
  BertConfig c;
  c.vocab_size = reader.size("vocab_size", c.vocab_size);
  c.hidden_size = reader.size("hidden_size", c.hidden_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, 1, 10000);
  c.num_attention_heads = reader.size("num_attention_heads", c.num_attention_heads);
  c.intermediate_size = reader.size("intermediate_size", c.intermediate_size);
  c.max_position_embeddings = reader.size("max_position_embeddings", c.max_position_embeddings);
  c.type_vocab_size = reader.size("type_vocab_size", c.type_vocab_size);
  c.eps = reader.fraction("layer_norm_eps", c.eps);
  reader.choice("hidden_act", "gelu", {"gelu"});
  reader.choice("position_embedding_type", "absolute", {"absolute"});
  check_heads(c.hidden_size, c.num_attention_heads, where);
  return c;
}

BertEncoder::BertEncoder(const BertConfig& config,
                         const std::shared_ptr<const nn::Weights>& weights, DType dtype)
    : TextEncoder(weights, weights->has("bert.embeddings.word_embeddings.weight") ? "bert." : "",
                  dtype),
      config_(config) {}

std::vector<std::string> BertEncoder::unused() const {
  return {prefix() + "pooler.*", prefix() + "embeddings.position_ids", "cls.*"};
}

// Adds word, position and token type embeddings; all tokens have type 0.
Tensor BertEncoder::embed(const TextBatch& batch) const {
  const std::vector<int32_t> type(batch.ids.size(), 0);
  const auto rows = [&](const char* name, int64_t count, const std::vector<int32_t>& ids) {
    return look_up(std::string("embeddings.") + name, count, config_.hidden_size, ids, DType::f32);
  };
  Tensor x = rows("word_embeddings.weight", config_.vocab_size, batch.ids);
  x = ops::add(x, rows("token_type_embeddings.weight", config_.type_vocab_size, type));
  x = ops::add(x,
               rows("position_embeddings.weight", config_.max_position_embeddings, batch.places()));
  return ops::cast(layer_norm(weights(), x, "embeddings.LayerNorm", config_.eps), dtype());
}

TextSight BertEncoder::sight(const TextBatch& batch) const {
  TextSight sight;
  for (int64_t r = 0; r < batch.texts(); ++r) {
    const int64_t from = r * batch.length;
    sight.spans.push_back(
        {from, from + batch.length, from, from + batch.visible[static_cast<size_t>(r)]});
  }
  return sight;
}

Tensor BertEncoder::layer(int64_t index, const nn::Weights& from, Tensor x, const TextBatch&,
                          const TextSight& sight) const {
  const int64_t d = config_.hidden_size, inner = config_.intermediate_size;
  const std::string name = fmt::format("encoder.layer.{}.", index);
  const auto part = [&](const char* of, int64_t n, int64_t k) {
    return linear(from, name + of, n, k);
  };
  const auto norm = [&](const Tensor& of, const char* by) {
    return layer_norm(from, of, name + by, config_.eps);
  };
  const int heads = static_cast<int>(config_.num_attention_heads);
  const Tensor attention =
      ops::attention(part("attention.self.query", d, d)(x), part("attention.self.key", d, d)(x),
                     part("attention.self.value", d, d)(x), heads, heads, sight.spans);
  x = norm(part("attention.output.dense", d, d)(attention, {.residual = x}),
           "attention.output.LayerNorm");
  const Tensor wide =
      part("intermediate.dense", inner, d)(x, {.activation = ops::Activation::gelu_erf});
  return norm(part("output.dense", d, inner)(wide, {.residual = x}), "output.LayerNorm");
}

}  // namespace tessera::models
