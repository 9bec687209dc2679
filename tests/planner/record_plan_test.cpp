#include "planner/record_plan.h"

#include <gtest/gtest.h>

#include "diffusion/plan_job.h"
#include "planner/search.h"
#include "tessera/error.h"
#include "test_paths.h"

namespace tessera::planner {
namespace {

struct Opened {
  Opened(const std::string& model, const GenerateRequest& request) {
    open_subject(model, {.threads = 1}, state);
    job = diffusion::sketch_job(state, request);
  }
  runtime::ModelState state;
  diffusion::Job job;
};

GenerateRequest of_steps(int steps) {
  GenerateRequest request;
  request.steps = steps;
  request.decode = false;
  return request;
}

TEST(Predict, RecordsEveryRankOfAPlan) {
  Opened opened(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", of_steps(20));
  const RecordedPlan found = record_plan(opened.state, opened.job, parse_plan("ulysses=2"));
  ASSERT_EQ(found.recording.ranks.size(), 2u);
  EXPECT_EQ(found.recording.steps, 20);
  EXPECT_LT(found.recording.recorded_steps(), 20);
  EXPECT_GT(found.recording.sent_bytes(), 0);
  EXPECT_GT(found.rank_bytes, 0);
  EXPECT_GT(found.flops, 0);
}

TEST(Predict, IsTheSameEachTime) {
  Opened opened(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", of_steps(8));
  for (const char* text : {"pipefusion=2,patches=4", "ring=3", "data=1,cfg=2,distrifusion=2"}) {
    const Plan plan = parse_plan(text);
    const base::Json first = to_json(record_plan(opened.state, opened.job, plan).recording);
    EXPECT_EQ(to_json(record_plan(opened.state, opened.job, plan).recording), first) << text;
  }
}

TEST(Predict, AFewStepsStandForMany) {
  const std::string model = TESSERA_TEST_DATA "/moe/dit_moe_flash/model";
  Opened few(model, of_steps(12)), many(model, of_steps(24));
  const Plan plan = parse_plan("distrifusion=2");
  const double twelve = record_plan(few.state, few.job, plan).recording.sent_bytes();
  const double more = record_plan(many.state, many.job, plan).recording.sent_bytes();
  EXPECT_GT(more, 1.8 * twelve);
  EXPECT_LT(more, 2.2 * twelve);
}

TEST(Predict, TwoStepsThatAreEqualStandForAll) {
  for (const char* model : {TESSERA_TEST_DATA "/moe/dit_moe_flash/model", "pixart_alpha"}) {
    Opened opened(model, of_steps(9));
    for (const char* text : {"", "ulysses=2", "ring=2", "tensor=2", "pipefusion=2,patches=2",
                             "pipefusion=2,patches=1", "shard=2", "ulysses=2,shard=2"}) {
      const Plan plan = parse_plan(text);
      const RecordedPlan brief = record_plan(opened.state, opened.job, plan, true, true);
      const RecordedPlan all = record_plan(opened.state, opened.job, plan, false);
      EXPECT_EQ(to_json(brief.recording), to_json(all.recording)) << model << " " << text;
      EXPECT_EQ(brief.steady, all.steady) << model << " " << text;
      EXPECT_EQ(brief.rank_bytes, all.rank_bytes) << model << " " << text;
      EXPECT_EQ(brief.flops, all.flops) << model << " " << text;
    }
  }
}

TEST(Predict, RefusesPlansThatCannotRun) {
  Opened opened("dit_moe_s", of_steps(4));
  EXPECT_THROW(record_plan(opened.state, opened.job, parse_plan("tensor=5")), Error);
}

}  // namespace
}  // namespace tessera::planner
