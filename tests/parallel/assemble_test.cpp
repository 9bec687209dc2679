#include "parallel/assemble.h"

#include <gtest/gtest.h>

namespace tessera::parallel {
namespace {

TEST(Assemble, OneRankRunsAllBlocks) {
  nn::Geometry geometry;
  geometry.blocks = 7;
  const Assembly assembly = assemble(geometry, {.warmup = 2});
  EXPECT_EQ(assembly.blocks, (nn::Range{0, 7}));
  EXPECT_TRUE(assembly.plan.fresh(1));
  EXPECT_FALSE(assembly.plan.fresh(2));
}

}  // namespace
}  // namespace tessera::parallel
