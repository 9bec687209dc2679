#include "models/llada_moe_spec.h"

#include <gtest/gtest.h>

#include "models/token_configs.h"
#include "tessera/error.h"

namespace tessera::models {
namespace {

TEST(LladaMoeSpec, ReadsSizesAndIds) {
  const LladaConfig c = parse_llada_moe_config(llada_moe_config(), "c");
  EXPECT_EQ(c.sparse, (std::vector<bool>{false, true}));
  EXPECT_EQ(c.rotary_pairs, 8);
  EXPECT_FALSE(c.renormalise);
  EXPECT_FALSE(c.sigmoid);
  EXPECT_EQ(c.mask, 39);
  EXPECT_EQ(c.ends, (std::vector<int32_t>{36, 37}));
  EXPECT_EQ(c.context, 64);
}

TEST(LladaMoeSpec, WhatTheReleasedCodeDoesNotReadChangesNothing) {
  base::Json config = llada_moe_config();
  config["norm_topk_prob"] = true;
  config["routed_scaling_factor"] = 2.0;
  config.erase("qk_layernorm");
  const LladaConfig c = parse_llada_moe_config(config, "c");
  EXPECT_FALSE(c.renormalise);
  EXPECT_EQ(c.scale, 1);
  EXPECT_FALSE(c.qk_norm);
}

TEST(LladaMoeSpec, RefusesWhatItWouldComputeWrongly) {
  const std::pair<const char*, base::Json> odd[] = {{"shared_expert_intermediate_size", 64},
                                                    {"clip_qkv", 8.0},
                                                    {"hidden_act", "gelu"},
                                                    {"moe_router_score_function", "sigmoid"},
                                                    {"router_num_group", 4},
                                                    {"num_experts", 0},
                                                    {"num_experts_per_tok", 9},
                                                    {"vocab_size", "many"},
                                                    {"mask_token_id", 40},
                                                    {"moe_layer_freq", {1, 1, 1}},
                                                    {"rope_scaling", {{"type", "yarn"}}},
                                                    {"num_attention_heads", 3},
                                                    {"head_dim", 8},
                                                    {"expert_capacity", 4},
                                                    {"rope_theta", nullptr}};
  for (const auto& [key, value] : odd)
    EXPECT_NE(refusal(llada_moe_spec, llada_moe_config(), key, value).find("x/config.json"),
              std::string::npos)
        << key;
}

}  // namespace
}  // namespace tessera::models
