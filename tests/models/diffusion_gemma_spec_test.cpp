#include "models/diffusion_gemma_spec.h"

#include <gtest/gtest.h>

#include "models/token_configs.h"
#include "tessera/error.h"

namespace tessera::models {
namespace {

std::string refusal_of(const base::Json& config) {
  try {
    parse_diffusion_gemma_config(config, "c");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model);
    return error.what();
  }
  return "";
}

base::Json text_with(const char* key, const base::Json& value) {
  base::Json config = diffusion_gemma_config();
  config["text_config"][key] = value;
  return config;
}

TEST(DiffusionGemmaSpec, ReadsBothKindsOfLayers) {
  const auto c = parse_diffusion_gemma_config(diffusion_gemma_config(), "c");
  ASSERT_EQ(c.layers.size(), 3u);
  EXPECT_EQ(c.layers[0].window, 5);
  EXPECT_EQ(c.layers[0].turned_pairs, 4);
  EXPECT_EQ(c.layers[2].window, 0);
  EXPECT_EQ(c.layers[2].head_dim, 16);
  EXPECT_EQ(c.layers[2].kv_heads, 1);
  EXPECT_EQ(c.layers[2].turned_pairs, 2);
  EXPECT_TRUE(c.tied);
  EXPECT_EQ(c.canvas, 6);
  const TokenSpec spec = diffusion_gemma_spec({diffusion_gemma_config(), "c"});
  EXPECT_TRUE(spec.canvas);
  EXPECT_EQ(spec.block, 6);
}

TEST(DiffusionGemmaSpec, TheLastLayerIsGlobalWhateverTheListSays) {
  auto config =
      text_with("layer_types", {"full_attention", "sliding_attention", "sliding_attention"});
  const auto c = parse_diffusion_gemma_config(config, "c");
  EXPECT_EQ(c.layers[0].window, 0);
  EXPECT_EQ(c.layers[1].window, 5);
  EXPECT_EQ(c.layers[2].window, 0);
}

TEST(DiffusionGemmaSpec, SizesMayStandLayerByLayer) {
  base::Json config =
      text_with("per_layer_config", {{"2", {{"head_dim", 32}, {"num_key_value_heads", 2}}}});
  config["text_config"].erase("global_head_dim");
  config["text_config"].erase("num_global_key_value_heads");
  const auto c = parse_diffusion_gemma_config(config, "c");
  EXPECT_EQ(c.layers[2].head_dim, 32);
  EXPECT_EQ(c.layers[2].kv_heads, 2);
  EXPECT_EQ(c.layers[0].head_dim, 8);
}

TEST(DiffusionGemmaSpec, ValuesThatAskForSomethingElseAreRefusedByName) {
  const std::vector<std::pair<std::string, base::Json>> others{
      {"hidden_activation", "silu"},
      {"use_bidirectional_attention", "all"},
      {"hidden_size_per_layer_input", 256},
      {"num_kv_shared_layers", 2},
      {"attn_logit_softcapping", 50.0},
      {"enable_moe_block", false},
      {"attention_k_eq_v", false},
      {"a_key_of_a_newer_library", 1},
      {"top_k_experts", 9},
      {"num_key_value_heads", 3},
      {"layer_types", {"full_attention"}},
      {"head_dim", 7},
      {"sliding_window", 0},
      {"rope_parameters", {{"full_attention", {{"rope_type", "yarn"}}}}},
      {"rope_parameters", {{"sliding_attention", {{"factor", 2}}}}},
      {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
      {"per_layer_config", {{"7", {{"head_dim", 8}}}}}};
  for (const auto& [key, value] : others)
    EXPECT_NE(refusal_of(text_with(key.c_str(), value)), "") << key;
  base::Json config = diffusion_gemma_config();
  config["quantization_config"] = {{"bits", 4}};
  EXPECT_NE(refusal_of(config).find("'quantization_config'"), std::string::npos);
  config = diffusion_gemma_config();
  config.erase("text_config");
  EXPECT_NE(refusal_of(config).find("'text_config' is missing"), std::string::npos);
}

}  // namespace
}  // namespace tessera::models
