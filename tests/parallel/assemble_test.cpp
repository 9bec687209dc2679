#include "parallel/assemble.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::parallel {
namespace {

TEST(Assemble, OneRankRunsAllBlocks) {
  nn::Geometry geometry;
  geometry.blocks = 7;
  const Assembly assembly(geometry, {.warmup = 2}, {1, {1, 1, 4}, 1, 3});
  EXPECT_EQ(assembly.blocks, (nn::Range{0, 7}));
  EXPECT_TRUE(assembly.plan.fresh(1, 5));
  EXPECT_FALSE(assembly.plan.fresh(2, 5));
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

TEST(Assemble, SaysWhyAPlanCannotRun) {
  const auto why = [](const std::string& plan, Workload workload) {
    const auto found = problems(parse_plan(plan), with_experts(4), workload);
    return found.empty() ? std::string() : found.front();
  };
  EXPECT_EQ(why("expert=4", {1, {1, 4, 4}, 2, 5}), "")
      << "ranks without a picture still hold experts";
  EXPECT_NE(why("expert=5", {8, {1, 4, 4}, 2, 5}).find("the model has 4 experts"),
            std::string::npos);
  EXPECT_NE(why("data=3", {2, {1, 4, 4}, 2, 5}).find("the request has 2 pictures"),
            std::string::npos);
  EXPECT_NE(why("distrifusion=17", {2, {1, 4, 4}, 2, 5}).find("16 tokens"), std::string::npos);
  EXPECT_NE(why("schedule=interweaved,sync=0+2", {2, {1, 4, 4}, 2, 5}).find("names layer 2"),
            std::string::npos);
}

TEST(Assemble, WantsAsManyRanksAsThePlan) {
  EXPECT_THROW(Assembly(with_experts(4), parse_plan("expert=2"), {2, {1, 4, 4}, 2, 5}), Error);
}

}  // namespace
}  // namespace tessera::parallel
