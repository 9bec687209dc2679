#include "parallel/reuse/change.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "comm/threads/launch.h"
#include "ops/elementwise.h"

namespace tessera::parallel {
namespace {

using tensor::Tensor;

Tensor waves(int64_t rows, int64_t columns, float by) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows * columns; ++i) values.push_back(std::sin(float(i) * by) * 3);
  return Tensor::from(std::span<const float>(values), {rows, columns});
}

TEST(Change, IsTheSumOfDifferencesOverTheSumOfValues) {
  const Tensor now = waves(7, 37, 0.3f), then = waves(7, 37, 0.31f);
  double moved = 0, base = 0;
  const auto a = now.to_floats(), b = then.to_floats();
  for (size_t i = 0; i < a.size(); ++i) {
    moved += std::abs(a[i] - b[i]);
    base += std::abs(b[i]);
  }
  Change change;
  change.add(now, then);
  change.add({}, {});
  EXPECT_NEAR(change.relative(), moved / base, 1e-6);
}

TEST(Change, HasTheSameBitsForAnyRowsOnAnyRank) {
  for (const auto dtype : {tensor::DType::f32, tensor::DType::bf16}) {
    const Tensor now = ops::cast(waves(11, 50, 0.3f), dtype);
    const Tensor then = ops::cast(waves(11, 50, 0.37f), dtype);
    Change whole;
    whole.add(now, then);
    for (const int64_t cut : {0, 1, 6, 11})
      comm::threads::run(3, std::chrono::seconds(30), [&](comm::Communicator& ranks) {
        const bool copy = ranks.rank() == 2;  // a copy of rank 1's rows
        const int64_t begin = ranks.rank() == 0 ? 0 : cut, end = ranks.rank() == 0 ? cut : 11;
        Change change;
        change.add(now.slice(0, begin, end), then.slice(0, begin, end));
        change.join(&ranks, !copy);
        EXPECT_EQ(change.relative(), whole.relative());
      });
  }
}

TEST(Change, SaysWhenItIsNoNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), one = 1, zero = 0;
  const auto number = [](const float& x) {
    return Tensor::from(std::span<const float>(&x, 1), {1, 1});
  };
  const auto from_to = [&](const float& now, const float& then) {
    Change change;
    change.add(number(now), number(then));
    return change.relative();
  };
  EXPECT_EQ(from_to(one, one), 0);
  EXPECT_EQ(from_to(zero, zero), 0);
  EXPECT_TRUE(std::isinf(from_to(one, zero)));
  EXPECT_TRUE(std::isinf(from_to(nan, one)));
}

}  // namespace
}  // namespace tessera::parallel
