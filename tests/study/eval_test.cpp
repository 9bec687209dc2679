#include <gtest/gtest.h>

#include <cmath>

#include "tessera/study.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera {
namespace {

TEST(Evaluate, SynchronousPlansHaveNoErrorAndStaleOnesHave) {
  EvalRequest request;
  for (const char* plan :
       {"expert=2", "schedule=interweaved", "schedule=interweaved,conditional=low,sync=deep"})
    request.plans.push_back(parse_plan(plan));
  request.images = 5;
  request.batch = 3;
  request.generate.steps = 4;
  request.generate.decode = false;
  std::vector<PlanQuality> lines;
  evaluate(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", golden::options(Precision::f32), request,
           [&](const PlanQuality& q) { lines.push_back(q); }, {});
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].plan, "");
  EXPECT_EQ(lines[0].latent_error, 0);
  EXPECT_EQ(lines[1].latent_error, 0) << "expert parallelism alone changes nothing";
  EXPECT_EQ(lines[1].assignments_share, 1);
  EXPECT_GT(lines[2].latent_error, 0);
  EXPECT_LT(lines[3].assignments_share, lines[2].assignments_share);
  EXPECT_EQ(lines[3].images, 5);
  EXPECT_EQ(lines[3].recognised, -1) << "this folder has no critic";
}

TEST(Evaluate, SetsImagesBesideRealOnes) {
  EvalRequest request;
  request.images = request.batch = request.unpaired_from = 8;
  request.generate.steps = 2;
  std::vector<PlanQuality> lines;
  evaluate("shapes", golden::options(Precision::f32), request,
           [&](const PlanQuality& q) { lines.push_back(q); }, {});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_GT(lines[0].frechet, 0);
  EXPECT_GT(lines[0].spatial_frechet, 0);
  EXPECT_GE(lines[0].inception_score, 1);
  EXPECT_LE(lines[0].inception_score, 8.001) << "eight images show at most eight classes";
  for (double share : {lines[0].precision, lines[0].recognised})
    EXPECT_DOUBLE_EQ(share * 8, std::round(share * 8)) << "of eight images";
  EXPECT_GE(lines[0].recall, 0);  // share of real images
  EXPECT_LE(lines[0].recall, 1);
  EXPECT_GT(lines[0].peak_bytes, 0);
}

TEST(Evaluate, RefusesNothingToMeasure) {
  EvalRequest request;
  request.images = 0;
  EXPECT_THROW(evaluate(TESSERA_TEST_DATA "/moe/dit_moe_flash/model",
                        golden::options(Precision::f32), request, [](const PlanQuality&) {}, {}),
               Error);
}

}  // namespace
}  // namespace tessera
