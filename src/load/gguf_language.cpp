#include "load/gguf_language.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "load/gguf.h"
#include "load/gguf_header.h"
#include "load/gguf_keys.h"
#include "load/gguf_tokenizer.h"

namespace tessera::load {
namespace {

using base::Json;

// A key of the file and of config.json; keys of the architecture begin with a dot.
struct Key {
  const char* theirs;
  const char* ours;
};
constexpr Key kCommon[] = {{".block_count", "num_hidden_layers"},
                           {".context_length", "max_position_embeddings"},
                           {".embedding_length", "hidden_size"},
                           {".attention.head_count", "num_attention_heads"},
                           {".attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                           {".expert_count", "num_experts"}};
constexpr Key kLladaMoe[] = {{".attention.head_count_kv", "num_key_value_heads"},
                             {".rope.freq_base", "rope_theta"},
                             {".expert_used_count", "num_experts_per_tok"},
                             {".expert_feed_forward_length", "expert_intermediate_size"}};
constexpr Key kLlada2[] = {{".attention.head_count_kv", "num_key_value_heads"},
                           {".rope.freq_base", "rope_theta"},
                           {".expert_used_count", "num_experts_per_tok"},
                           {".attention.key_length", "head_dim"},
                           {".leading_dense_block_count", "first_k_dense_replace"},
                           {".expert_feed_forward_length", "moe_intermediate_size"},
                           {".expert_weights_scale", "routed_scaling_factor"},
                           {".expert_group_count", "n_group"},
                           {".expert_group_used_count", "topk_group"}};
constexpr Key kGemma[] = {{".feed_forward_length", "intermediate_size"},
                          {".expert_used_count", "top_k_experts"},
                          {".expert_feed_forward_length", "moe_intermediate_size"},
                          {".attention.sliding_window", "sliding_window"},
                          {".attention.key_length_swa", "head_dim"},
                          {".attention.key_length", "global_head_dim"},
                          {".final_logit_softcapping", "final_logit_softcapping"}};
// The sampler of DiffusionGemma in generation_config.json.
constexpr Key kSampler[] = {{"diffusion.eb_max_steps", "max_denoising_steps"},
                            {"diffusion.eb_t_min", "t_min"},
                            {"diffusion.eb_t_max", "t_max"},
                            {"diffusion.eb_stability_threshold", "stability_threshold"},
                            {"diffusion.eb_confidence_threshold", "confidence_threshold"}};
// Keys of ids at the end of a text.
constexpr const char* kEnds[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                 "tokenizer.ggml.eom_token_id"};
// Gemma's own ends of a turn and of a call; no key names them.
constexpr const char* kEndsOfGemma[] = {"<turn|>", "<|tool_response>"};

enum : int { kSoftmax = 1, kSigmoid = 2 };  // .expert_gating_func

void copy_keys(const GgufKeys& keys, std::span<const Key> list, Json& config) {
  for (const Key& key : list) config[key.ours] = keys.at(key.theirs);
}

// A share of `whole` whose product, rounded down, is `part`.
double share_of(int64_t part, int64_t whole) {
  const double share = static_cast<double>(part) / static_cast<double>(whole);
  const bool less = std::floor(share * static_cast<double>(whole)) < static_cast<double>(part);
  return less ? std::nextafter(share, 1.0) : share;
}

// Features without support in every family.
void expect_plain(const GgufKeys& keys) {
  keys.expect("split.count", {0, 1});
  keys.expect(".attention.causal", {false});
  keys.expect(".rope.scaling.type", {"none"});
  keys.expect(".nextn_predict_layers", {0});
  keys.expect("diffusion.shift_logits", {false});
}

void add_once(const Json& id, Json& list) {
  if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
}

// Ids of tokens at the end of a text.
Json ends_of(const GgufKeys& keys) {
  Json ends = Json::array();
  for (const char* const key : kEnds)
    if (!keys.find(key).is_null()) add_once(keys.whole(key), ends);
  return ends;
}

Json vocabulary_of(const GgufKeys& keys, const GgufFile& file) {
  if (!file.has("token_embd.weight")) keys.refuse_file("the tensor token_embd.weight is missing");
  const Json& words = keys.find(".vocab_size");
  return words.is_null() ? Json(file.entry("token_embd.weight").sizes[0]) : words;
}

// Keys of LLaDA-MoE and LLaDA2.
Json llada(const GgufKeys& keys, const GgufFile& file, std::span<const Key> own) {
  expect_plain(keys);
  Json config{{"hidden_act", "silu"}};
  copy_keys(keys, kCommon, config);
  copy_keys(keys, own, config);
  config["vocab_size"] = vocabulary_of(keys, file);
  config["tie_word_embeddings"] = !file.has("output.weight");
  if (const char* const mask = "tokenizer.ggml.mask_token_id"; !keys.find(mask).is_null())
    config["mask_token_id"] = keys.whole(mask);
  if (const Json ends = ends_of(keys); !ends.empty()) config["eos_token_id"] = ends;
  return config;
}

Json llada_moe_config(const GgufKeys& keys, const GgufFile& file) {
  Json config = llada(keys, file, kLladaMoe);
  config["model_type"] = "llada";
  config["architectures"] = Json::array({"LLaDAMoEModelLM"});
  keys.expect(".expert_gating_func", {kSoftmax});
  (void)keys.find(".expert_weights_norm");  // ignored by the released code
  (void)keys.find(".feed_forward_length");  // dense layers are not in these files
  config["moe_layer_freq"] = 1;
  config["qk_layernorm"] = file.has("blk.0.attn_q_norm.weight");
  config["attention_bias"] = file.has("blk.0.attn_q.bias");
  const int64_t heads = keys.whole(".attention.head_count");
  const int64_t width = heads > 0 ? keys.whole(".embedding_length") / heads : 0;
  for (const char* key :
       {".attention.key_length", ".attention.value_length", ".rope.dimension_count"})
    keys.expect(key, {width});
  return config;
}

Json llada2_config(const GgufKeys& keys, const GgufFile& file) {
  // Ling 2 is autoregressive, and has the same names and keys.
  if (keys.architecture() == "bailingmoe2") (void)keys.at(".attention.causal");
  Json config = llada(keys, file, kLlada2);
  config["model_type"] = "llada2_moe";
  config["architectures"] = Json::array({"LLaDA2MoeModelLM"});
  (void)keys.at(".expert_gating_func");
  keys.expect(".expert_gating_func", {kSigmoid});
  (void)keys.at(".expert_weights_norm");
  keys.expect(".expert_weights_norm", {true});
  if (keys.whole(".leading_dense_block_count") > 0)
    config["intermediate_size"] = keys.at(".feed_forward_length");
  (void)keys.find(".feed_forward_length");
  const int64_t width = keys.whole(".attention.key_length");
  keys.expect(".attention.value_length", {width});
  if (width > 0)
    config["partial_rotary_factor"] = share_of(keys.whole(".rope.dimension_count"), width);
  config["use_qk_norm"] = file.has("blk.0.attn_q_norm.weight");
  config["use_qkv_bias"] = file.has("blk.0.attn_qkv.bias");
  config["use_bias"] = file.has("blk.0.attn_output.bias");
  if (const Json& block = keys.find("diffusion.block_length"); !block.is_null())
    config["block_length"] = block;
  // All shared experts of a layer form one, as wide as they are together.
  (void)keys.find(".expert_shared_count");
  (void)keys.find(".expert_shared_feed_forward_length");
  config["num_shared_experts"] = 0;
  for (const auto& [name, entry] : file.entries())
    if (name.ends_with(".ffn_gate_shexp.weight") && entry.sizes.size() == 2) {
      config["num_shared_experts"] = 1;
      config["moe_shared_expert_intermediate_size"] = entry.sizes[0];
    }
  return config;
}

// Types of layers, and the number of key heads of each type.
void add_layers(const GgufKeys& keys, Json& text) {
  const char* const pattern = ".attention.sliding_window_pattern";
  const char* const counts = ".attention.head_count_kv";
  const Json& slides = keys.at(pattern);
  const Json& heads = keys.at(counts);
  const auto layers = static_cast<size_t>(keys.whole(".block_count"));
  if (!slides.is_array() || slides.size() != layers) keys.refuse(pattern, "a truth for each layer");
  if (heads.is_array() && heads.size() != layers) keys.refuse(counts, "a number for each layer");
  Json types = Json::array();
  for (size_t l = 0; l < layers; ++l) {
    const bool global = slides[l] == false || slides[l] == 0;
    types.push_back(global ? "full_attention" : "sliding_attention");
    const Json& count = heads.is_array() ? heads[l] : heads;
    Json& said = text[global ? "num_global_key_value_heads" : "num_key_value_heads"];
    if (!said.is_null() && said != count) keys.refuse(counts, "one number for a type of layers");
    said = count;
  }
  if (text["num_key_value_heads"].is_null())  // without such layers
    text["num_key_value_heads"] = text["num_global_key_value_heads"];
  text["layer_types"] = std::move(types);
}

// Global layers rotate the channels of factor 1; the other factors are huge.
double rotated_share(const GgufKeys& keys, const GgufFile& file) {
  const int64_t width = keys.whole(".attention.key_length");
  const char* const name = "rope_freqs.weight";
  if (!file.has(name))
    keys.refuse_file(
        fmt::format("the tensor {}, which says the rotated channels, is missing", name));
  const std::vector<float> factors = file.get(name).to_floats();
  const auto rest = std::ranges::find_if(factors, [](float f) { return f != 1; });
  if (2 * std::ssize(factors) != width ||
      std::any_of(rest, factors.end(), [](float f) { return !(f >= 1e20f); }))
    keys.refuse_file(
        fmt::format("the tensor {} is not {} factors of 1, then of 1e30", name, width / 2));
  const auto pairs = static_cast<int64_t>(rest - factors.begin());
  return share_of(2 * pairs, width);
}

Json gemma_config(const GgufKeys& keys, const GgufFile& file) {
  expect_plain(keys);
  Json text = Json::object();
  copy_keys(keys, kCommon, text);
  copy_keys(keys, kGemma, text);
  add_layers(keys, text);
  keys.expect(".attention.shared_kv_layers", {0});
  keys.expect(".embedding_length_per_layer_input", {0});
  keys.expect(".expert_gating_func", {kSoftmax});
  for (const char* key : {".attention.value_length", ".rope.dimension_count"})
    keys.expect(key, {keys.at(".attention.key_length")});
  for (const char* key : {".attention.value_length_swa", ".rope.dimension_count_swa"})
    keys.expect(key, {keys.at(".attention.key_length_swa")});
  text["rope_parameters"] = {
      {"full_attention",
       {{"rope_type", "proportional"},
        {"rope_theta", keys.at(".rope.freq_base")},
        {"partial_rotary_factor", rotated_share(keys, file)}}},
      {"sliding_attention",
       {{"rope_type", "default"}, {"rope_theta", keys.at(".rope.freq_base_swa")}}}};
  text["vocab_size"] = vocabulary_of(keys, file);
  text["attention_bias"] = file.has("blk.0.attn_q.bias");
  return {{"model_type", "diffusion_gemma"},
          {"architectures", Json::array({"DiffusionGemmaForBlockDiffusion"})},
          {"tie_word_embeddings", !file.has("output.weight")},
          {"canvas_length", keys.at("diffusion.canvas_length")},
          {"text_config", std::move(text)}};
}

// The id of a token in a tokenizer.json; null: none.
Json id_of(const Json& tokenizer, const char* text) {
  return tokenizer.is_null() ? Json() : tokenizer.at("model").at("vocab").value(text, Json());
}

Json gemma_generation(const GgufKeys& keys, const Json& tokenizer) {
  Json generation = Json::object();
  for (const Key& key : kSampler)
    if (const Json& value = keys.find(key.theirs); !value.is_null()) generation[key.ours] = value;
  if (const Json& bound = keys.find("diffusion.eb_entropy_bound"); !bound.is_null())
    generation["sampler_config"] = {{"entropy_bound", bound}};
  Json ends = ends_of(keys);
  for (const char* const text : kEndsOfGemma)
    if (const Json id = id_of(tokenizer, text); !id.is_null()) add_once(id, ends);
  if (!ends.empty()) generation["eos_token_id"] = std::move(ends);
  return generation;
}

using Describe = Json (*)(const GgufKeys& keys, const GgufFile& file);
struct Described {
  std::vector<std::string> architectures;
  Describe config;
};
const std::vector<Described>& described_families() {
  static const std::vector<Described> all{
      {{"llada-moe"}, llada_moe_config},
      {{"llada2", "llada2-moe", "llada2_moe", "bailingmoe2"}, llada2_config},
      {{"diffusion-gemma"}, gemma_config}};
  return all;
}

const Described* described_family(const std::string& architecture) {
  const auto found = std::ranges::find_if(described_families(), [&](const Described& one) {
    return std::ranges::find(one.architectures, architecture) != one.architectures.end();
  });
  return found == described_families().end() ? nullptr : &*found;
}

}  // namespace

std::string described_architectures() {
  std::string names;
  for (const Described& one : described_families()) {
    if (!names.empty()) names += ", ";
    names += one.architectures.front();
  }
  return names;
}

std::string described_architecture(const std::string& path) {
  if (!is_gguf(path)) return "";
  const GgufFile file(path);
  const auto name = file.metadata().find(kArchitecture);
  return name != file.metadata().end() && described_family(name->second) ? name->second : "";
}

GgufModel read_gguf_model(const std::string& path) {
  const GgufKeys keys(path);
  const GgufFile file(path);
  const Described* const family = described_family(keys.architecture());
  if (!family) keys.refuse("general.architecture", described_architectures());
  GgufModel model{family->config(keys, file), Json::object(), gguf_tokenizer(keys),
                  gguf_tokenizer_config(keys)};
  if (family->config == gemma_config) {
    model.generation = gemma_generation(keys, model.tokenizer);
    if (Json id = id_of(model.tokenizer, "<|image|>"); !id.is_null())
      model.config["image_token_id"] = std::move(id);
  }
  keys.check_rest();
  return model;
}

}  // namespace tessera::load
