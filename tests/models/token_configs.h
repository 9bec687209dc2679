#pragma once

#include <string>

#include "base/json.h"
#include "tessera/error.h"

namespace tessera::models {

/// A LLaDA-MoE of toy sizes.
inline base::Json llada_moe_config() {
  return {{"model_type", "llada"},
          {"architectures", {"LLaDAMoEModelLM"}},
          {"vocab_size", 40},
          {"hidden_size", 32},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"dense_intermediate_size", 48},
          {"expert_intermediate_size", 16},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 50000.0},
          {"num_experts", 8},
          {"num_experts_per_tok", 2},
          {"moe_layer_freq", {0, 1}},
          {"qk_layernorm", true},
          {"mask_token_id", 39},
          {"eos_token_id", {36, 37}}};
}

/// A DiffusionGemma of toy sizes: two sliding layers and a global layer.
inline base::Json diffusion_gemma_config() {
  const base::Json text{
      {"model_type", "diffusion_gemma_text"},
      {"vocab_size", 40},
      {"hidden_size", 32},
      {"intermediate_size", 48},
      {"moe_intermediate_size", 16},
      {"num_hidden_layers", 3},
      {"num_attention_heads", 4},
      {"num_key_value_heads", 2},
      {"num_global_key_value_heads", 1},
      {"head_dim", 8},
      {"global_head_dim", 16},
      {"num_experts", 8},
      {"top_k_experts", 2},
      {"sliding_window", 5},
      {"layer_types", {"sliding_attention", "sliding_attention", "full_attention"}},
      {"rope_parameters",
       {{"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
        {"full_attention",
         {{"rope_type", "proportional"},
          {"rope_theta", 1000000.0},
          {"partial_rotary_factor", 0.25}}}}},
      {"max_position_embeddings", 64},
      {"use_bidirectional_attention", "vision"}};
  return {{"model_type", "diffusion_gemma"},
          {"architectures", {"DiffusionGemmaForBlockDiffusion"}},
          {"text_config", text},
          {"canvas_length", 6},
          {"tie_word_embeddings", true},
          {"image_token_id", 39}};
}

/// A LLaDA2 of toy sizes.
inline base::Json llada2_config() {
  return {{"model_type", "llada2_moe"},
          {"architectures", {"LLaDA2MoeModelLM"}},
          {"vocab_size", 40},
          {"hidden_size", 32},
          {"intermediate_size", 48},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 16},
          {"max_position_embeddings", 64},
          {"rope_theta", 600000},
          {"partial_rotary_factor", 0.5},
          {"num_experts", 8},
          {"num_shared_experts", 1},
          {"num_experts_per_tok", 2},
          {"n_group", 4},
          {"topk_group", 2},
          {"moe_intermediate_size", 16},
          {"first_k_dense_replace", 1},
          {"routed_scaling_factor", 2.5},
          {"use_bias", false},
          {"mask_token_id", 39},
          {"eos_token_id", 36}};
}

/// A spec's error for a configuration; "": accepted.
template <class Spec>
std::string refusal(Spec spec, base::Json config, const char* key, const base::Json& value) {
  config[key] = value;
  try {
    spec({config, "x/config.json"});
    return "";
  } catch (const Error& e) {
    return e.code() == ErrorCode::model ? e.what() : "another code";
  }
}

}  // namespace tessera::models
