#include "ops/finite.h"

#include <gtest/gtest.h>

#include <limits>

#include "ops/elementwise.h"
#include "tessera/error.h"

namespace tessera::ops {
namespace {

using tensor::DType;
using tensor::Tensor;

TEST(Finite, FindsOneOddElementInEveryDtype) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const float odd : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> values(70001, 3.5f);
      values[0] = -65504;  // the largest of f16
      const auto tensor = [&] {
        return cast(Tensor::from(std::span<const float>(values), {70001}), dtype);
      };
      EXPECT_TRUE(all_finite(tensor()));
      values[66000] = odd;
      EXPECT_FALSE(all_finite(tensor()));
    }
}

TEST(Finite, LooksAtAViewAlone) {
  const std::vector<float> values{1, std::numeric_limits<float>::quiet_NaN(), 2, 3};
  const Tensor x = Tensor::from(std::span<const float>(values), {2, 2});
  EXPECT_TRUE(all_finite(x.slice(1, 0, 1)));
  EXPECT_FALSE(all_finite(x.slice(1, 1, 2)));
  EXPECT_TRUE(all_finite(x.slice(0, 1, 2)));
}

TEST(Finite, NothingAndMetaAreFinite) {
  EXPECT_TRUE(all_finite(Tensor()));
  EXPECT_TRUE(all_finite(Tensor::empty({0, 3}, DType::f32)));
  EXPECT_TRUE(all_finite(Tensor::empty({2, 3}, DType::f32, tensor::Device::meta)));
}

TEST(Finite, NamesThePart) {
  const float odd = std::numeric_limits<float>::infinity();
  try {
    require_finite(Tensor::from(std::span<const float>(&odd, 1), {1}), "block 3");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    EXPECT_TRUE(std::string(e.what()).starts_with("block 3 of the model gives"));
  }
}

}  // namespace
}  // namespace tessera::ops
