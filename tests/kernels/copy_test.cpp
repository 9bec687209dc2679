#include "kernels/copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/random_values.h"
#include "kernels/table.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

TEST(Copy, TurnsAxesOfEveryElementSize) {
  for (Isa isa : available_isas())
    for (int64_t element : {1, 2, 4, 8}) {
      std::vector<uint64_t> x(64), y(64, ~uint64_t{0});
      std::iota(x.begin(), x.end(), uint64_t{1});
      auto* from = reinterpret_cast<uint8_t*>(x.data());
      auto* to = reinterpret_cast<uint8_t*>(y.data());
      cpu_table(isa).copy({.x = from,
                           .y = to,
                           .element = element,
                           .axes = 3,
                           .size = {2, 3, 5},
                           .x_stride = {15, 1, 3},
                           .y_stride = {15, 5, 1}});
      for (int64_t a = 0; a < 2; ++a)
        for (int64_t b = 0; b < 3; ++b)
          for (int64_t c = 0; c < 5; ++c)
            EXPECT_EQ(std::memcmp(to + (a * 15 + b * 5 + c) * element,
                                  from + (a * 15 + c * 3 + b) * element, size_t(element)),
                      0);
    }
}

TEST(Copy, AStrideOfZeroRepeatsAndNoElementsAreNoWork) {
  const std::vector<float> x = {1, 2};
  std::vector<float> y(6);
  const CopyArgs args{.x = x.data(),
                      .y = y.data(),
                      .element = 4,
                      .axes = 2,
                      .size = {2, 3},
                      .x_stride = {1, 0},
                      .y_stride = {3, 1}};
  reference::copy(args);
  EXPECT_EQ(y, (std::vector<float>{1, 1, 1, 2, 2, 2}));
  CopyArgs none = args;
  none.size[0] = 0;
  reference::copy(none);
}

TEST(Gather, TakesRowsOfEveryDtypeIntoEvery) {
  const std::vector<int32_t> ids = {4, 0, 4, 2};
  for (Isa isa : available_isas())
    for (DType from : {DType::f32, DType::bf16, DType::f16})
      for (DType to : {DType::f32, DType::bf16, DType::f16}) {
        const Tensor table = random_tensor({5, 9}, from, 1);
        const Tensor y = Tensor::empty({4, 7}, to);
        cpu_table(isa).gather({.table = table.slice(1, 1, 8).raw(),
                               .dtype = from,
                               .stride = 9,
                               .ids = ids.data(),
                               .rows = 4,
                               .columns = 7,
                               .y = y.raw(),
                               .y_dtype = to});
        const auto values = table.to_floats(), got = y.to_floats();
        tensor::with_float_type(to, [&](auto type) {
          using T = decltype(type);
          for (size_t t = 0; t < 4; ++t)
            for (size_t c = 0; c < 7; ++c)
              EXPECT_EQ(
                  got[t * 7 + c],
                  tensor::to_float(tensor::from_float<T>(values[size_t(ids[t]) * 9 + c + 1])));
        });
      }
}

}  // namespace
}  // namespace tessera::kernels
