#include "parallel/reuse/prediction_reuse.h"

#include <gtest/gtest.h>

#include <cmath>

#include "parallel/reuse/ramp.h"

namespace tessera::parallel {
namespace {

TEST(PredictionReuse, TaylorSeerLiteRunsNothingBetween) {
  const Ramp model({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  const StepReuse::Log log = model.run("taylorseer,order=1,interval=3,before=4,lite=1");
  EXPECT_EQ(counts(log), "3 3 3 3 0 3 0 0 3 0");
  EXPECT_EQ(log.blocks_reused, 12);
}

// Linear predictions are extrapolated exactly: the latent equals a run of all steps.
TEST(PredictionReuse, DriftReusesALine) {
  const Ramp model({1, 2, 3, 4, 5, 6, 7, 8});
  const StepReuse::Log log = model.run("drift,threshold=0.01,max_skip=3");
  EXPECT_EQ(counts(log), "3 3 3 0 0 0 3 0");
  const std::vector<float> cached = model.last;
  model.run("");
  for (size_t i = 0; i < cached.size(); ++i) EXPECT_NEAR(cached[i], model.last[i], 1e-5);
}

TEST(PredictionReuse, DriftComputesWhereItsErrorGrows) {
  std::vector<float> bent;
  for (int i = 0; i < 12; ++i) bent.push_back(std::exp(0.4f * float(i)));
  const Ramp model(bent);
  EXPECT_EQ(counts(model.run("drift,threshold=0")), "3 3 3 3 3 3 3 3 3 3 3 3");
  const auto reused = [&](const char* rule) { return model.run(rule).blocks_reused; };
  EXPECT_GT(reused("drift,threshold=1"), reused("drift,threshold=0.1"));
  EXPECT_EQ(reused("drift,threshold=1000,max_skip=0"), 0);
}

}  // namespace
}  // namespace tessera::parallel
