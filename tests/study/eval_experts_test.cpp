#include "engine/text_model.h"
#include "tessera/engine.h"
#include "tessera/study.h"

namespace tessera {
namespace {

ExpertStudy study(const golden::TextModel& folder, const std::vector<std::string>& selects) {
  folder.write("tasks.jsonl",
               "{\"prompt\": \"one\", \"answer\": \"x\"}\n{\"prompt\": \"a longer one\", "
               "\"answer\": \"y\"}");
  ExpertsRequest request;
  request.selects = selects;
  request.max_tokens = 16;
  return study_experts(folder.path(), golden::options(Precision::f32), request);
}

TEST(EvalExperts, CountsDistinctExpertsOfGrowingCounts) {
  const golden::TextModel folder("llada2");  // 16 experts, 4 a token, layers 1 and 2 have experts
  const ExpertStudy found = study(folder, {});
  ASSERT_FALSE(found.unique.empty());
  for (const auto& u : found.unique) {
    EXPECT_TRUE(u.layer == 1 || u.layer == 2);
    EXPECT_GE(u.distinct, 4);
    EXPECT_LE(u.distinct, 16);
    EXPECT_GT(u.samples, 0);
  }
  EXPECT_EQ(found.unique[0].tokens, 1);
  EXPECT_DOUBLE_EQ(found.unique[0].distinct, 4);
  EXPECT_DOUBLE_EQ(found.unique[0].independent, 4);
  EXPECT_NEAR(found.unique[1].independent, 7, 1e-12);  // 16 (1 - (3/4)^2)
  EXPECT_EQ(found.coresets.size(), 2u * 6);
  EXPECT_EQ(found.decided, 1);
  ASSERT_EQ(found.likeness.size(), 2u);
  for (const auto& l : found.likeness) {
    EXPECT_GT(l.cosine, 0);
    EXPECT_GT(l.samples, 0);
  }
}

TEST(EvalExperts, AFullCoresetLosesNothingAndVotesBeatChance) {
  const golden::TextModel folder("llada_moe");
  const ExpertStudy found = study(folder, {"des-vote:1", "des-vote:0.5"});
  double voted = 0, random = 0, hits = 0;
  for (const auto& c : found.coresets) {
    if (c.select == "des-vote:1") {
      EXPECT_EQ(c.size, 16);
      EXPECT_EQ(c.rule.recall, 1);
      EXPECT_EQ(c.rule.residual, 0);
      EXPECT_EQ(c.random.residual, 0);
      EXPECT_NEAR(c.rule.hits, 1, 1e-12);
      continue;
    }
    EXPECT_EQ(c.size, 8);
    voted += c.rule.recall;
    random += c.random.recall;
    hits += c.rule.hits - c.random.hits;
    EXPECT_LT(c.rule.hits, 1 - 1e-6);
  }
  EXPECT_GT(voted, random);
  EXPECT_GT(hits, 0);
  const auto json = base::Json::parse(to_json(found));
  EXPECT_EQ(json.at("coresets").size(), found.coresets.size());
  EXPECT_EQ(json.at("latency").at("explained"), found.explained);
}

TEST(EvalExperts, RulesWithoutACoresetAreRefused) {
  const golden::TextModel folder("llada_moe");
  EXPECT_NE(golden::error_of([&] { study(folder, {"topk:2"}); }).find("no coreset"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
