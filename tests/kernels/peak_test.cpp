#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/random_values.h"
#include "kernels/sampling.h"
#include "kernels/table.h"

namespace tessera::kernels {
namespace {

Peak peak_of(Isa isa, const std::vector<float>& logits, int64_t except) {
  Peak y;
  cpu_table(isa).peaks({.logits = {logits.data(), 0},
                        .rows = 1,
                        .count = static_cast<int64_t>(logits.size()),
                        .except = except,
                        .peaks = &y});
  return y;
}

TEST(Peak, IsTheLargestButOneAndTheSumOfExponentials) {
  for (const int64_t count : {1, 2, 15, 16, 17, 33, 1023, 1024, 1025, 5000})
    for (const float spread : {0.001f, 1.0f, 30.0f, 900.0f}) {
      std::vector<float> logits =
          random_tensor({count}, tensor::DType::f32, uint32_t(count)).to_floats();
      for (float& x : logits) x *= spread;
      for (const int64_t except : {int64_t{-1}, int64_t{0}, count / 2, count - 1, count}) {
        long double sum = 0;
        int64_t top = except == 0 && count > 1 ? 1 : 0;
        for (int64_t i = 0; i < count; ++i)
          if (i != except && logits[size_t(i)] > logits[size_t(top)]) top = i;
        for (int64_t i = 0; i < count; ++i)
          if (i != except) sum += std::exp((long double)logits[size_t(i)] - logits[size_t(top)]);
        if (sum == 0) continue;
        for (Isa isa : available_isas()) {
          const Peak y = peak_of(isa, logits, except);
          ASSERT_EQ(y.index, top) << name_of(isa) << ", " << count << " but " << except;
          ASSERT_EQ(y.largest, logits[size_t(top)]);
          ASSERT_NEAR(y.sum, double(sum), 1e-13 * double(sum)) << name_of(isa) << ", " << count;
        }
      }
    }
}

TEST(Peak, OfEqualsIsTheFirst) {
  for (Isa isa : available_isas())
    for (const int64_t first : {0, 1, 31, 1023, 1024, 2000}) {
      std::vector<float> logits(3000, -1);
      for (const int64_t at : {first, int64_t{2500}}) logits[size_t(at)] = 4;
      EXPECT_EQ(peak_of(isa, logits, -1).index, first);
      EXPECT_EQ(peak_of(isa, logits, first).index, 2500);
    }
}

TEST(Peak, OfEachRowOfAView) {
  const tensor::Tensor wide = random_tensor({5, 90}, tensor::DType::f32, 3);
  for (Isa isa : available_isas()) {
    std::vector<Peak> all(5);
    cpu_table(isa).peaks({.logits = {wide.data<float>() + 7, 90},
                          .rows = 5,
                          .count = 70,
                          .except = 2,
                          .peaks = all.data()});
    for (int64_t t = 0; t < 5; ++t) {
      const float* const row = wide.row<float>(t) + 7;
      const Peak one = peak_of(isa, {row, row + 70}, 2);
      EXPECT_EQ(all[size_t(t)].index, one.index);
      EXPECT_EQ(all[size_t(t)].sum, one.sum);
      EXPECT_EQ(all[size_t(t)].largest, one.largest);
    }
  }
}

TEST(Peak, OfWhatIsNoNumberAndOfInfinities) {
  const float infinite = std::numeric_limits<float>::infinity(), none = std::nanf("");
  for (Isa isa : available_isas()) {
    std::vector<float> logits(2100, -infinite);
    EXPECT_EQ(peak_of(isa, logits, -1).index, 0);
    EXPECT_EQ(peak_of(isa, logits, -1).largest, -infinite);
    EXPECT_EQ(peak_of(isa, {}, -1).index, 0);
    logits[2050] = 3;
    EXPECT_EQ(peak_of(isa, logits, -1).index, 2050);
    EXPECT_DOUBLE_EQ(peak_of(isa, logits, -1).sum, 1);
    for (const size_t at : {size_t{7}, size_t{2049}, size_t{2051}}) {
      std::vector<float> bad = logits;
      bad[at] = none;
      EXPECT_EQ(peak_of(isa, bad, -1).index, 2050);
      EXPECT_TRUE(std::isnan(peak_of(isa, bad, -1).sum)) << name_of(isa);
      EXPECT_DOUBLE_EQ(peak_of(isa, bad, int64_t(at)).sum, 1);
      bad[at] = infinite;
      EXPECT_EQ(peak_of(isa, bad, -1).index, int64_t(at));
      EXPECT_TRUE(std::isnan(peak_of(isa, bad, -1).sum)) << name_of(isa);
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
