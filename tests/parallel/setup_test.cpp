#include "parallel/setup.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::parallel {
namespace {

TEST(Setup, OneRankRunsAllBlocks) {
  nn::Geometry geometry;
  geometry.blocks = 7;
  const parallel::Setup setup({.warmup = 2}, geometry, {1, {1, 1, 4}, 1, 3});
  EXPECT_EQ(setup.blocks, (nn::Range{0, 7}));
  EXPECT_TRUE(setup.plan.fresh(1, 5));
  EXPECT_FALSE(setup.plan.fresh(2, 5));
}

nn::Geometry with_experts(int experts) {
  nn::Geometry geometry;
  geometry.blocks = 2;
  for (int b = 0; b < 2; ++b) {
    geometry.attention.push_back({.block = b, .heads = 1, .kv_heads = 1, .head_dim = 8});
    geometry.experts.push_back({b, experts, 2, 8});
  }
  return geometry;
}

TEST(Setup, SaysWhyAPlanCannotRun) {
  const auto why = [](const std::string& plan, Workload workload) {
    const auto found = problems(parse_plan(plan), with_experts(4), workload);
    return found.empty() ? std::string() : found.front();
  };
  EXPECT_EQ(why("expert=4", {1, {1, 4, 4}, 2, 5}), "")
      << "ranks without a sample still hold experts";
  EXPECT_NE(why("expert=5", {8, {1, 4, 4}, 2, 5}).find("the model has 4 experts"),
            std::string::npos);
  EXPECT_NE(why("data=3", {2, {1, 4, 4}, 2, 5}).find("the request has 2 samples"),
            std::string::npos);
  EXPECT_NE(why("distrifusion=17", {2, {1, 4, 4}, 2, 5}).find("16 tokens"), std::string::npos);
  EXPECT_NE(why("schedule=interweaved,sync=0+2", {2, {1, 4, 4}, 2, 5}).find("names layer 2"),
            std::string::npos);
}

TEST(Setup, SaysWhyTensorCannotCutSamples) {
  nn::Geometry geometry = with_experts(4);
  for (nn::AttentionSite& site : geometry.attention) site.heads = site.kv_heads = 6;
  const auto why = [&](const char* plan) {
    std::string all;
    for (const auto& one : problems(parse_plan(plan), geometry, {2, {1, 4, 4}, 2, 5}))
      all += one + "; ";
    return all;
  };
  for (const char* good : {"tensor=2", "tensor=3", "data=2,tensor=6"}) EXPECT_EQ(why(good), "");
  EXPECT_NE(why("tensor=4").find("valid are: 1, 2, 3, 6"), std::string::npos);
  EXPECT_NE(why("tensor=2,distrifusion=2").find("leave out expert="), std::string::npos);
  EXPECT_NE(why("data=2,expert=2,tensor=2").find("leave out expert="), std::string::npos);
  EXPECT_NE(why("tensor=2,schedule=interweaved").find("leave out schedule="), std::string::npos);
  geometry.norm_over_heads = true;
  EXPECT_NE(why("tensor=2").find("span all heads"), std::string::npos);
}

TEST(Setup, SaysWhyASampleCannotBeSpread) {
  nn::Geometry geometry = with_experts(4);
  for (nn::AttentionSite& site : geometry.attention) site.heads = 12, site.kv_heads = 6;
  const auto why = [&](const char* plan, int branches = 2) {
    std::string all;
    for (const auto& one : problems(parse_plan(plan), geometry, {2, {1, 1, 3}, branches, 5}))
      all += one + "; ";
    return all;
  };
  for (const char* good : {"cfg=2", "ulysses=6", "ring=7", "data=2,cfg=2,ring=2,ulysses=5",
                           "cfg=2,ulysses=3,tensor=2", "ulysses=4,expert=4,schedule=displaced"})
    EXPECT_EQ(why(good), "") << good << ": ranks without tokens are ranks";
  EXPECT_NE(why("cfg=2", 1).find("this request has no guidance"), std::string::npos);
  EXPECT_NE(why("ulysses=7").find("use ulysses=6 or less"), std::string::npos) << why("ulysses=7");
  EXPECT_NE(why("ulysses=12").find("as ring=2,ulysses=6"), std::string::npos) << why("ulysses=12");
  EXPECT_NE(why("ulysses=4,tensor=2").find("use ulysses=3 or less"), std::string::npos);
  EXPECT_NE(why("ulysses=2,distrifusion=2").find("leave it out"), std::string::npos);
  for (nn::AttentionSite& site : geometry.attention) site.heads = site.kv_heads = 1;
  EXPECT_NE(why("ulysses=2").find("has 1 head of keys and values; use ring=2"), std::string::npos)
      << why("ulysses=2");
}

TEST(Setup, AnAdaptiveScheduleGoesWithShardsThatKeepItsBlocks) {
  nn::Geometry geometry = with_experts(4);
  for (nn::AttentionSite& site : geometry.attention) site.heads = site.kv_heads = 12;
  const auto why = [&](const char* plan, int64_t width) {
    const auto found = problems(parse_plan(std::string("schedule=adaptive,") + plan), geometry,
                                {2, {1, 8, width}, 2, 5});
    return found.empty() ? std::string() : found.front();
  };
  EXPECT_EQ(why("ulysses=2", 16), "");
  EXPECT_EQ(why("ring=2,ulysses=3,cfg=2", 48), "");
  EXPECT_EQ(why("data=2", 3), "") << "whole samples";
  EXPECT_NE(why("ulysses=2", 24).find("samples of 192 tokens; use shards by the number of 3, or"),
            std::string::npos)
      << why("ulysses=2", 24);
  EXPECT_NE(why("ring=2,ulysses=4", 32).find("ring=2,ulysses=4 would cut"), std::string::npos);
  EXPECT_EQ(why("distrifusion=2", 16), "");
  EXPECT_EQ(why("shards=2", 15), "") << "all tokens are on one rank";
  EXPECT_NE(why("distrifusion=2", 15).find("which distrifusion=2 would cut"), std::string::npos);
  EXPECT_NE(why("ring=2", 15).find("leave them out, or choose"), std::string::npos);
  EXPECT_NE(why("ulysses=2", 24).find("which ulysses=2 would cut"), std::string::npos)
      << "and no axis that the plan does not have";
}

TEST(Setup, SaysWhatIsValidInstead) {
  const auto why = [](const char* plan, nn::Geometry geometry) {
    std::string all;
    for (const auto& one : problems(parse_plan(plan), geometry, {2, {1, 1, 6}, 2, 5}))
      all += one + "; ";
    return all;
  };
  EXPECT_EQ(why("data=6,expert=4", with_experts(4)),
            "expert=4 does not divide the 6 ranks that hold different tokens; use one of 1, 2, 3, "
            "6; ");
  EXPECT_EQ(why("distrifusion=7", with_experts(4)),
            "distrifusion=7: a sample has 6 tokens; use distrifusion=6 or less; ");
  EXPECT_EQ(why("schedule=interweaved,sync=2", with_experts(4)),
            "sync=2 names layer 2; choose from the MoE layers 0 to 1; ");
  EXPECT_EQ(why("data=2,expert=2,placement=0+2", with_experts(2)),
            "placement= names rank 2; choose from the ranks 0 to 1 of expert=2; ");
  EXPECT_EQ(why("cfg=2,ring=2,expert=4,moe=fused", with_experts(4)), "");
  EXPECT_EQ(why("moe=fused", with_experts(4)),
            "moe=fused moves rows between the ranks of expert=N; add it, or leave out moe=; ");
  for (const char* later : {"interweaved", "displaced", "adaptive", "interweaved,conditional=low"})
    EXPECT_EQ(why((std::string("expert=2,moe=fused,schedule=") + later).c_str(), with_experts(4)),
              "");
  EXPECT_EQ(why("expert=2,moe=fused,schedule=staggered-batch", with_experts(4)),
            "moe=fused takes a rank's sequences through a layer together, and "
            "schedule=staggered-batch in halves; leave it out, or use moe=bulk; ");
  nn::Geometry dense = with_experts(4);
  dense.experts.clear();
  for (const char* plan : {"data=2,expert=2", "schedule=interweaved,sync=1", "conditional=low"})
    EXPECT_EQ(why(plan, dense),
              "expert=, schedule= and conditional= need a model with experts, and this one has "
              "none: leave them out; ");
  dense.attention.front().joint = true;
  for (const char* plan : {"distrifusion=2", "shards=6", "distrifusion=3,shards=6"})
    EXPECT_EQ(why(plan, dense), "") << "text is cut, too";
  EXPECT_EQ(why("shards=7", dense), "shards=7: a sample has 6 tokens; use shards=6 or less; ");
}

TEST(Setup, SaysWhyBlocksAndPatchesCannotBeCut) {
  const auto why = [&](const char* plan) {
    std::string all;
    for (const auto& one : problems(parse_plan(plan), with_experts(4), {2, {2, 3, 2}, 2, 5}))
      all += one + "; ";
    return all;
  };
  for (const char* good :
       {"patches=12", "patches=3,cut=bands", "pipefusion=2", "pipefusion=2,stages=1+1",
        "cfg=2,pipefusion=2,patches=5,expert=2,schedule=interweaved"})
    EXPECT_EQ(why(good), "") << good;
  EXPECT_NE(why("patches=13").find("a sample has 12 tokens; use patches=12 or less"),
            std::string::npos);
  EXPECT_NE(why("patches=4,cut=bands").find("a sample has 3 lines; use patches=3 or less"),
            std::string::npos);
  EXPECT_NE(why("pipefusion=3").find("the model has 2 blocks"), std::string::npos);
  EXPECT_NE(why("pipefusion=2,stages=1+2").find("stages=1+2 has 3 blocks, and the model 2"),
            std::string::npos);
}

TEST(Setup, WantsAsManyRanksAsThePlan) {
  EXPECT_THROW(parallel::Setup(parse_plan("expert=2"), with_experts(4), {2, {1, 4, 4}, 2, 5}),
               Error);
}

TEST(Setup, OfAnInvalidPlanIsNeverBuilt) {
  for (const char* plan : {"budget=40", "sync=deep", "tensor=2"})
    EXPECT_FALSE(problems(parse_plan(plan), with_experts(4), {2, {1, 4, 4}, 2, 5}).empty()) << plan;
  EXPECT_THROW(parallel::Setup(parse_plan("budget=40"), with_experts(4), {2, {1, 4, 4}, 2, 5}),
               Error);
}

nn::Geometry of_text() {
  nn::Geometry g;
  g.blocks = 2;
  g.attention = {{.block = 0, .heads = 4, .kv_heads = 2, .head_dim = 8},
                 {.block = 1, .heads = 4, .kv_heads = 2, .head_dim = 8}};
  g.experts = {{.block = 1, .experts = 5, .top_k = 2, .inner = 16}};
  return g;
}

TEST(Setup, SaysWhyAPlanCannotRunText) {
  const auto problems_of = [](const char* plan) {
    std::string all;
    for (const auto& one : problems(parse_plan(plan), of_text(), {.text = Workload::Sequences{}}))
      all += one + "; ";
    return all;
  };
  for (const char* good : {"", "expert=2", "expert=5", "tensor=2", "expert=2,placement=0+1+1+0+1",
                           "expert=3,moe=fused"})
    EXPECT_EQ(problems_of(good), "") << good;
  const std::pair<const char*, const char*> bad[] = {
      {"data=2", "prompts are not spread"},
      {"expert=6", "use at most 5"},
      {"expert=2,data=4", "prompts are not spread"},
      {"expert=2,data=2,tensor=2", "leave out expert="},
      {"tensor=3", "valid are: 1, 2"},
      {"expert=2,schedule=displaced", "nothing is stale"},
      {"expert=2,warmup=2", "nothing is stale"},
      {"distrifusion=2", "for images"},
      {"ulysses=2", "for images"},
      {"pipefusion=2", "for images"},
      {"patches=3", "for images"},
      {"cfg=2", "for images"},
      {"expert=2,placement=0+1", "places 2 experts"},
  };
  for (const auto& [plan, says] : bad)
    EXPECT_NE(problems_of(plan).find(says), std::string::npos) << plan << ": " << problems_of(plan);
}

TEST(Setup, WhatMeasuresWholeSamplesIsRefusedWhereTheyAreCut) {
  Workload workload{2, {1, 4, 4}, 2, 5};
  workload.rescales = workload.thresholds = true;
  EXPECT_TRUE(problems(parse_plan("data=2"), with_experts(4), workload).empty());
  EXPECT_TRUE(problems(parse_plan("cfg=2"), with_experts(4), workload).empty());
  EXPECT_TRUE(problems(parse_plan("pipefusion=2,patches=1"), with_experts(4), workload).empty());
  for (const char* plan : {"distrifusion=2", "ring=2", "patches=2", "pipefusion=2"})
    EXPECT_EQ(problems(parse_plan(plan), with_experts(4), workload).size(), 2u) << plan;
}

TEST(Setup, APortionHoldsItsExpertsOrItsShard) {
  EXPECT_TRUE(portion_of({}, of_text(), 0).experts.empty());
  EXPECT_EQ(portion_of(parse_plan("expert=2"), of_text(), 1).experts,
            (std::vector<bool>{false, false, true, true, true}));
  EXPECT_EQ(portion_of(parse_plan("expert=2,placement=strided"), of_text(), 1).experts,
            (std::vector<bool>{false, true, false, true, false}));
  EXPECT_EQ(portion_of(parse_plan("data=4,expert=2"), of_text(), 3).experts,
            portion_of(parse_plan("expert=2"), of_text(), 1).experts);
  const nn::Shard shard = portion_of(parse_plan("tensor=2"), of_text(), 1).shard;
  EXPECT_EQ(shard.index, 1);
  EXPECT_EQ(shard.count, 2);
  const nn::Portion last = portion_of(parse_plan("pipefusion=2,stages=1+1"), of_text(), 1);
  EXPECT_EQ(last.blocks, (nn::Range{1, 2}));
  EXPECT_FALSE(last.embed);
  EXPECT_TRUE(last.head);
}

}  // namespace
}  // namespace tessera::parallel
