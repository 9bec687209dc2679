#include "planner/language.h"

#include <gtest/gtest.h>

#include <set>

#include "base/json.h"
#include "tessera/error.h"
#include "test_paths.h"

namespace tessera {
namespace {

PredictionRequest of(int ranks) {
  PredictionRequest request;
  request.hardware = "A100";
  request.ranks = ranks;
  request.prompt_tokens = 40;
  request.answer_tokens = 64;
  return request;
}

const PredictedPlan& plan_of(const Prediction& found, const std::string& plan) {
  for (const PredictedPlan& one : found.plans)
    if (one.plan == plan) return one;
  throw Error(ErrorCode::plan, plan + " was not predicted");
}

TEST(Language, PredictsPassesOfPublishedModels) {
  for (const char* model : {"llada_moe", "llada2_mini", "diffusion_gemma"}) {
    const Prediction found = predict_plans(model, {.threads = 1}, of(2));
    std::set<std::string> plans;
    for (const PredictedPlan& one : found.plans) {
      plans.insert(one.plan);
      EXPECT_GT(one.pass_seconds, 0) << model;
      EXPECT_NEAR(one.pass_seconds * one.passes, one.denoising, 1e-9 * one.denoising) << model;
      EXPECT_GT(one.rank_bytes, 0) << model;
      EXPECT_GT(one.sent_bytes, 0) << model;
    }
    EXPECT_EQ(plans, (std::set<std::string>{"data=2,expert=2", "tensor=2"})) << model;
    PredictionRequest alone = of(1);
    EXPECT_LT(plan_of(found, "tensor=2").rank_bytes,
              predict_plans(model, {.threads = 1}, alone).plans.at(0).rank_bytes)
        << model;
  }
}

TEST(Language, OnGpusNoPlanIsFused) {
  PredictionRequest request = of(2);
  request.plans = {parse_plan("data=2,expert=2"), parse_plan("data=2,expert=2,moe=fused")};
  const Prediction found = predict_plans("llada_moe", {.threads = 1}, request);
  EXPECT_EQ(found.plans.size(), 1u);
  ASSERT_EQ(found.refused.size(), 1u);
  EXPECT_NE(found.refused[0].reason.find("moe=fused on GPUs is not predicted"), std::string::npos)
      << found.refused[0].reason;
}

TEST(Language, CountsPassesByBlocks) {
  PredictionRequest request = of(1);
  const PredictedPlan most = predict_plans("llada_moe", {.threads = 1}, request).plans.at(0);
  EXPECT_EQ(most.passes, 64);  // each token takes a pass
  EXPECT_EQ(most.text, 0);     // this model has no cache
  request.generate.steps = 4;
  const PredictedPlan few = predict_plans("llada_moe", {.threads = 1}, request).plans.at(0);
  EXPECT_EQ(few.passes, 8);  // each of two blocks of 32 tokens takes 4
  EXPECT_NEAR(few.pass_seconds, most.pass_seconds, 1e-9 * most.pass_seconds);
  EXPECT_GT(predict_plans("llada2_mini", {.threads = 1}, request).plans.at(0).text, 0);
}

TEST(Language, ChangesOfHardwareAndSizesMatter) {
  PredictionRequest request = of(2);
  request.plans = {parse_plan("expert=2")};
  const auto seconds = [&] {
    return predict_plans("llada_moe", {.threads = 1}, request).plans.at(0).pass_seconds;
  };
  const double before = seconds();
  request.changes = "link=1Gbit";
  EXPECT_GT(seconds(), before);
  request.changes = "";
  request.answer_tokens = 512;
  EXPECT_GT(seconds(), before);
  request.changes = "memory=1GB";
  const Prediction refused = predict_plans("llada_moe", {.threads = 1}, request);
  ASSERT_EQ(refused.refused.size(), 1u);
  EXPECT_NE(refused.refused[0].reason.find("takes"), std::string::npos);
}

TEST(Language, RefusesPlansOfImagesAndTooManyTokens) {
  PredictionRequest request = of(2);
  request.plans = {parse_plan("shard=2")};
  const Prediction found = predict_plans("llada_moe", {.threads = 1}, request);
  ASSERT_EQ(found.refused.size(), 1u);
  EXPECT_NE(found.refused[0].reason.find("shard="), std::string::npos);
  request.plans = {};
  request.answer_tokens = 1 << 20;
  EXPECT_THROW(predict_plans("llada_moe", {.threads = 1}, request), Error);
}

TEST(Language, WritesTimelines) {
  PredictionRequest request = of(2);
  request.plans = {parse_plan("expert=2")};
  const auto trace =
      base::Json::parse(timeline("llada_moe", {.threads = 1}, request, TimelineForm::trace));
  EXPECT_GT(trace.at("traceEvents").size(), 10u);
}

}  // namespace
}  // namespace tessera
