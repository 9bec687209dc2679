#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera::tensor {
namespace {

TEST(DType, HalvesSurviveTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Float16 half{static_cast<uint16_t>(bits)};
    const float wide = to_float(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(to_float16(wide))));
    } else {
      ASSERT_EQ(to_float16(wide).bits, half.bits) << bits;
    }
  }
}

TEST(DType, RoundsToNearestEven) {
  EXPECT_EQ(to_float16(1.0f + 0x1p-11f).bits, to_float16(1.0f).bits);    // a tie, down to even
  EXPECT_EQ(to_float(to_float16(1.0f + 3 * 0x1p-11f)), 1.0f + 0x1p-9f);  // a tie, up to even
  EXPECT_EQ(to_float(to_bfloat16(1.0f + 0x1p-8f)), 1.0f);
  EXPECT_EQ(to_float(to_bfloat16(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);
  EXPECT_EQ(to_float(to_float16(0x1p-25f)), 0.0f);
  EXPECT_EQ(to_float(to_float16(0x1.8p-25f)), 0x1p-24f);
}

TEST(DType, OverflowIsInfinityAndNaNStays) {
  EXPECT_TRUE(std::isinf(to_float(to_float16(65520.0f))));
  EXPECT_EQ(to_float(to_float16(65504.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(to_float(to_bfloat16(3.4e38f * 0.9999f + 3e36f))));
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(DType, SizesAndNames) {
  EXPECT_EQ(size_of(DType::bf16), 2);
  EXPECT_EQ(size_of(DType::i64), 8);
  EXPECT_STREQ(name_of(DType::f16), "f16");
  EXPECT_TRUE(is_float(DType::bf16));
  EXPECT_FALSE(is_float(DType::i8));
}

}  // namespace
}  // namespace tessera::tensor
