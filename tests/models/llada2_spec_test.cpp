#include "models/llada2_spec.h"

#include <gtest/gtest.h>

#include "models/token_configs.h"
#include "tessera/error.h"

namespace tessera::models {
namespace {

TEST(Llada2Spec, ReadsRouterRotaryAndDenseLayers) {
  const LladaConfig c = parse_llada2_config(llada2_config(), "c");
  EXPECT_TRUE(c.sigmoid && c.ranking_bias && c.renormalise && c.ling_names);
  EXPECT_EQ(c.sparse, (std::vector<bool>{false, true}));
  EXPECT_EQ(c.rotary_pairs, 4);
  EXPECT_EQ(c.shared_width, 16);
  EXPECT_EQ(c.groups, 4);
  EXPECT_EQ(llada2_spec({llada2_config(), "c"}).block, 32);
}

TEST(Llada2Spec, KeysLeftOutHaveTheReleasedDefaults) {
  base::Json config = llada2_config();
  for (const char* key : {"routed_scaling_factor", "partial_rotary_factor", "n_group", "topk_group",
                          "use_bias", "num_shared_experts", "max_position_embeddings"})
    config.erase(key);
  const LladaConfig c = parse_llada2_config(config, "c");
  EXPECT_EQ(c.scale, 2.5);
  EXPECT_EQ(c.rotary_pairs, 4);
  EXPECT_EQ(c.groups, 8);
  EXPECT_EQ(c.top_groups, 4);
  EXPECT_TRUE(c.out_bias && c.qk_norm && !c.qkv_bias);
  EXPECT_EQ(c.shared_width, 0);
  EXPECT_EQ(c.context, 16384);
  config.erase("rope_theta");
  EXPECT_NE(refusal(llada2_spec, config, "use_cache", false).find("'rope_theta' is missing"),
            std::string::npos);
}

TEST(Llada2Spec, OneExpertATokenKeepsItsWeight) {
  base::Json config = llada2_config();
  config["num_experts_per_tok"] = 1;
  EXPECT_FALSE(parse_llada2_config(config, "c").renormalise);
}

TEST(Llada2Spec, RotaryMayStandInAnObject) {
  base::Json config = llada2_config();
  config.erase("rope_theta");
  config.erase("partial_rotary_factor");
  config["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 5e4}, {"partial_rotary_factor", 0.25}};
  const LladaConfig c = parse_llada2_config(config, "c");
  EXPECT_EQ(c.rope_theta, 5e4);
  EXPECT_EQ(c.rotary_pairs, 2);
  config["rope_theta"] = 1e4;
  EXPECT_NE(refusal(llada2_spec, config, "use_cache", false).find("'rope_theta' is 10000 in one"),
            std::string::npos);
}

TEST(Llada2Spec, BlocksMayShareExperts) {
  base::Json config = llada2_config();
  EXPECT_EQ(parse_llada2_config(config, "c").routing.block, 0);
  config["expert_capacity"] = 4;
  config["block_size"] = 16;
  const LladaConfig c = parse_llada2_config(config, "c");
  EXPECT_EQ(nn::to_string(c.routing), "block:4,16");
  EXPECT_EQ(c.groups, 1);
  EXPECT_EQ(llada2_spec({config, "c"}).routing.k, 4);
  config["num_experts_per_tok"] = 1;
  EXPECT_EQ(nn::to_string(parse_llada2_config(config, "c").routing), "block:4,16,weights=A")
      << "a single weight is the score of its expert";
  EXPECT_NE(refusal(llada2_spec, config, "block_size", 12).find("no multiple"), std::string::npos);
}

TEST(Llada2Spec, TokensMayEditTheLengthOfABlock) {
  base::Json config = llada2_config();
  EXPECT_EQ(llada2_spec({config, "c"}).remove, -1);
  config["delete_token_id"] = 31;
  config["split_token_id"] = 32;
  const TokenSpec spec = llada2_spec({config, "c"});
  EXPECT_EQ(spec.remove, 31);
  EXPECT_EQ(spec.split, 32);
  EXPECT_EQ(spec.decode, "edit:0.5,0");
  EXPECT_NE(refusal(llada2_spec, config, "split_token_id", 31).find("expected two tokens"),
            std::string::npos);
  EXPECT_NE(refusal(llada2_spec, config, "split_token_id", 39).find("not the mask"),
            std::string::npos);
  EXPECT_NE(refusal(llada2_spec, config, "split_token_id", 40).find("from 0 to 39"),
            std::string::npos);
  EXPECT_NE(refusal(llada2_spec, config, "split_token_id", {31, 32}).find("expected one"),
            std::string::npos);
  config.erase("split_token_id");
  EXPECT_NE(refusal(llada2_spec, config, "use_cache", false).find("go together"),
            std::string::npos);
}

TEST(Llada2Spec, RefusesWhatItWouldComputeWrongly) {
  EXPECT_EQ(refusal(llada2_spec, llada2_config(), "sliding_window", 4096), "");
  EXPECT_EQ(refusal(llada2_spec, llada2_config(), "score_function", "sigmoid"), "");
  EXPECT_EQ(refusal(llada2_spec, llada2_config(), "a_key_of_tomorrow", nullptr), "");
  EXPECT_EQ(refusal(llada2_spec, llada2_config(), "_moe_implementation", "fused"), "");
  EXPECT_NE(refusal(llada2_spec, llada2_config(), "image_token_offset", 30).find("LLaDA2.0-Uni"),
            std::string::npos);
  const std::pair<const char*, base::Json> odd[] = {
      {"score_function", "softmax"},
      {"norm_topk_prob", false},
      {"use_sliding_window", true},
      {"norm_head", true},
      {"expert_capacity", 0},
      {"block_size", 8},
      {"moe_router_enable_expert_bias", false},
      {"quantization_config", {{"bits", 4}}},
      {"a_key_of_tomorrow", 1},
      {"rotary_dim", 6},
      {"rope_scaling", {{"type", "yarn"}, {"factor", 4}}},
      {"rope_parameters", {{"rope_type", "linear"}}},
      {"rope_parameters", {{"rope_type", "default"}, {"factor", 4}}},
      {"rope_scaling", 3},
      {"n_group", 3},
      {"topk_group", 5},
      {"rms_norm_eps", -1}};
  for (const auto& [key, value] : odd) {
    const std::string said = refusal(llada2_spec, llada2_config(), key, value);
    EXPECT_NE(said.find("x/config.json"), std::string::npos) << key << ": " << said;
    EXPECT_EQ(said.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::models
