#include "models/llada_shard.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::models {
namespace {

LladaConfig config() {
  LladaConfig c;
  c.hidden = 64;
  c.heads = 8;
  c.kv_heads = 4;
  c.head_dim = 8;
  c.dense_width = 30;
  c.expert_width = 10;
  c.shared_width = 20;
  c.experts = 6;
  return c;
}

TEST(LladaShard, CutsHeadsEvenlyAndWidthsAsTheyCome) {
  int64_t expert = 0, dense = 0, shared = 0;
  for (int r = 0; r < 4; ++r) {
    const LladaConfig part = shard_of(config(), {r, 4});
    EXPECT_EQ(part.heads, 2);
    EXPECT_EQ(part.kv_heads, 1);
    EXPECT_EQ(part.experts, 6);
    expert += part.expert_width;
    dense += part.dense_width;
    shared += part.shared_width;
  }
  EXPECT_EQ(expert, 10);
  EXPECT_EQ(dense, 30);
  EXPECT_EQ(shared, 20);
}

TEST(LladaShard, NamesWhatWouldBeValid) {
  try {
    shard_of(config(), {0, 3});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::plan);
    EXPECT_NE(std::string(e.what()).find("valid are: 1, 2, 4"), std::string::npos) << e.what();
  }
  LladaConfig thin = config();
  thin.expert_width = 3;
  EXPECT_THROW(shard_of(thin, {0, 4}), Error);
}

TEST(LladaShard, TheSecondHalfOfEveryTensor) {
  const auto cut = [](const char* name) { return shard_cut(config(), {1, 2}, name); };
  const auto is = [&](const char* name, int axis, int64_t full, std::vector<nn::Range> ranges) {
    const auto found = cut(name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->axis, axis) << name;
    EXPECT_EQ(found->full, full) << name;
    EXPECT_EQ(found->ranges, ranges) << name;
  };
  is("model.layers.0.self_attn.q_proj.weight", 0, 64, {{32, 64}});
  is("model.layers.0.self_attn.k_proj.bias", 0, 32, {{16, 32}});
  is("model.layers.0.self_attn.o_proj.weight", 1, 64, {{32, 64}});
  is("model.layers.0.attention.query_key_value.weight", 0, 128, {{32, 64}, {80, 96}, {112, 128}});
  is("model.layers.0.attention.dense.weight", 1, 64, {{32, 64}});
  is("model.layers.0.mlp.gate_proj.weight", 0, 30, {{15, 30}});
  is("model.layers.0.mlp.experts.3.up_proj.weight", 0, 10, {{5, 10}});
  is("model.layers.0.mlp.experts.3.down_proj.weight", 1, 10, {{5, 10}});
  is("model.layers.0.mlp.shared_experts.down_proj.weight", 1, 20, {{10, 20}});
  is("model.layers.0.mlp.experts.gate_up_proj", 1, 20, {{5, 10}, {15, 20}});
  is("model.layers.0.mlp.experts.down_proj", 2, 10, {{5, 10}});
  for (const char* whole :
       {"model.embed_tokens.weight", "lm_head.weight", "model.layers.0.mlp.gate.weight",
        "model.layers.0.self_attn.o_proj.bias", "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.mlp.gate.expert_bias", "model.layers.0.input_layernorm.weight"})
    EXPECT_FALSE(cut(whole)) << whole;
}

}  // namespace
}  // namespace tessera::models
