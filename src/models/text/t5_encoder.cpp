#include "models/text/t5_encoder.h"

#include <cmath>

#include "base/config_reader.h"
#include "base/fail.h"
#include "models/dit_parts.h"
#include "ops/biased_attention.h"
#include "ops/elementwise.h"
#include "ops/norm.h"

namespace tessera::models {

T5Config parse_t5_config(const base::Json& config, const std::string& where) {
  const base::ConfigReader reader(config, where);
  T5Config c;
  c.vocab_size = reader.size("vocab_size", c.vocab_size);
  c.d_model = reader.size("d_model", c.d_model);
  c.d_kv = reader.size("d_kv", c.d_kv);
  c.d_ff = reader.size("d_ff", c.d_ff);
  c.num_layers = reader.integer("num_layers", c.num_layers, 1, 10000);
  c.num_heads = reader.size("num_heads", c.num_heads);
  c.buckets = reader.integer("relative_attention_num_buckets", c.buckets, 4, 4096);
  c.max_distance = reader.size("relative_attention_max_distance", c.max_distance);
  c.eps = reader.fraction("layer_norm_epsilon", c.eps);
  require(reader.choice("feed_forward_proj", "relu", {"gated-gelu", "relu"}) == "gated-gelu",
          ErrorCode::model, "{}: 'feed_forward_proj' is relu; only gated-gelu is supported", where);
  require(c.buckets % 4 == 0 && c.max_distance > c.buckets / 4 && c.d_kv <= 512, ErrorCode::model,
          "{}: {} buckets up to a distance of {} and heads of {} do not fit", where, c.buckets,
          c.max_distance, c.d_kv);
  return c;
}

int64_t t5_bucket(int64_t distance, const T5Config& config) {
  const int64_t half = config.buckets / 2, exact = half / 2;
  const int64_t side = distance > 0 ? half : 0, far = std::abs(distance);
  if (far < exact) return side + far;
  // Computed in f32 like the reference, so that bucket boundaries agree.
  const float ratio = std::log(static_cast<float>(far) / static_cast<float>(exact)) /
                      static_cast<float>(std::log(double(config.max_distance) / double(exact)));
  const auto beyond = static_cast<int64_t>(ratio * static_cast<float>(half - exact));
  return side + std::min(exact + beyond, half - 1);
}

T5Encoder::T5Encoder(const T5Config& config, std::shared_ptr<const nn::Weights> weights,
                     tensor::DType dtype)
    : TextEncoder(std::move(weights), "", dtype), config_(config) {}

std::vector<std::string> T5Encoder::unused() const {
  return {"decoder.*", "lm_head.*", "shared.weight", "encoder.embed_tokens.weight"};
}

Tensor T5Encoder::embed(const TextBatch& batch) const {
  // Files hold the table under either name, or both.
  const char* own = "encoder.embed_tokens.weight";
  const bool shared = weights().has("shared.weight") || !weights().has(own);
  return look_up(shared ? "shared.weight" : own, config_.vocab_size, config_.d_model, batch.ids,
                 dtype());
}

// All layers share the relative position table of the first layer.
TextSight T5Encoder::sight(const TextBatch& batch) const {
  const int64_t length = batch.length;
  const Tensor table =
      stored_f32(weights(), "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                 {config_.buckets, config_.num_heads}, config_.buckets, config_.num_heads);
  const tensor::Shape shape = {config_.num_heads, 2 * length - 1};
  if (table.is_meta())
    return {.spans = {}, .bias = Tensor::empty(shape, DType::f32, table.device())};
  const Tensor here = table.to(tensor::Device::cpu), bias = Tensor::empty(shape, DType::f32);
  for (int64_t at = 0; at < 2 * length - 1; ++at) {
    const float* const row = here.row<float>(t5_bucket(at - length + 1, config_));
    for (int64_t h = 0; h < config_.num_heads; ++h) bias.row<float>(h)[at] = row[h];
  }
  return {.spans = {}, .bias = bias.to(table.device())};
}

Tensor T5Encoder::norm(const nn::Weights& from, const Tensor& x, const std::string& name) const {
  return ops::rms_norm(x, {.weight = from.vector(name + ".weight", config_.d_model),
                           .bias = {},
                           .eps = static_cast<float>(config_.eps)});
}

Tensor T5Encoder::layer(int64_t index, const nn::Weights& from, Tensor x, const TextBatch& batch,
                        const TextSight& sight) const {
  const int64_t d = config_.d_model, inner = config_.num_heads * config_.d_kv;
  const std::string name = fmt::format("encoder.block.{}.layer.", index);
  const auto part = [&](const char* of, int64_t n, int64_t k) {
    return linear(from, name + of, n, k, false);
  };
  const Tensor h = norm(from, x, name + "0.layer_norm");
  const Tensor q = part("0.SelfAttention.q", inner, d)(h);
  const Tensor k = part("0.SelfAttention.k", inner, d)(h);
  const Tensor v = part("0.SelfAttention.v", inner, d)(h);
  std::vector<Tensor> texts;
  for (int64_t r = 0; r < batch.texts(); ++r) {
    const int64_t begin = r * batch.length, end = begin + batch.length;
    texts.push_back(ops::biased_attention(
        q.slice(0, begin, end), k.slice(0, begin, end), v.slice(0, begin, end),
        static_cast<int>(config_.num_heads), sight.bias, batch.visible[static_cast<size_t>(r)]));
  }
  x = part("0.SelfAttention.o", d, inner)(ops::concat_rows(texts), {.residual = x});
  const Tensor f = norm(from, x, name + "1.layer_norm");
  const Tensor gate =
      part("1.DenseReluDense.wi_0", config_.d_ff, d)(f, {.activation = ops::Activation::gelu_tanh});
  const Tensor up = part("1.DenseReluDense.wi_1", config_.d_ff, d)(f);
  return part("1.DenseReluDense.wo", d, config_.d_ff)(ops::multiply(gate, up), {.residual = x});
}

TextStates T5Encoder::finish(const Tensor& x, const Tensor& previous,
                             const TextBatch& batch) const {
  return TextEncoder::finish(norm(weights(), x, "encoder.final_layer_norm"), previous, batch);
}

}  // namespace tessera::models
