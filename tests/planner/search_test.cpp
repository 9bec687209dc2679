#include "planner/search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "tessera/error.h"
#include "test_paths.h"

namespace tessera {
namespace {

const std::string kTiny = TESSERA_TEST_DATA "/moe/dit_moe_flash/model";

PredictionRequest of(const std::string& hardware, int ranks) {
  PredictionRequest request;
  request.hardware = hardware;
  request.ranks = ranks;
  request.generate.steps = 6;
  request.generate.decode = false;
  return request;
}

TEST(Search, RanksPlansByTheGoal) {
  PredictionRequest request = of("A100", 2);
  for (const PlanGoal goal : {PlanGoal::latency, PlanGoal::throughput, PlanGoal::memory}) {
    request.goal = goal;
    const Prediction found = predict_plans(kTiny, {.threads = 2}, request);
    ASSERT_GT(found.plans.size(), 2u);
    for (size_t i = 1; i < found.plans.size(); ++i) {
      const PredictedPlan &a = found.plans[i - 1], &b = found.plans[i];
      if (goal == PlanGoal::latency) {
        EXPECT_LE(a.seconds(), b.seconds());
      }
      if (goal == PlanGoal::throughput) {
        EXPECT_GE(a.samples_per_second, b.samples_per_second);
      }
      if (goal == PlanGoal::memory) {
        EXPECT_LE(a.rank_bytes, b.rank_bytes);
      }
    }
  }
}

TEST(Search, DoesNotDependOnThreads) {
  const PredictionRequest request = of("L40", 4);
  EXPECT_EQ(to_json(predict_plans(kTiny, {.threads = 1}, request)),
            to_json(predict_plans(kTiny, {.threads = 3}, request)));
}

TEST(Search, MoreBandwidthIsNotSlower) {
  PredictionRequest request = of("L40", 2);
  request.plans = {parse_plan("ulysses=2")};
  const double before = predict_plans(kTiny, {.threads = 1}, request).plans.at(0).seconds();
  request.changes = "link=1Gbit";
  EXPECT_GT(predict_plans(kTiny, {.threads = 1}, request).plans.at(0).seconds(), before);
}

TEST(Search, SaysWhyPlansAreRefused) {
  PredictionRequest request = of("A100", 5);
  request.plans = {parse_plan("tensor=5")};
  const Prediction found = predict_plans(kTiny, {.threads = 1}, request);
  ASSERT_EQ(found.refused.size(), 1u);
  EXPECT_NE(found.refused[0].reason.find("tensor=5"), std::string::npos);
  EXPECT_THROW(choose_plan(kTiny, {.threads = 1}, request), Error);
}

TEST(Search, RefusesWhatDoesNotFitIntoADevice) {
  PredictionRequest request = of("A100", 1);
  request.changes = "memory=1KB";
  const Prediction found = predict_plans(kTiny, {.threads = 1}, request);
  EXPECT_TRUE(found.plans.empty());
  EXPECT_NE(found.refused.at(0).reason.find("takes"), std::string::npos);
}

TEST(Search, FindsTheFewestRanksForADeadline) {
  PredictionRequest request = of("A100", 1);
  const double alone = predict_plans(kTiny, {.threads = 1}, request).plans.at(0).seconds();
  EXPECT_EQ(fewest_ranks(kTiny, {.threads = 1}, request, 2 * alone, 2).ranks, 1);
  EXPECT_TRUE(fewest_ranks(kTiny, {.threads = 1}, request, alone / 1e6, 2).plans.empty());
  EXPECT_THROW(fewest_ranks(kTiny, {.threads = 1}, request, -1, 2), Error);
}

TEST(Search, ExpertLoadHasANumberForEachExpert) {
  PredictionRequest request = of("A100", 2);
  request.plans = {parse_plan("expert=2")};
  request.generate.count = 2;
  request.expert_load = {1, 2, 3};
  try {
    predict_plans(kTiny, {.threads = 1}, request);
    FAIL() << "a histogram of three for four experts was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_NE(std::string(e.what()).find("3 numbers"), std::string::npos);
  }
  request.expert_load = {4, 1, 1, 1};
  EXPECT_EQ(predict_plans(kTiny, {.threads = 1}, request).plans.size(), 1u);
}

TEST(Search, ReadsHistogramsOfExperts) {
  const auto file = std::filesystem::temp_directory_path() / "tessera_expert_load_test.json";
  const auto read = [&](const char* text) {
    std::ofstream(file) << text;
    return read_expert_load(file.string());
  };
  EXPECT_EQ(read("[3, 1, 0, 2.5]"), (std::vector<double>{3, 1, 0, 2.5}));
  EXPECT_EQ(read(R"({"expert_load": [1, 2]})"), (std::vector<double>{1, 2}));
  for (const char* bad : {"[]", "{}", "[1, -2]", "[1, \"x\"]", "[NaN]", "[1, null]", "7", "["})
    EXPECT_THROW(read(bad), Error) << bad;
  std::filesystem::remove(file);
  EXPECT_THROW(read_expert_load(file.string()), Error);
}

TEST(Search, RefusesLoadsThatNoRouterHas) {
  PredictionRequest request = of("A100", 2);
  request.generate.count = 2;
  for (const std::vector<double>& load :
       {std::vector<double>{1, -1, 1, 1}, {1, std::nan(""), 1, 1}, {0, 0, 0, 0}}) {
    request.expert_load = load;
    EXPECT_THROW(predict_plans(kTiny, {.threads = 1}, request), Error);
  }
}

TEST(Search, WritesTimelinesAndRecordings) {
  PredictionRequest request = of("A100", 2);
  request.plans = {parse_plan("ring=2")};
  const auto trace = base::Json::parse(timeline(kTiny, {}, request, TimelineForm::trace));
  EXPECT_FALSE(trace.at("traceEvents").empty());
  EXPECT_TRUE(timeline(kTiny, {}, request, TimelineForm::image).starts_with("<svg"));
  EXPECT_EQ(base::Json::parse(recording(kTiny, {}, request)).at("ranks").size(), 2u);
}

}  // namespace
}  // namespace tessera
