#include "parallel/language.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::parallel {
namespace {

nn::Geometry geometry() {
  nn::Geometry g;
  g.blocks = 2;
  g.attention = {{.block = 0, .heads = 4, .kv_heads = 2, .head_dim = 8},
                 {.block = 1, .heads = 4, .kv_heads = 2, .head_dim = 8}};
  g.experts = {{.block = 1, .experts = 5, .top_k = 2, .inner = 16}};
  return g;
}

std::string problems_of(const char* plan) {
  std::string all;
  for (const auto& one : language_problems(parse_plan(plan), geometry())) all += one + "; ";
  return all;
}

TEST(LanguagePlan, SaysWhatDoesNotFit) {
  for (const char* good : {"", "expert=2", "expert=5", "tensor=2", "expert=2,placement=0+1+1+0+1"})
    EXPECT_EQ(problems_of(good), "") << good;
  const std::pair<const char*, const char*> bad[] = {
      {"data=2", "prompts are not spread"},
      {"expert=6", "use at most 5"},
      {"expert=2,data=4", "prompts are not spread"},
      {"expert=2,data=2,tensor=2", "give one of them"},
      {"expert=2,schedule=displaced", "nothing is stale"},
      {"expert=2,warmup=2", "nothing is stale"},
      {"expert=2,schedule=staggered-batch", "nothing is stale"},
      {"distrifusion=2", "for pictures"},
      {"expert=2,placement=0+1", "places 2 experts"},
  };
  for (const auto& [plan, says] : bad)
    EXPECT_NE(problems_of(plan).find(says), std::string::npos) << plan << ": " << problems_of(plan);
}

TEST(LanguagePlan, APortionHoldsItsExpertsOrItsShard) {
  EXPECT_TRUE(language_portion({}, geometry(), 0).experts.empty());
  EXPECT_EQ(language_portion(parse_plan("expert=2"), geometry(), 1).experts,
            (std::vector<bool>{false, false, true, true, true}));
  EXPECT_EQ(language_portion(parse_plan("expert=2,placement=strided"), geometry(), 1).experts,
            (std::vector<bool>{false, true, false, true, false}));
  const nn::Shard shard = language_portion(parse_plan("tensor=2"), geometry(), 1).shard;
  EXPECT_EQ(shard.index, 1);
  EXPECT_EQ(shard.count, 2);
}

}  // namespace
}  // namespace tessera::parallel
