#include "models/text/language_encoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/config_reader.h"
#include "base/fail.h"
#include "nn/moe/expert_weights.h"
#include "ops/elementwise.h"
#include "ops/norm.h"

namespace tessera::models {

using tensor::DType;
using tensor::Tensor;

namespace {

constexpr double kLargestTheta = 1e12;

// Vision-language models keep the language model's sizes in a nested configuration.
const base::Json& language_part(const base::Json& config) {
  const auto part = config.find("text_config");
  return part != config.end() && part->is_object() ? *part : config;
}

// transformers 5 writes 'rope_parameters', earlier versions 'rope_theta' and 'rope_scaling'.
double read_rope(const base::Json& config, const base::ConfigReader& reader) {
  double theta = reader.number("rope_theta", 10000, 1, kLargestTheta);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto it = config.find(key);
    if (it == config.end() || !it->is_object()) continue;
    const base::ConfigReader rope(*it, reader.where() + ": " + key);
    rope.choice("rope_type", "default", {"default"});
    rope.choice("type", "default", {"default", "mrope"});
    theta = rope.number("rope_theta", theta, 1, kLargestTheta);
  }
  return theta;
}

LanguageEncoderConfig parse(const base::Json& whole, const std::string& where) {
  const base::Json& config = language_part(whole);
  const base::ConfigReader reader(config, where);
  LanguageEncoderConfig c;
  c.vocab_size = reader.size("vocab_size", c.vocab_size);
  c.hidden_size = reader.size("hidden_size", c.hidden_size);
  c.intermediate_size = reader.size("intermediate_size", c.intermediate_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, 1, 10000);
  c.num_attention_heads = reader.size("num_attention_heads", c.num_attention_heads);
  c.num_key_value_heads = reader.size("num_key_value_heads", c.num_attention_heads);
  c.head_dim = reader.size("head_dim", std::max<int64_t>(c.hidden_size / c.num_attention_heads, 1));
  c.rope_theta = read_rope(config, reader);
  c.eps = reader.fraction("rms_norm_eps", c.eps);
  reader.choice("hidden_act", "silu", {"silu"});
  reader.refuse("use_sliding_window", "a sliding window");
  require(c.num_attention_heads % c.num_key_value_heads == 0 && c.head_dim % 2 == 0 &&
              c.head_dim <= 512 && c.num_attention_heads * c.head_dim <= 1 << 20,
          ErrorCode::model,
          "{}: {} heads over {} of keys with {} channels each; expected a multiple, and an even "
          "width up to 512",
          where, c.num_attention_heads, c.num_key_value_heads, c.head_dim);
  return c;
}

std::string prefix_of(const nn::Weights& weights) {
  for (const char* prefix : {"model.language_model.", "language_model.model.", "model.", ""})
    if (weights.has(std::string(prefix) + "embed_tokens.weight")) return prefix;
  return "model.";
}

}  // namespace

LanguageEncoderConfig parse_qwen3_config(const base::Json& config, const std::string& where) {
  LanguageEncoderConfig c = parse(config, where);
  c.qk_norm = true;
  c.qkv_bias = c.out_bias =
      base::ConfigReader(language_part(config), where).flag("attention_bias", false);
  return c;
}

LanguageEncoderConfig parse_qwen25_config(const base::Json& config, const std::string& where) {
  LanguageEncoderConfig c = parse(config, where);
  c.qkv_bias = true;
  return c;
}

LanguageEncoder::LanguageEncoder(const LanguageEncoderConfig& config,
                                 const std::shared_ptr<const nn::Weights>& weights, DType dtype)
    : TextEncoder(weights, prefix_of(*weights), dtype), config_(config) {}

std::vector<std::string> LanguageEncoder::unused() const {
  return {"lm_head.*", "visual.*", "model.visual.*"};
}

Tensor LanguageEncoder::embed(const TextBatch& batch) const {
  return look_up("embed_tokens.weight", config_.vocab_size, config_.hidden_size, batch.ids,
                 dtype());
}

// Text is causal; padding attends to the text only.
TextSight LanguageEncoder::sight(const TextBatch& batch) const {
  TextSight sight;
  std::vector<int64_t> places;
  for (int64_t r = 0; r < batch.texts(); ++r)
    for (int64_t t = 0; t < batch.length; ++t) {
      const int64_t first = r * batch.length;
      const int64_t visible = std::min(t + 1, batch.visible[static_cast<size_t>(r)]);
      places.push_back(t);
      auto& spans = sight.spans;
      if (!spans.empty() && spans.back().k_begin == first && spans.back().k_end == first + visible)
        spans.back().q_end = first + t + 1;
      else
        spans.push_back({first + t, first + t + 1, first, first + visible});
    }
  sight.rotary =
      ops::rotary_table(places, config_.head_dim / 2, config_.rope_theta,
                        weights().get(prefix() + "norm.weight", {config_.hidden_size}).device());
  return sight;
}

Tensor LanguageEncoder::norm(const nn::Weights& from, const Tensor& x, const std::string& name,
                             int64_t width) const {
  return ops::rms_norm(x, {.weight = from.vector(prefix() + name + ".weight", width),
                           .width = width,
                           .eps = static_cast<float>(config_.eps)});
}

Tensor LanguageEncoder::attended(const nn::Weights& from, const std::string& name, const Tensor& x,
                                 const TextSight& sight) const {
  const int64_t d = config_.hidden_size, dim = config_.head_dim;
  const int64_t wide = config_.num_attention_heads * dim,
                narrow = config_.num_key_value_heads * dim;
  const auto part = [&](const char* of, int64_t n, int64_t k, bool bias) {
    return linear(from, name + of, n, k, bias);
  };
  const auto rotate = [&](const Tensor& heads, const char* by) {
    const Tensor normed = config_.qk_norm ? norm(from, heads, name + by, dim) : heads;
    return ops::rope(normed, sight.rotary, dim);
  };
  const Tensor q = rotate(part("q_proj", wide, d, config_.qkv_bias)(x), "q_norm");
  const Tensor k = rotate(part("k_proj", narrow, d, config_.qkv_bias)(x), "k_norm");
  const Tensor v = part("v_proj", narrow, d, config_.qkv_bias)(x);
  return ops::attention(q, k, v, static_cast<int>(config_.num_attention_heads),
                        static_cast<int>(config_.num_key_value_heads), sight.spans);
}

Tensor LanguageEncoder::layer(int64_t index, const nn::Weights& from, Tensor x, const TextBatch&,
                              const TextSight& sight) const {
  const int64_t d = config_.hidden_size;
  const std::string name = fmt::format("layers.{}.", index);
  const Tensor attention =
      attended(from, name + "self_attn.", norm(from, x, name + "input_layernorm", d), sight);
  x = linear(from, name + "self_attn.o_proj", d, config_.num_attention_heads * config_.head_dim,
             config_.out_bias)(attention, {.residual = x});
  const Tensor f = norm(from, x, name + "post_attention_layernorm", d);
  const ops::Expert mlp =
      nn::load_expert(from, prefix() + name + "mlp.", config_.intermediate_size, d, dtype());
  return ops::matmul(ops::matmul(f, mlp.up, {.activation = mlp.activation}), mlp.down,
                     {.residual = x});
}

TextStates LanguageEncoder::finish(const Tensor& x, const Tensor& previous,
                                   const TextBatch& batch) const {
  return TextEncoder::finish(norm(weights(), x, "norm", config_.hidden_size), previous, batch);
}

}  // namespace tessera::models
