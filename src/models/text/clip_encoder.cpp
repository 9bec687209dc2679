#include "models/text/clip_encoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/config_reader.h"
#include "ops/elementwise.h"

namespace tessera::models {

using tensor::DType;
using tensor::Tensor;

ClipConfig parse_clip_config(const base::Json& config, const std::string& where, bool projects) {
  const base::ConfigReader reader(config, where);
  ClipConfig c;
  c.projects = projects;
  c.vocab_size = reader.size("vocab_size", c.vocab_size);
  c.hidden_size = reader.size("hidden_size", c.hidden_size);
  c.intermediate_size = reader.size("intermediate_size", c.intermediate_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, 1, 10000);
  c.num_attention_heads = reader.size("num_attention_heads", c.num_attention_heads);
  c.max_position_embeddings = reader.size("max_position_embeddings", c.max_position_embeddings);
  c.projection_dim = reader.size("projection_dim", c.projection_dim);
  c.eos_token_id = reader.integer("eos_token_id", c.eos_token_id, 0, 1 << 24);
  c.eps = reader.fraction("layer_norm_eps", c.eps);
  c.quick_gelu = reader.choice("hidden_act", "quick_gelu", {"quick_gelu", "gelu"}) == "quick_gelu";
  check_heads(c.hidden_size, c.num_attention_heads, where);
  return c;
}

ClipEncoder::ClipEncoder(const ClipConfig& config,
                         const std::shared_ptr<const nn::Weights>& weights, DType dtype)
    : TextEncoder(weights, weights->has("embeddings.token_embedding.weight") ? "" : "text_model.",
                  dtype),
      config_(config) {}

std::vector<std::string> ClipEncoder::unused() const {
  return {"vision_model.*", "visual_projection.weight", "text_projection.weight", "logit_scale",
          prefix() + "embeddings.position_ids"};
}

Tensor ClipEncoder::embed(const TextBatch& batch) const {
  const int64_t d = config_.hidden_size;
  return ops::add(
      look_up("embeddings.token_embedding.weight", config_.vocab_size, d, batch.ids, dtype()),
      look_up("embeddings.position_embedding.weight", config_.max_position_embeddings, d,
              batch.places(), dtype()));
}

// Causal: a token attends to earlier tokens and to itself.
TextSight ClipEncoder::sight(const TextBatch& batch) const {
  TextSight sight;
  for (int64_t t = 0; t < batch.texts() * batch.length; ++t)
    sight.spans.push_back({t, t + 1, t - t % batch.length, t + 1});
  return sight;
}

Tensor ClipEncoder::layer(int64_t index, const nn::Weights& from, Tensor x, const TextBatch&,
                          const TextSight& sight) const {
  const int64_t d = config_.hidden_size, inner = config_.intermediate_size;
  const std::string name = fmt::format("encoder.layers.{}.", index);
  const auto part = [&](const char* of, int64_t n, int64_t k) {
    return linear(from, name + of, n, k);
  };
  const int heads = static_cast<int>(config_.num_attention_heads);
  const Tensor h = layer_norm(from, x, name + "layer_norm1", config_.eps);
  const Tensor attention =
      ops::attention(part("self_attn.q_proj", d, d)(h), part("self_attn.k_proj", d, d)(h),
                     part("self_attn.v_proj", d, d)(h), heads, heads, sight.spans);
  x = part("self_attn.out_proj", d, d)(attention, {.residual = x});
  const Tensor f = layer_norm(from, x, name + "layer_norm2", config_.eps);
  const auto activation =
      config_.quick_gelu ? ops::Activation::quick_gelu : ops::Activation::gelu_erf;
  return part("mlp.fc2", d, inner)(part("mlp.fc1", inner, d)(f, {.activation = activation}),
                                   {.residual = x});
}

TextStates ClipEncoder::finish(const Tensor& x, const Tensor& previous,
                               const TextBatch& batch) const {
  const Tensor last = layer_norm(weights(), x, "final_layer_norm", config_.eps);
  TextStates states{.last = by_rows(last, batch),
                    .previous = by_rows(previous, batch),
                    .pooled = {},
                    .projected = {}};
  std::vector<int32_t> ends;
  for (int64_t r = 0; r < batch.texts(); ++r) {
    const auto first = batch.ids.begin() + r * batch.length, end = first + batch.length;
    const auto eos = static_cast<int32_t>(config_.eos_token_id);
    const auto it = eos == 2 ? std::max_element(first, end) : std::find(first, end, eos);
    ends.push_back(static_cast<int32_t>(r * batch.length + (it == end ? 0 : it - first)));
  }
  states.pooled = ops::gather_rows(last, ends, DType::f32);
  if (config_.projects)  // outside the text model, so without the prefix
    states.projected = nn::Linear(weights(), "text_projection", config_.projection_dim,
                                  config_.hidden_size, dtype(), {.bias = false})(states.pooled);
  return states;
}

}  // namespace tessera::models
