#include "planner/published_case.h"

#include <gtest/gtest.h>

#include "planner/cost.h"
#include "tessera/error.h"

namespace tessera::planner {
namespace {

TEST(PublishedCase, ReadsARow) {
  const PublishedCase run = case_of({{"model", "FLUX.1-dev"},
                                     {"hardware", "L40"},
                                     {"world", 8},
                                     {"plan", {{"cfg", 2}, {"pipefusion", 4}}},
                                     {"compile", true},
                                     {"cond", {{"warmup_steps", 2}}}});
  EXPECT_EQ(run.ranks, 8);
  EXPECT_TRUE(run.compiled);
  const Plan plan = plan_of(run);
  EXPECT_EQ(plan.world(), 8);
  EXPECT_EQ(plan.warmup, 2);
  EXPECT_EQ(PublishedRuns::cluster(run).name, "L40");
}

// Counts of bench/evaluation/pytorch_kernels.py.
TEST(PublishedCase, EagerPyTorchIssuesTheKernelsOfDiffusers) {
  const Software eager =
      PublishedRuns::cluster(case_of({{"model", "FLUX.1-dev"}, {"hardware", "A100"}})).software;
  GenerateRequest request;
  request.width = request.height = 1024;
  request.steps = 2;
  request.decode = false;
  for (const auto& [model, counted] : {std::pair{"flux_1_dev", 3407.0},
                                       {"pixart_alpha", 927.0},
                                       {"sd3_medium", 1241.0},
                                       {"hunyuan_dit", 2917.0}}) {
    Subject subject(model, {.threads = 1}, request);
    const Recording& run = subject.of(Plan()).recording;
    double kernels = 0;
    for (const Event& event : run.ranks[0].steps.back())
      if (event.kind == Event::Kind::op) kernels += kernels_of(run.ops[event.id], eager);
    EXPECT_NEAR(kernels / counted, 1, 0.1) << model << ' ' << kernels;
  }
}

TEST(PublishedCase, RefusesWhatIsNoRow) {
  EXPECT_THROW(case_of(base::Json::array()), Error);
  EXPECT_THROW(case_of({{"world", "many"}}), Error);
  EXPECT_THROW(case_of({{"plan", {{"cfg", -1}}}}), Error);
  EXPECT_THROW(plan_of(case_of({{"plan", {{"magic", 2}}}})), Error);
  EXPECT_THROW(PublishedRuns::cluster(case_of({{"hardware", "abacus"}})), Error);
}

}  // namespace
}  // namespace tessera::planner
