#include "sample/sampler.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::sample {
namespace {

Tensor row(std::vector<float> values) {
  const int64_t n = static_cast<int64_t>(values.size());
  return Tensor::from(std::span<const float>(values), {1, n});
}

TEST(Guide, MovesAwayFromTheUnconditional) {
  const Tensor out = guide(row({2, 4, 6}), row({1, 2, 3}), 3, 2);
  EXPECT_EQ(out.to_floats(), (std::vector<float>{4, 8, 6}));
}

TEST(Guide, RefusesUnequalShapes) { EXPECT_THROW(guide(row({1}), row({1, 2}), 2, 1), Error); }

}  // namespace
}  // namespace tessera::sample
