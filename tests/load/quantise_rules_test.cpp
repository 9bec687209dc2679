#include "load/quantise_rules.h"

#include <gtest/gtest.h>

#include <functional>

#include "tessera/error.h"

namespace tessera::load {
namespace {

using ops::DType;
using Bits = QuantiseRules::Bits;

std::string usage_error(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    return e.what();
  }
  return "no error";
}

TEST(QuantiseRules, NamesSayWhatAProductIsFor) {
  for (const char* name :
       {"transformer_blocks.0.attn1.to_q.weight", "transformer_blocks.11.attn.add_k_proj.weight",
        "single_transformer_blocks.3.attn.to_v.weight", "blocks.2.attn.qkv.weight",
        "blocks.0.attn2.to_out.0.weight", "encoder.block.1.layer.0.SelfAttention.o.weight",
        "text_model.encoder.layers.5.self_attn.out_proj.weight",
        "encoder.layer.7.attention.self.query.weight",
        "encoder.layer.7.attention.output.dense.weight"})
    EXPECT_EQ(product_kind(name), ProductKind::attention) << name;
  for (const char* name :
       {"transformer_blocks.0.ff.net.0.proj.weight", "transformer_blocks.0.ff_context.net.2.weight",
        "single_transformer_blocks.3.proj_mlp.weight",
        "single_transformer_blocks.3.proj_out.weight",
        "blocks.1.moe.shared_experts.gate_proj.weight",
        "encoder.block.1.layer.1.DenseReluDense.wi_0.weight",
        "text_model.encoder.layers.5.mlp.fc1.weight", "encoder.layer.7.intermediate.dense.weight",
        "encoder.layer.7.output.dense.weight", "noise_refiner.0.feed_forward.w1.weight",
        "model.layers.3.mlp.gate_proj.weight"})
    EXPECT_EQ(product_kind(name), ProductKind::mlp) << name;
  for (const char* name :
       {"transformer_blocks.0.norm1.linear.weight",
        "transformer_blocks.0.norm1_context.linear.weight",
        "single_transformer_blocks.3.norm.linear.weight", "blocks.3.adaLN_modulation.1.weight",
        "noise_refiner.0.adaLN_modulation.0.weight", "double_stream_modulation_img.linear.weight",
        "single_stream_modulation.linear.weight"})
    EXPECT_EQ(product_kind(name), ProductKind::modulation) << name;
  for (const char* name :
       {"blocks.3.skip_linear.weight", "blocks.3.moe.experts.2.up_proj.weight",
        "blocks.3.norm1.norm.weight", "norm_out.linear.weight",
        "caption_projection.linear_1.weight", "proj_out.weight", "x_embedder.weight",
        "adaln_single.linear.weight", "final_layer.adaLN_modulation.1.weight", "attn.to_q.weight",
        "text_projection.weight", ""})
    EXPECT_EQ(product_kind(name), ProductKind::other) << name;
}

TEST(QuantiseRules, TheLastRuleThatAWeightMatchesHolds) {
  QuantiseRules rules = QuantiseRules::all_in(Bits::int8);
  rules.add("mlp=int4,blocks.0.*=bf16,text.attn=bf16", "`quantise_rules`");
  const auto form = [&](const char* name, bool encoder = false, DType compute = DType::bf16) {
    return name_of(rules.form(name, compute, 64, encoder));
  };
  EXPECT_EQ(form("blocks.1.attn.qkv.weight"), "i8 x i8");
  EXPECT_EQ(form("blocks.1.ff.net.2.weight"), "i4 x i8");
  EXPECT_EQ(form("blocks.0.ff.net.2.weight"), "bf16");
  EXPECT_EQ(form("blocks.1.norm1.linear.weight"), "bf16");
  EXPECT_EQ(form("layers.1.self_attn.q_proj.weight", true), "bf16");
  EXPECT_EQ(form("layers.1.mlp.fc1.weight", true), "i8 x i8");
  EXPECT_EQ(form("blocks.1.attn.qkv.weight", false, DType::f32), "f32") << "a router, a modulation";
  EXPECT_EQ(form("blocks.1.moe.experts.0.up_proj.weight", false, DType::i8), "i8");
  rules.add("experts=int4,*norm1.linear*=int8", "`quantise_rules`");
  EXPECT_EQ(form("blocks.1.moe.experts.0.up_proj.weight", false, DType::i8), "i4");
  EXPECT_EQ(form("blocks.1.norm1.linear.weight"), "i8 x i8") << "named itself";
  QuantiseRules again;
  again.add(rules.text(), "a file");
  EXPECT_EQ(again.text(), rules.text());
  EXPECT_TRUE(QuantiseRules().empty());
  EXPECT_EQ(name_of(QuantiseRules().form("blocks.1.attn.qkv.weight", DType::bf16, 3, false)),
            "bf16");
}

TEST(QuantiseRules, ModulationsAreInt8OfInt4) {
  const char* const name = "transformer_blocks.0.norm1.linear.weight";
  const auto form = [&](Bits bits, const std::string& rules, bool encoder = false) {
    QuantiseRules all = QuantiseRules::all_in(bits);
    all.add(rules, "`quantise_rules`");
    return name_of(all.form(name, DType::bf16, 64, encoder));
  };
  EXPECT_EQ(form(Bits::int4, ""), "i8 x i8");
  EXPECT_EQ(form(Bits::int4, "modulation=bf16"), "bf16");
  EXPECT_EQ(form(Bits::int8, ""), "bf16");
  EXPECT_EQ(form(Bits::int8, "modulation=int4"), "i4 x i8");
  EXPECT_EQ(form(Bits::int4, "", true), "bf16") << "encoders have none";
}

TEST(QuantiseRules, ScoresAreNoProductsOfWeights) {
  QuantiseRules rules;
  EXPECT_FALSE(rules.int8_scores());
  rules.add("scores=int8,blocks=bf16", "`quantise_rules`");
  EXPECT_TRUE(rules.int8_scores());
  EXPECT_FALSE(rules.names_products());
  EXPECT_TRUE(rules.names(Bits::int8));
  EXPECT_FALSE(rules.names(Bits::int4));
  EXPECT_EQ(rules.said("blocks"), Bits::none);
  EXPECT_EQ(rules.said("attn"), std::nullopt);
  EXPECT_EQ(name_of(rules.form("blocks.1.attn.qkv.weight", DType::bf16, 64, false)), "bf16");
  rules.add("attn=int8,scores=bf16", "`quantise_rules`");
  EXPECT_FALSE(rules.int8_scores());
  EXPECT_TRUE(rules.names_products());
}

TEST(QuantiseRules, WhatIsNoRuleIsNamed) {
  const auto said = [](const std::string& text) {
    return usage_error([&] {
      QuantiseRules rules;
      rules.add(text, "`quantise_rules`");
    });
  };
  for (const char* text : {"attn", "=int8", "attn=int8,", ",", "attn=int8,,mlp=int8", "attn="})
    EXPECT_NE(said(text).find("`quantise_rules`"), std::string::npos) << text;
  EXPECT_NE(said("attn=int2").find("'int2'"), std::string::npos);
  EXPECT_NE(said("heads=int8").find("'heads'"), std::string::npos);
  EXPECT_NE(said("scores=int4").find("scores=int8"), std::string::npos);
  EXPECT_NE(said("vae=int4").find("vae=int8"), std::string::npos);
  EXPECT_NE(usage_error([] {
              (void)QuantiseRules::all_in(Bits::int4)
                  .form("blocks.1.attn.qkv.weight", DType::bf16, 33, false);
            }).find("blocks.1.attn.qkv.weight"),
            std::string::npos);
}

TEST(QuantiseRules, PatternsTakeAnythingForAStar) {
  EXPECT_TRUE(matches_rule("abc", "abc"));
  EXPECT_TRUE(matches_rule("abc", "*"));
  EXPECT_TRUE(matches_rule("abcabd", "a*bd"));
  EXPECT_TRUE(matches_rule("abc", "a*b*c*"));
  EXPECT_FALSE(matches_rule("abc", "a*d"));
  EXPECT_FALSE(matches_rule("abc", "b*"));
  EXPECT_FALSE(matches_rule("", "a"));
}

TEST(QuantiseRules, FiltersOfAVaeHaveTheirOwnRule) {
  QuantiseRules rules;
  rules.add("attn=int8,vae=int8", "`quantise_rules`");
  EXPECT_TRUE(rules.int8_filters());
  EXPECT_TRUE(rules.names_products());
  rules = {};
  rules.add("vae=int8", "`quantise_rules`");
  EXPECT_FALSE(rules.names_products());
  EXPECT_FALSE(QuantiseRules::all_in(QuantiseRules::Bits::int8).int8_filters());
}

}  // namespace
}  // namespace tessera::load
