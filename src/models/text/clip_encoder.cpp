#include "models/text/clip_encoder.h"

#include <algorithm>

#include "base/config_reader.h"
#include "base/fail.h"
#include "nn/linear.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/norm.h"

namespace tessera::models {

using tensor::DType;
using tensor::Tensor;

ClipConfig parse_clip_config(const base::Json& config, const std::string& where, bool projects) {
  const base::ConfigReader read(config, where);
  ClipConfig c;
  c.projects = projects;
  c.vocab_size = read.size("vocab_size", c.vocab_size);
  c.hidden_size = read.size("hidden_size", c.hidden_size);
  c.intermediate_size = read.size("intermediate_size", c.intermediate_size);
  c.num_hidden_layers = read.integer("num_hidden_layers", c.num_hidden_layers, 1, 10000);
  c.num_attention_heads = read.size("num_attention_heads", c.num_attention_heads);
  c.max_position_embeddings = read.size("max_position_embeddings", c.max_position_embeddings);
  c.projection_dim = read.size("projection_dim", c.projection_dim);
  c.eos_token_id = read.integer("eos_token_id", c.eos_token_id, 0, 1 << 24);
  c.eps = read.number("layer_norm_eps", c.eps);
  c.quick_gelu = read.choice("hidden_act", "quick_gelu", {"quick_gelu", "gelu"}) == "quick_gelu";
  require(
      c.hidden_size % c.num_attention_heads == 0 && c.hidden_size / c.num_attention_heads <= 512,
      ErrorCode::model, "{}: {} heads do not fit a width of {}", where, c.num_attention_heads,
      c.hidden_size);
  return c;
}

ClipEncoder::ClipEncoder(const ClipConfig& config, std::shared_ptr<const nn::Weights> weights,
                         DType dtype)
    : config_(config), weights_(std::move(weights)), dtype_(dtype) {
  if (!weights_->has("embeddings.token_embedding.weight")) prefix_ = "text_model.";
}

std::vector<std::string> ClipEncoder::unused() const {
  return {"vision_model.*", "visual_projection.weight", "text_projection.weight", "logit_scale",
          prefix_ + "embeddings.position_ids"};
}

Tensor ClipEncoder::norm(const Tensor& x, const std::string& name) const {
  const int64_t d = config_.hidden_size;
  return ops::layer_norm(x, {.weight = weights_->vector(prefix_ + name + ".weight", d),
                             .bias = weights_->vector(prefix_ + name + ".bias", d),
                             .eps = static_cast<float>(config_.eps)});
}

// x f32; x * sigmoid(1.702 x) = silu(1.702 x) / 1.702.
Tensor ClipEncoder::activate(const Tensor& x) const {
  if (!config_.quick_gelu) return ops::gelu_erf(x);
  const float scale = 1.702f;
  const Tensor y = ops::silu(ops::blend(x, scale, x, 0));
  return ops::blend(y, 1 / scale, y, 0);
}

Tensor ClipEncoder::layer(int64_t index, Tensor x, const TextBatch& batch) const {
  const int64_t d = config_.hidden_size, inner = config_.intermediate_size;
  const std::string name = fmt::format("encoder.layers.{}.", index);
  const auto linear = [&](const char* part, int64_t n, int64_t k) {
    return nn::Linear(*weights_, prefix_ + name + part, n, k, dtype_);
  };
  std::vector<ops::AttentionSpan> causal;
  for (int64_t t = 0; t < batch.rows() * batch.length; ++t)
    causal.push_back({t, t + 1, t - t % batch.length, t + 1});
  const int heads = static_cast<int>(config_.num_attention_heads);
  const Tensor h = norm(x, name + "layer_norm1");
  const Tensor attended =
      ops::attention(linear("self_attn.q_proj", d, d)(h), linear("self_attn.k_proj", d, d)(h),
                     linear("self_attn.v_proj", d, d)(h), heads, heads, causal);
  x = linear("self_attn.out_proj", d, d)(attended, {.residual = x});
  const Tensor wide = linear("mlp.fc1", inner, d)(norm(x, name + "layer_norm2"),
                                                  {.out = DType::f32, .out_as_input = false});
  return linear("mlp.fc2", d, inner)(ops::cast(activate(wide), dtype_), {.residual = x});
}

TextStates ClipEncoder::run(const TextBatch& batch, const TextTrace& trace) const {
  const int64_t d = config_.hidden_size;
  const std::string tables = prefix_ + "embeddings.";
  const Tensor tokens = weights_->get(tables + "token_embedding.weight", {config_.vocab_size, d});
  const Tensor places =
      weights_->get(tables + "position_embedding.weight", {config_.max_position_embeddings, d});
  std::vector<int32_t> place(batch.ids.size()), ends;
  for (size_t t = 0; t < place.size(); ++t)
    place[t] = static_cast<int32_t>(t % static_cast<size_t>(batch.length));
  Tensor x = ops::add(ops::gather_rows(tokens, batch.ids, dtype_),
                      ops::gather_rows(places, place, dtype_));
  TextStates states;
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    if (trace) trace(fmt::format("hidden.{}", i), by_rows(x, batch));
    states.previous = by_rows(x, batch);
    x = layer(i, x, batch);
  }
  if (trace) trace(fmt::format("hidden.{}", config_.num_hidden_layers), by_rows(x, batch));
  const Tensor last = norm(x, "final_layer_norm");
  states.last = by_rows(last, batch);
  for (int64_t r = 0; r < batch.rows(); ++r) {
    const auto first = batch.ids.begin() + r * batch.length, end = first + batch.length;
    const auto eos = static_cast<int32_t>(config_.eos_token_id);
    const auto found = eos == 2 ? std::max_element(first, end) : std::find(first, end, eos);
    ends.push_back(static_cast<int32_t>(r * batch.length + (found == end ? 0 : found - first)));
  }
  states.pooled = ops::gather_rows(last, ends, DType::f32);
  if (config_.projects)
    states.projected = nn::Linear(*weights_, "text_projection", config_.projection_dim, d, dtype_,
                                  false)(states.pooled);
  return states;
}

}  // namespace tessera::models
