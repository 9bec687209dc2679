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
  const base::ConfigReader read(config, where);
  T5Config c;
  c.vocab_size = read.size("vocab_size", c.vocab_size);
  c.d_model = read.size("d_model", c.d_model);
  c.d_kv = read.size("d_kv", c.d_kv);
  c.d_ff = read.size("d_ff", c.d_ff);
  c.num_layers = read.integer("num_layers", c.num_layers, 1, 10000);
  c.num_heads = read.size("num_heads", c.num_heads);
  c.buckets = read.integer("relative_attention_num_buckets", c.buckets, 4, 4096);
  c.max_distance = read.size("relative_attention_max_distance", c.max_distance);
  c.eps = read.number("layer_norm_epsilon", c.eps);
  require(read.choice("feed_forward_proj", "relu", {"gated-gelu", "relu"}) == "gated-gelu",
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
  // In float, as the reference computes it: a boundary must not fall to another bucket.
  const float ratio = std::log(static_cast<float>(far) / static_cast<float>(exact)) /
                      static_cast<float>(std::log(double(config.max_distance) / double(exact)));
  const auto beyond = static_cast<int64_t>(ratio * static_cast<float>(half - exact));
  return side + std::min(exact + beyond, half - 1);
}

T5Encoder::T5Encoder(const T5Config& config, std::shared_ptr<const nn::Weights> weights,
                     tensor::DType dtype)
    : config_(config), weights_(std::move(weights)), dtype_(dtype) {}

std::vector<std::string> T5Encoder::unused() const {
  return {"decoder.*", "lm_head.*", "shared.weight", "encoder.embed_tokens.weight"};
}

// f32 [heads, 2 * length - 1], by key - query + length - 1.
Tensor T5Encoder::position_bias(int64_t length) const {
  const Tensor table =
      stored_f32(*weights_, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                 {config_.buckets, config_.num_heads}, config_.buckets, config_.num_heads);
  Tensor bias = Tensor::empty({config_.num_heads, 2 * length - 1}, DType::f32, table.device());
  if (table.is_meta()) return bias;
  for (int64_t at = 0; at < 2 * length - 1; ++at) {
    const float* const row = table.row<float>(t5_bucket(at - length + 1, config_));
    for (int64_t h = 0; h < config_.num_heads; ++h) bias.row<float>(h)[at] = row[h];
  }
  return bias;
}

Tensor T5Encoder::layer(int64_t index, Tensor x, const Tensor& bias, const TextBatch& batch) const {
  const nn::Weights& w = *weights_;
  const int64_t d = config_.d_model, inner = config_.num_heads * config_.d_kv;
  const std::string name = fmt::format("encoder.block.{}.layer.", index);
  const auto norm = [&](const std::string& part) {
    return ops::rms_norm(
        x, {.weight = w.vector(part, d), .bias = {}, .eps = static_cast<float>(config_.eps)});
  };
  const auto linear = [&](const std::string& part, int64_t n, int64_t k) {
    return nn::Linear(w, name + part, n, k, dtype_, false);
  };
  const Tensor h = norm(name + "0.layer_norm.weight");
  const Tensor q = linear("0.SelfAttention.q", inner, d)(h);
  const Tensor k = linear("0.SelfAttention.k", inner, d)(h);
  const Tensor v = linear("0.SelfAttention.v", inner, d)(h);
  std::vector<Tensor> parts;
  for (int64_t r = 0; r < batch.rows(); ++r) {
    const int64_t from = r * batch.length, to = from + batch.length;
    parts.push_back(ops::biased_attention(q.slice(0, from, to), k.slice(0, from, to),
                                          v.slice(0, from, to), static_cast<int>(config_.num_heads),
                                          bias, batch.visible[static_cast<size_t>(r)]));
  }
  x = linear("0.SelfAttention.o", d, inner)(ops::concat_rows(parts), {.residual = x});
  const Tensor f = norm(name + "1.layer_norm.weight");
  const Tensor gate = linear("1.DenseReluDense.wi_0", config_.d_ff, d)(
      f, {.activation = ops::Activation::gelu_tanh});
  const Tensor up = linear("1.DenseReluDense.wi_1", config_.d_ff, d)(f);
  return linear("1.DenseReluDense.wo", d, config_.d_ff)(ops::multiply(gate, up), {.residual = x});
}

TextStates T5Encoder::run(const TextBatch& batch, const TextTrace& trace) const {
  // Files hold the one table under either name, or both.
  const char* own = "encoder.embed_tokens.weight";
  const bool shared = weights_->has("shared.weight") || !weights_->has(own);
  const Tensor table =
      weights_->get(shared ? "shared.weight" : own, {config_.vocab_size, config_.d_model});
  Tensor x = ops::gather_rows(table, batch.ids, dtype_);
  const Tensor bias = position_bias(batch.length);
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    if (trace) trace(fmt::format("hidden.{}", i), by_rows(x, batch));
    x = layer(i, x, bias, batch);
  }
  if (trace) trace(fmt::format("hidden.{}", config_.num_layers), by_rows(x, batch));
  const Tensor weight = weights_->vector("encoder.final_layer_norm.weight", config_.d_model);
  x = ops::rms_norm(x, {.weight = weight, .bias = {}, .eps = static_cast<float>(config_.eps)});
  return {.last = by_rows(x, batch), .previous = {}, .pooled = {}, .projected = {}};
}

}  // namespace tessera::models
