#include "models/text/bert_encoder.h"

#include "base/config_reader.h"
#include "base/fail.h"
#include "nn/linear.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/norm.h"

namespace tessera::models {

using tensor::DType;
using tensor::Tensor;

BertConfig parse_bert_config(const base::Json& config, const std::string& where) {
  const base::ConfigReader read(config, where);
  BertConfig c;
  c.vocab_size = read.size("vocab_size", c.vocab_size);
  c.hidden_size = read.size("hidden_size", c.hidden_size);
  c.num_hidden_layers = read.integer("num_hidden_layers", c.num_hidden_layers, 1, 10000);
  c.num_attention_heads = read.size("num_attention_heads", c.num_attention_heads);
  c.intermediate_size = read.size("intermediate_size", c.intermediate_size);
  c.max_position_embeddings = read.size("max_position_embeddings", c.max_position_embeddings);
  c.type_vocab_size = read.size("type_vocab_size", c.type_vocab_size);
  c.eps = read.number("layer_norm_eps", c.eps);
  read.choice("hidden_act", "gelu", {"gelu"});
  read.choice("position_embedding_type", "absolute", {"absolute"});
  require(
      c.hidden_size % c.num_attention_heads == 0 && c.hidden_size / c.num_attention_heads <= 512,
      ErrorCode::model, "{}: {} heads do not fit a width of {}", where, c.num_attention_heads,
      c.hidden_size);
  return c;
}

BertEncoder::BertEncoder(const BertConfig& config, std::shared_ptr<const nn::Weights> weights,
                         DType dtype)
    : config_(config), weights_(std::move(weights)), dtype_(dtype) {
  if (weights_->has("bert.embeddings.word_embeddings.weight")) prefix_ = "bert.";
}

std::vector<std::string> BertEncoder::unused() const {
  return {prefix_ + "pooler.*", prefix_ + "embeddings.position_ids", "cls.*"};
}

Tensor BertEncoder::norm(const Tensor& x, const std::string& name) const {
  const int64_t d = config_.hidden_size;
  return ops::layer_norm(x, {.weight = weights_->vector(prefix_ + name + ".weight", d),
                             .bias = weights_->vector(prefix_ + name + ".bias", d),
                             .eps = static_cast<float>(config_.eps)});
}

// Words, places and the type of a first sentence.
Tensor BertEncoder::embed(const TextBatch& batch) const {
  std::vector<int32_t> place(batch.ids.size());
  for (size_t t = 0; t < place.size(); ++t)
    place[t] = static_cast<int32_t>(t % static_cast<size_t>(batch.length));
  const std::vector<int32_t> type(place.size(), 0);
  const auto rows = [&](const char* name, int64_t count, const std::vector<int32_t>& ids) {
    return ops::gather_rows(
        weights_->get(prefix_ + "embeddings." + name, {count, config_.hidden_size}), ids,
        DType::f32);
  };
  Tensor x = rows("word_embeddings.weight", config_.vocab_size, batch.ids);
  x = ops::add(x, rows("token_type_embeddings.weight", config_.type_vocab_size, type));
  x = ops::add(x, rows("position_embeddings.weight", config_.max_position_embeddings, place));
  return ops::cast(norm(x, "embeddings.LayerNorm"), dtype_);
}

Tensor BertEncoder::layer(int64_t index, Tensor x, const TextBatch& batch) const {
  const int64_t d = config_.hidden_size, inner = config_.intermediate_size;
  const std::string name = fmt::format("encoder.layer.{}.", index);
  const auto linear = [&](const char* part, int64_t n, int64_t k) {
    return nn::Linear(*weights_, prefix_ + name + part, n, k, dtype_);
  };
  std::vector<ops::AttentionSpan> spans;
  for (int64_t r = 0; r < batch.rows(); ++r) {
    const int64_t from = r * batch.length;
    spans.push_back(
        {from, from + batch.length, from, from + batch.visible[static_cast<size_t>(r)]});
  }
  const int heads = static_cast<int>(config_.num_attention_heads);
  const Tensor attended =
      ops::attention(linear("attention.self.query", d, d)(x), linear("attention.self.key", d, d)(x),
                     linear("attention.self.value", d, d)(x), heads, heads, spans);
  x = norm(linear("attention.output.dense", d, d)(attended, {.residual = x}),
           name + "attention.output.LayerNorm");
  const Tensor wide =
      linear("intermediate.dense", inner, d)(x, {.activation = ops::Activation::gelu_erf});
  return norm(linear("output.dense", d, inner)(wide, {.residual = x}), name + "output.LayerNorm");
}

TextStates BertEncoder::run(const TextBatch& batch, const TextTrace& trace) const {
  Tensor x = embed(batch);
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    if (trace) trace(fmt::format("hidden.{}", i), by_rows(x, batch));
    x = layer(i, x, batch);
  }
  if (trace) trace(fmt::format("hidden.{}", config_.num_hidden_layers), by_rows(x, batch));
  return {.last = by_rows(x, batch), .previous = {}, .pooled = {}, .projected = {}};
}

}  // namespace tessera::models
