#include "study/bench_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tessera/plan_costs.h"
#include "test_paths.h"
#include "whole/golden.h"
#include "whole/random_model.h"
#include "whole/text_model.h"

namespace tessera {
namespace {

const std::string kModel = TESSERA_TEST_DATA "/moe/dit_moe_flash/model";

TEST(PlansFor, AreProductsOfAxesForSoManyRanksAndNoneTwice) {
  for (const int ranks : {1, 2, 3, 4, 6, 8, 12})
    for (const bool experts : {false, true}) {
      const std::vector<Plan> plans = study::plans_for(ranks, experts);
      std::set<std::string> seen;
      for (const Plan& plan : plans) {
        EXPECT_EQ(plan.world(), ranks) << to_string(plan);
        EXPECT_LE(plan.cfg, 2);
        EXPECT_TRUE(experts || plan.expert == 1) << to_string(plan);
        EXPECT_TRUE(seen.insert(to_string(plan)).second) << to_string(plan) << " twice";
        if (problems(plan, ranks).empty()) {
          EXPECT_EQ(parse_plan(to_string(plan)), plan) << to_string(plan);
        }
      }
      if (ranks == 1) continue;
      const auto has = [&](const char* text) { return seen.contains(to_string(parse_plan(text))); };
      EXPECT_TRUE(has(("ulysses=" + std::to_string(ranks)).c_str()));
      EXPECT_TRUE(has(("tensor=" + std::to_string(ranks)).c_str()));
      const std::string finer = ",shards=" + std::to_string(2 * ranks);
      EXPECT_TRUE(has(("distrifusion=" + std::to_string(ranks) + finer).c_str()));
      EXPECT_TRUE(has(("shard=" + std::to_string(ranks)).c_str()));
      for (const char* patches :
           {",patches=2", ",patches=4", ",patches=8", ",patches=16", ",patches=32"})
        EXPECT_TRUE(has(("pipefusion=" + std::to_string(ranks) + patches).c_str()));
      EXPECT_EQ(has(("expert=" + std::to_string(ranks)).c_str()), experts);
      if (ranks == 12) {
        EXPECT_TRUE(has("cfg=2,pipefusion=3,patches=8,ulysses=2"));
      }
    }
  EXPECT_EQ(study::plans_for(1, false).size(), 1u);
}

PlanCosts compare(const std::string& model, PlanCostsRequest request,
                  const std::stop_token& stop = {},
                  const std::function<void(const std::string&, int, int)>& progress = {}) {
  request.generate.steps = 3;
  return compare_plans(model, golden::options(Precision::f32), request, progress, stop);
}

TEST(ComparePlans, GivesWhatRunsWithItsTimeFastestFirst) {
  PlanCostsRequest request;
  request.rounds = 2;
  request.generate.classes = {"1"};
  request.seconds = 600;
  std::set<std::string> heard;
  const PlanCosts costs =
      compare(kModel, request, {}, [&](const std::string& what, int done, int all) {
        heard.insert(what);
        EXPECT_LT(done, all);
      });
  EXPECT_EQ(heard, (std::set<std::string>{"predicted", "measured"}));
  EXPECT_EQ(std::ssize(costs.plans) + costs.refused, std::ssize(study::plans_for(2, true)));
  EXPECT_GT(costs.refused, 0);
  EXPECT_EQ(costs.too_large, 0);
  EXPECT_FALSE(costs.stopped);
  std::set<std::string> plans;
  double before = 0;
  for (const PlanCost& cost : costs.plans) {
    plans.insert(cost.plan);
    EXPECT_GE(cost.seconds, before) << cost.plan;
    EXPECT_EQ(cost.rounds, 2) << cost.plan;
    EXPECT_GT(cost.bytes, 0) << cost.plan;
    EXPECT_GT(cost.messages, 0) << cost.plan;
    EXPECT_GT(cost.rank_bytes, 0) << cost.plan;
    before = cost.seconds;
  }
  for (const char* plan : {"cfg=2", "ulysses=2", "ring=2", "tensor=2", "shard=2", "distrifusion=2",
                           "pipefusion=2,patches=4", "expert=2"})
    EXPECT_TRUE(plans.contains(to_string(parse_plan(plan)))) << plan;
}

TEST(ComparePlans, PredictsWhatInspectDoes) {
  for (const size_t network : {size_t{1}, size_t{4}}) {
    const golden::RandomModel model(models::kNetworks[network], "");
    PlanCostsRequest request;
    request.seconds = 0;
    request.ranks = 4;
    request.generate.width = request.generate.height = 64;
    request.generate.prompts = {"none"};
    const PlanCosts costs = compare(model.path(), request);
    EXPECT_GE(costs.plans.size(), 20u);
    double flops = 0;
    for (const PlanCost& cost : costs.plans) {
      EXPECT_EQ(cost.seconds, -1) << cost.plan;
      EXPECT_GE(cost.flops, flops) << cost.plan;
      flops = cost.flops;
      RunOptions options = golden::options(Precision::f32);
      options.plan = parse_plan(cost.plan);
      GenerateRequest asked = request.generate;
      asked.steps = 3;
      const Inspection found = Model::open(model.path(), options).inspect(asked);
      int64_t sent = 0, most = 0;
      for (const Inspection::Rank& rank : found.ranks) {
        sent += rank.sent;
        most = std::max(most, rank.total);
      }
      EXPECT_EQ(cost.bytes, sent) << cost.plan;
      EXPECT_EQ(cost.rank_bytes, most) << cost.plan;
    }
  }
}

TEST(ComparePlans, PredictsThoseOfFewAxesFirst) {
  PlanCostsRequest request;
  request.seconds = 0;
  request.ranks = 8;
  request.most = 3;
  request.generate.classes = {"1"};
  const PlanCosts costs = compare(kModel, request);
  EXPECT_EQ(std::ssize(costs.plans) + costs.too_large, 3);
  EXPECT_GT(costs.untried, 0);
  EXPECT_EQ(3 + costs.refused + costs.untried, std::ssize(study::plans_for(8, true)));
  for (const PlanCost& cost : costs.plans) {
    const Plan plan = parse_plan(cost.plan);
    int axes = 0;
    for (const int size : {plan.data, plan.cfg, plan.pipefusion, plan.ring, plan.ulysses,
                           plan.tensor, plan.distrifusion, plan.shard})
      axes += size > 1 ? 1 : 0;
    EXPECT_EQ(axes, 1) << cost.plan;
  }
}

TEST(ComparePlans, LeavesOutWhatDoesNotFit) {
  PlanCostsRequest request;
  request.seconds = 0;
  request.generate.classes = {"1"};
  const PlanCosts all = compare(kModel, request);
  RunOptions small = golden::options(Precision::f32);
  request.generate.steps = 3;
  small.memory_budget = 1000;
  const PlanCosts none = compare_plans(kModel, small, request, {});
  EXPECT_TRUE(none.plans.empty());
  EXPECT_EQ(none.too_large, std::ssize(all.plans));
}

TEST(ComparePlans, GivesWhatItHasWhenItIsStopped) {
  std::stop_source stop;
  PlanCostsRequest request;
  request.generate.classes = {"1"};
  request.seconds = 600;
  const PlanCosts costs =
      compare(kModel, request, stop.get_token(), [&](const std::string& what, int done, int) {
        if (what == "measured" && done == 2) stop.request_stop();
      });
  EXPECT_TRUE(costs.stopped);
  const auto measured = [](const PlanCost& cost) { return cost.seconds >= 0; };
  EXPECT_EQ(std::count_if(costs.plans.begin(), costs.plans.end(), measured), 2);
  EXPECT_TRUE(std::is_partitioned(costs.plans.begin(), costs.plans.end(), measured));
}

TEST(ComparePlans, RefusesWhatItCannotCompare) {
  const auto said = [](const std::string& model, const PlanCostsRequest& request,
                       const char* plan = "") {
    RunOptions options = golden::options(Precision::f32);
    options.plan = parse_plan(plan);
    return golden::error_of([&] { compare_plans(model, options, request, {}); });
  };
  EXPECT_NE(said(kModel, {.ranks = 0}).find("0 ranks"), std::string::npos);
  EXPECT_NE(said(kModel, {.ranks = 65}).find("1 to 64"), std::string::npos);
  EXPECT_NE(said(kModel, {.rounds = 0}).find("0 rounds"), std::string::npos);
  EXPECT_NE(said(kModel, {.seconds = -1}).find("0 or more"), std::string::npos);
  EXPECT_NE(said(kModel, {.most = 0}).find("0 plans"), std::string::npos);
  PlanCostsRequest predicted{.seconds = 0};
  predicted.generate.embeddings = "none.safetensors";
  EXPECT_NE(said("scenes", predicted).find("none.safetensors"), std::string::npos);
  EXPECT_NE(said(kModel, {}, "ulysses=2").find("leave out `plan`"), std::string::npos);
  EXPECT_NE(said("tasks-a", {}).find("makes no images"), std::string::npos);
}

TEST(PlanCost, IsALineOfJson) {
  PlanCost cost{.plan = "cfg=2", .bytes = 3, .messages = 2, .rank_bytes = 5, .flops = 7};
  EXPECT_EQ(to_json(cost), R"({"flops":7.0,"messages":2,"plan":"cfg=2","rank_bytes":5,"rounds":0,)"
                           R"("sent_bytes":3,"step_seconds":null})");
  cost.seconds = 0.5;
  cost.rounds = 1;
  EXPECT_NE(to_json(cost).find(R"("step_seconds":0.5)"), std::string::npos);
}

}  // namespace
}  // namespace tessera
