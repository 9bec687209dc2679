#include "parallel/reuse/step_reuse.h"

#include <gtest/gtest.h>

#include "parallel/reuse/ramp.h"

namespace tessera::parallel {
namespace {

TEST(StepReuse, BelongsToARequest) {
  const Ramp model({1, 1, 1, 1});
  const StepReuse::Log one = model.run("fbcache,threshold=0.1"), two = model.run("fbcache");
  EXPECT_EQ(counts(one), "3 1 1 1");
  EXPECT_EQ(one.computed, two.computed) << "nothing stays of the run before";
}

}  // namespace
}  // namespace tessera::parallel
