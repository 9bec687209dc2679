#include "models/diffusion_gemma_spec.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/fail.h"
#include "models/token_config.h"
#include "nn/sharded_weights.h"

namespace tessera::models {
namespace {

using base::Json;
using Layer = DiffusionGemmaConfig::Layer;

constexpr int64_t kMost = int64_t{1} << 24;
constexpr int64_t kGlobalEvery = 6;  // period of global layers without layer_types

// Vision is unsupported: an image token in a prompt is refused.
constexpr const char* kInertAbove[] = {"vision_config",  "vision_soft_tokens_per_image",
                                       "boi_token_id",   "eoi_token_id",
                                       "image_token_id", "eos_token_id",
                                       "text_config",    "tie_word_embeddings",
                                       "canvas_length"};
const GuardedKey kGuardedAbove[] = {{"quantization_config", {}, "quantised weights"},
                                    {"audio_config", {}, "audio"}};

// The reference reads tie_word_embeddings from the top level only, and ignores the end-of-text ids
// of config.json.
constexpr const char* kInert[] = {"tie_word_embeddings", "eos_token_id", "intermediate_size"};
const GuardedKey kGuarded[] = {
    {"enable_moe_block", {"true"}, "a model without experts"},
    {"hidden_size_per_layer_input", {"0"}, "embeddings of each layer"},
    {"num_kv_shared_layers", {"0"}, "layers that share keys and values"},
    {"use_double_wide_mlp", {"false"}, "a double-wide MLP"},
    {"attention_k_eq_v", {"true"}, "value projections in global layers"},
    {"attn_logit_softcapping", {}, "soft-capped attention"},
    {"use_bidirectional_attention", {"\"vision\""}, "attention of text in both directions"}};

std::vector<bool> global_layers(const TokenConfig& read, int64_t count) {
  std::vector<bool> global;
  if (!read.has("layer_types")) {
    for (int64_t l = 1; l <= count; ++l) global.push_back(l % kGlobalEvery == 0);
  } else {
    const Json& types = read.at("layer_types");
    require(types.is_array() && static_cast<int64_t>(types.size()) == count, ErrorCode::model,
            "{}: 'layer_types' is {}; expected one type for each of {} layers", read.where(),
            base::ConfigReader::shown(types), count);
    for (const Json& type : types) {
      require(type == "sliding_attention" || type == "full_attention", ErrorCode::model,
              "{}: 'layer_types' holds {}; expected \"sliding_attention\" or \"full_attention\"",
              read.where(), base::ConfigReader::shown(type));
      global.push_back(type == "full_attention");
    }
  }
  global.back() = true;
  return global;
}

// Rotary parameters for a kind of layers: {"rope_type", "rope_theta", "partial_rotary_factor"}.
struct Rotary {
  double theta = 10000, part = 1;
};
Rotary read_rotary(const TokenConfig& read, bool global) {
  const char* const kind = global ? "full_attention" : "sliding_attention";
  const Rotary usual = global ? Rotary{1000000, 0.25} : Rotary{10000, 1};
  if (!read.has("rope_parameters")) return usual;
  const Json& all = read.at("rope_parameters");
  require(all.is_object(), ErrorCode::model, "{}: 'rope_parameters' is {}; expected an object",
          read.where(), base::ConfigReader::shown(all));
  for (const auto& item : all.items())
    require(item.key() == "sliding_attention" || item.key() == "full_attention", ErrorCode::model,
            "{}: 'rope_parameters' holds {}; expected \"sliding_attention\" and \"full_attention\"",
            read.where(), base::ConfigReader::shown(Json(item.key())));
  const auto found = all.find(kind);
  if (found == all.end() || found->is_null()) return usual;
  require(found->is_object(), ErrorCode::model,
          "{}: 'rope_parameters' holds {} for '{}'; expected an object", read.where(),
          base::ConfigReader::shown(*found), kind);
  const TokenConfig one(*found, fmt::format("{}: 'rope_parameters' of '{}'", read.where(), kind));
  const char* const type = global ? "proportional" : "default";
  if (one.text("rope_type", type) != type) one.refuse_value("rope_type", type);
  const Rotary made{one.number("rope_theta", usual.theta, 1, 1e12),
                    global ? one.number("partial_rotary_factor", usual.part, 0, 1) : 1};
  one.check_rest({}, {});
  return made;
}

// Sizes of individual layers in the format of newer transformers versions: {"5": {"head_dim":
// 512}}.
std::map<int64_t, std::pair<int64_t, int64_t>> read_sizes(const TokenConfig& read, int64_t layers,
                                                          const Layer& usual) {
  std::map<int64_t, std::pair<int64_t, int64_t>> sizes;
  if (!read.has("per_layer_config")) return sizes;
  const Json& all = read.at("per_layer_config");
  require(all.is_object(), ErrorCode::model, "{}: 'per_layer_config' is {}; expected an object",
          read.where(), base::ConfigReader::shown(all));
  for (const auto& item : all.items()) {
    int64_t layer = -1;
    for (int64_t l = 0; l < layers; ++l)
      if (item.key() == std::to_string(l)) layer = l;
    require(layer >= 0 && item.value().is_object(), ErrorCode::model,
            "{}: 'per_layer_config' holds {} for {}; expected sizes of a layer from 0 to {}",
            read.where(), base::ConfigReader::shown(item.value()),
            base::ConfigReader::shown(Json(item.key())), layers - 1);
    const TokenConfig one(item.value(),
                          fmt::format("{}: 'per_layer_config' of layer {}", read.where(), layer));
    sizes[layer] = {one.integer("head_dim", usual.head_dim, 2, 512),
                    one.integer("num_key_value_heads", usual.kv_heads, 1, 10000)};
    one.check_rest({}, {});
  }
  return sizes;
}

void read_layers(const TokenConfig& read, DiffusionGemmaConfig& c) {
  const int64_t count = read.integer("num_hidden_layers", 1, 10000);
  Layer sliding;
  sliding.head_dim = read.integer("head_dim", 256, 2, 512);
  sliding.kv_heads = read.integer("num_key_value_heads", 1, c.heads);
  sliding.window = read.integer("sliding_window", 1024, 1, int64_t{1} << 31);
  const auto sizes = read_sizes(read, count, sliding);
  Layer global;
  // If sizes are given for each layer, missing layers have the common sizes.
  const bool by_layer = read.has("per_layer_config");
  global.head_dim = read.integer("global_head_dim", by_layer ? sliding.head_dim : 512, 2, 512);
  global.kv_heads = read.integer("num_global_key_value_heads", sliding.kv_heads, 1, c.heads);
  const Rotary turns[] = {read_rotary(read, false), read_rotary(read, true)};
  for (const bool is_global : global_layers(read, count)) {
    Layer layer = is_global ? global : sliding;
    const auto index = static_cast<int64_t>(c.layers.size());
    if (const auto own = sizes.find(index); own != sizes.end())
      std::tie(layer.head_dim, layer.kv_heads) = own->second;
    const Rotary& rotary = turns[is_global ? 1 : 0];
    layer.theta = rotary.theta;
    layer.turned_pairs =
        static_cast<int64_t>(std::floor(rotary.part * static_cast<double>(layer.head_dim) / 2));
    require(layer.head_dim % 2 == 0 && c.heads % layer.kv_heads == 0, ErrorCode::model,
            "{}: {} heads over {} key heads of {} channels do not fit in layer {}; expected a "
            "multiple, and an even number of channels",
            read.where(), c.heads, layer.kv_heads, layer.head_dim, index);
    c.layers.push_back(layer);
  }
}

}  // namespace

DiffusionGemmaConfig parse_diffusion_gemma_config(const Json& config, const std::string& where) {
  const TokenConfig above(config, where);
  const Json& text = above.at("text_config");
  require(text.is_object(), ErrorCode::model, "{}: 'text_config' is {}; expected an object", where,
          base::ConfigReader::shown(text));
  const TokenConfig read(text, where + ": 'text_config'");
  DiffusionGemmaConfig c;
  c.vocabulary = read.integer("vocab_size", 2, kMost);
  c.hidden = read.integer("hidden_size", 8, kMost);
  c.heads = read.integer("num_attention_heads", 1, 10000);
  c.dense_width = read.integer("intermediate_size", 1, kMost);
  c.expert_width = read.integer("moe_intermediate_size", 1, int64_t{1} << 20);
  c.experts = read.integer("num_experts", 1, 1 << 16);
  c.top_k = read.integer("top_k_experts", 1, c.experts);
  c.eps = read.number("rms_norm_eps", 1e-6, 0, 1);
  c.logit_cap = read.positive("final_logit_softcapping", 30);
  c.bias = read.truth("attention_bias", false);
  c.context = read.integer("max_position_embeddings", 131072, 1, int64_t{1} << 31);
  if (read.text("hidden_activation", "gelu_pytorch_tanh") != "gelu_pytorch_tanh")
    read.refuse_value("hidden_activation", "\"gelu_pytorch_tanh\"");
  read_layers(read, c);
  read.check_rest(kInert, kGuarded);
  c.tied = above.truth("tie_word_embeddings", true);
  require(!c.tied || !c.bias, ErrorCode::model,
          "{}: 'attention_bias' with 'tie_word_embeddings' is not supported: encoder and decoder "
          "have biases of their own",
          where);
  c.canvas = above.integer("canvas_length", 256, 1, 1 << 16);
  above.check_rest(kInertAbove, kGuardedAbove);
  return c;
}

TokenSpec diffusion_gemma_spec(const Source& source) {
  const DiffusionGemmaConfig c = parse_diffusion_gemma_config(source.config, source.where);
  TokenSpec spec;
  spec.blocks = static_cast<int64_t>(c.layers.size());
  spec.make = [c](const nn::Weights& weights, const nn::Portion& portion, nn::DType dtype, int) {
    return std::make_unique<DiffusionGemma>(c, nn::ShardedWeights(weights, portion.shard), portion,
                                            dtype);
  };
  spec.expert = [c](const nn::Weights& weights, int64_t block, int64_t expert, nn::DType dtype) {
    return load_routed_expert(c, weights, block, expert, dtype);
  };
  spec.vocabulary = c.vocabulary;
  spec.context = c.context;
  spec.experts = static_cast<int>(c.experts);
  spec.top_k = static_cast<int>(c.top_k);
  spec.block_causal = true;  // text is encoded token by token
  spec.canvas = true;
  spec.block = static_cast<int>(c.canvas);
  spec.decode = "canvas";
  const TokenConfig above(source.config, source.where);
  spec.images = above.ids("image_token_id", c.vocabulary);
  spec.unread = {"model.encoder.vision_tower.*", "model.encoder.embed_vision.*",
                 "model.encoder.language_model.norm.weight"};
  const auto global = std::ranges::count(c.layers, 0, &Layer::window);
  const auto fact = [&](const char* name, int64_t value) {
    spec.facts.emplace_back(name, std::to_string(value));
  };
  fact("vocab_size", c.vocabulary);
  fact("hidden_size", c.hidden);
  fact("num_hidden_layers", spec.blocks);
  fact("num_attention_heads", c.heads);
  fact("num_experts", c.experts);
  fact("top_k_experts", c.top_k);
  fact("moe_intermediate_size", c.expert_width);
  fact("intermediate_size", c.dense_width);
  fact("canvas_length", c.canvas);
  fact("context", c.context);
  spec.facts.emplace_back("attention",
                          fmt::format("{} layers with a window of {} tokens, {} global",
                                      spec.blocks - global, c.layers.front().window, global));
  return spec;
}

}  // namespace tessera::models
