#include <gtest/gtest.h>

#include "tessera/study.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera {
namespace {

const std::string kModel = TESSERA_TEST_DATA "/moe/dit_moe_flash/model";

TEST(MeasureSpeed, GivesEachBatchUnderEachPlan) {
  SpeedRequest request;
  request.plans = {parse_plan(""), parse_plan("expert=2,schedule=interweaved")};
  request.batches = {48, 1};
  request.generate.steps = 3;
  request.generate.decode = false;
  request.rounds = 2;
  std::vector<PlanSpeed> lines;
  measure_speed(kModel, golden::options(Precision::f32), request,
                [&](const PlanSpeed& s) { lines.push_back(s); }, {});
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].batch, 1);
  EXPECT_EQ(lines[3].batch, 48);
  EXPECT_EQ(lines[2].plan, "");
  EXPECT_EQ(parse_plan(lines[3].plan).expert, 2);
  for (const PlanSpeed& s : lines) {
    EXPECT_GT(s.seconds, 0);
    EXPECT_DOUBLE_EQ(s.images_per_second, s.batch / s.seconds);
  }
  EXPECT_GT(lines[2].peak_bytes, lines[0].peak_bytes) << "48 images need more than one";
}

TEST(MeasureSpeed, RefusesNothingToMeasure) {
  const auto refused = [](SpeedRequest request) {
    EXPECT_THROW(measure_speed(kModel, golden::options(Precision::f32), request,
                               [](const PlanSpeed&) {}, {}),
                 Error);
  };
  refused({.plans = {}, .batches = {0}, .generate = {}});
  refused({.plans = {}, .batches = {1}, .generate = {}, .rounds = 0});
  SpeedRequest unfit;
  unfit.plans = {parse_plan("expert=99")};
  refused(unfit);
}

}  // namespace
}  // namespace tessera
