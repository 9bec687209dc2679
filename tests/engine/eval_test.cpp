#include <gtest/gtest.h>

#include "golden.h"

namespace tessera {
namespace {

TEST(Evaluate, SynchronousPlansHaveNoErrorAndStaleOnesHave) {
  EvalRequest request;
  for (const char* plan :
       {"expert=2", "schedule=interweaved", "schedule=interweaved,conditional=low,sync=deep"})
    request.plans.push_back(parse_plan(plan));
  request.pictures = 5;
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
  EXPECT_EQ(lines[1].rows_share, 1);
  EXPECT_GT(lines[2].latent_error, 0);
  EXPECT_LT(lines[3].rows_share, lines[2].rows_share);
  EXPECT_EQ(lines[3].pictures, 5);
  EXPECT_EQ(lines[3].recognised, -1) << "this folder has no critic";
}

TEST(Evaluate, RefusesNothingToMeasure) {
  EvalRequest request;
  request.pictures = 0;
  EXPECT_THROW(evaluate(TESSERA_TEST_DATA "/moe/dit_moe_flash/model",
                        golden::options(Precision::f32), request, [](const PlanQuality&) {}, {}),
               Error);
}

}  // namespace
}  // namespace tessera
