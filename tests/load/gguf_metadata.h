#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "load/gguf_image.h"

namespace tessera::load {

/// Keys of a GGUF file with values of any type; whole numbers become u32, others f32.
using Metadata = std::map<std::string, base::Json>;

inline void write_keys(const Metadata& keys, GgufImage& image) {
  for (const auto& [name, value] : keys) {
    if (value.is_boolean())
      image.value(name, value.get<bool>());
    else if (value.is_number_integer())
      image.value(name, value.get<uint32_t>());
    else if (value.is_number())
      image.value(name, value.get<float>());
    else if (value.is_string())
      image.value(name, value.get<std::string>());
    else if (value.empty() || value[0].is_string())
      image.list(name, value.get<std::vector<std::string>>());
    else if (value[0].is_boolean())
      image.list(name, value.get<std::vector<bool>>());
    else
      image.list(name, value.get<std::vector<int32_t>>());
  }
}

/// Copies values of a config.json to keys of an architecture.
class KeyWriter {
 public:
  KeyWriter(std::string architecture, const base::Json& config, Metadata& keys)
      : architecture_(std::move(architecture)), config_(config), keys_(keys) {}
  void copy(const char* theirs, const char* ours) const { set(theirs, config_.at(ours)); }
  void set(const std::string& theirs, const base::Json& value) const {
    keys_[architecture_ + theirs] = value;
  }

 private:
  std::string architecture_;
  const base::Json& config_;
  Metadata& keys_;
};

inline void add_gemma_keys(const base::Json& config, Metadata& keys) {
  const base::Json& c = config.at("text_config");
  const KeyWriter write("diffusion-gemma", c, keys);
  write.copy(".feed_forward_length", "intermediate_size");
  write.copy(".expert_used_count", "top_k_experts");
  write.copy(".expert_feed_forward_length", "moe_intermediate_size");
  write.copy(".final_logit_softcapping", "final_logit_softcapping");
  write.copy(".attention.sliding_window", "sliding_window");
  for (const std::string part :
       {".attention.key_length", ".attention.value_length", ".rope.dimension_count"}) {
    write.copy(part.c_str(), "global_head_dim");
    write.copy((part + "_swa").c_str(), "head_dim");
  }
  const base::Json& rope = c.at("rope_parameters");
  write.set(".rope.freq_base", rope.at("full_attention").at("rope_theta"));
  write.set(".rope.freq_base_swa", rope.at("sliding_attention").at("rope_theta"));
  write.set(".attention.shared_kv_layers", 0);
  write.set(".embedding_length_per_layer_input", 0);
  base::Json slides = base::Json::array(), heads = base::Json::array();
  for (const base::Json& type : c.at("layer_types")) {
    const bool slide = type == "sliding_attention";
    slides.push_back(slide);
    heads.push_back(c.at(slide ? "num_key_value_heads" : "num_global_key_value_heads"));
  }
  write.set(".attention.sliding_window_pattern", slides);
  write.set(".attention.head_count_kv", heads);
  keys["diffusion.canvas_length"] = config.at("canvas_length");
  keys["diffusion.eb_max_steps"] = 48;
  keys["diffusion.eb_t_min"] = 0.4;
  keys["diffusion.eb_t_max"] = 0.8;
  keys["diffusion.eb_entropy_bound"] = 0.1;
  keys["diffusion.eb_stability_threshold"] = 1;
  keys["diffusion.eb_confidence_threshold"] = 0.005;
}

inline void add_llada_keys(const std::string& architecture, const base::Json& config,
                           Metadata& keys) {
  const KeyWriter write(architecture, config, keys);
  const bool two = architecture == "llada2";
  write.copy(".attention.head_count_kv", "num_key_value_heads");
  write.copy(".rope.freq_base", "rope_theta");
  write.copy(".expert_used_count", "num_experts_per_tok");
  write.copy(".expert_feed_forward_length",
             two ? "moe_intermediate_size" : "expert_intermediate_size");
  if (const char* const dense = two ? "intermediate_size" : "dense_intermediate_size";
      config.contains(dense))
    write.copy(".feed_forward_length", dense);
  keys["tokenizer.ggml.mask_token_id"] = config.at("mask_token_id");
  keys["tokenizer.ggml.eos_token_id"] = config.at("eos_token_id");
  keys["diffusion.shift_logits"] = false;
  if (!two) return;
  write.copy(".attention.key_length", "head_dim");
  write.copy(".attention.value_length", "head_dim");
  write.copy(".rope.dimension_count", "rotary_dim");
  write.copy(".leading_dense_block_count", "first_k_dense_replace");
  write.copy(".expert_shared_count", "num_shared_experts");
  write.copy(".expert_shared_feed_forward_length", "moe_intermediate_size");
  write.copy(".expert_weights_scale", "routed_scaling_factor");
  write.copy(".expert_weights_norm", "norm_topk_prob");
  write.copy(".expert_group_count", "n_group");
  write.copy(".expert_group_used_count", "topk_group");
  write.set(".expert_gating_func", 2);
  keys["diffusion.block_length"] = config.at("block_length");
}

/// Keys of a model's config.json as converters write them.
inline Metadata keys_of_config(const std::string& architecture, const base::Json& config) {
  const bool gemma = architecture == "diffusion-gemma";
  Metadata keys;
  const KeyWriter write(architecture, gemma ? config.at("text_config") : config, keys);
  write.copy(".block_count", "num_hidden_layers");
  write.copy(".context_length", "max_position_embeddings");
  write.copy(".embedding_length", "hidden_size");
  write.copy(".attention.head_count", "num_attention_heads");
  write.copy(".attention.layer_norm_rms_epsilon", "rms_norm_eps");
  write.copy(".expert_count", "num_experts");
  write.set(".attention.causal", false);
  if (gemma)
    add_gemma_keys(config, keys);
  else
    add_llada_keys(architecture, config, keys);
  return keys;
}

/// Factors of rotated channels of Gemma's global layers, as in `rope_freqs.weight`.
inline std::vector<float> rope_factors(const base::Json& config) {
  const base::Json& text = config.at("text_config");
  const auto pairs = text.at("global_head_dim").get<size_t>() / 2;
  const double share =
      text.at("rope_parameters").at("full_attention").at("partial_rotary_factor").get<double>();
  std::vector<float> factors(pairs, 1e30f);
  for (size_t i = 0; i < static_cast<size_t>(share * static_cast<double>(pairs)); ++i)
    factors[i] = 1;
  return factors;
}

/// Keys of a tokenizer.json and its special tokens. `model`: "gpt2" or "gemma4".
inline void add_tokenizer(const base::Json& json, const std::string& model, size_t size,
                          Metadata& keys) {
  const bool byte_level = model == "gpt2";
  std::vector<std::string> tokens(size);
  std::vector<int32_t> types(size, byte_level ? 5 : 1);
  for (size_t i = 0; i < size; ++i) tokens[i] = "[PAD" + std::to_string(i) + "]";
  for (const auto& [text, id] : json.at("model").at("vocab").items()) {
    const auto at = id.get<size_t>();
    tokens.at(at) = text;
    types[at] = !byte_level && text.size() == 6 && text.starts_with("<0x") ? 6 : 1;
  }
  for (const base::Json& token : json.at("added_tokens")) {
    const auto at = token.at("id").get<size_t>();
    tokens.at(at) = token.at("content").get<std::string>();
    types[at] = token.at("special") == true ? 3 : 4;
  }
  base::Json merges = base::Json::array();
  for (const base::Json& merge : json.at("model").at("merges"))
    merges.push_back(merge.is_string() ? merge
                                       : base::Json(merge[0].get<std::string>() + " " +
                                                    merge[1].get<std::string>()));
  keys["tokenizer.ggml.model"] = model;
  if (byte_level) keys["tokenizer.ggml.pre"] = "llada-moe";
  keys["tokenizer.ggml.tokens"] = tokens;
  keys["tokenizer.ggml.token_type"] = types;
  keys["tokenizer.ggml.merges"] = merges;
}

/// Keys of the folder of a LLaDA with a tokenizer of its own and a chat template.
inline Metadata keys_of_folder(const std::string& folder, const std::string& architecture) {
  const base::Json config = base::read_json(folder + "/config.json");
  Metadata keys = keys_of_config(architecture, config);
  add_tokenizer(base::read_json(folder + "/tokenizer.json"), "gpt2",
                config.at("vocab_size").get<size_t>(), keys);
  keys["tokenizer.chat_template"] =
      base::read_json(folder + "/tokenizer_config.json").at("chat_template");
  return keys;
}

}  // namespace tessera::load
