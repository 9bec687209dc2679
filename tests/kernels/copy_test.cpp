#include "kernels/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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

// Every order of four axes, including views, against the reference.
TEST(Copy, EqualsTheReferenceForAnyStrides) {
  std::vector<uint64_t> x(4096);
  std::iota(x.begin(), x.end(), uint64_t{1});
  for (const std::array<int64_t, 4>& size :
       {std::array<int64_t, 4>{2, 3, 4, 5}, {1, 40, 1, 37}, {3, 1, 33, 17}, {2, 2, 2, 64}})
    for (int64_t gap : {0, 3})
      for (std::array<size_t, 4> order = {0, 1, 2, 3};;) {
        std::array<int64_t, 4> stride{};
        int64_t step = 1;
        for (size_t a = 4; a-- > 0; step *= size[a] + (a == 3 ? gap : 0)) stride[a] = step;
        CopyArgs args{.x = x.data(), .axes = 4};
        int64_t to = 1;
        for (size_t a = 4; a-- > 0; to *= args.size[a]) {
          args.size[a] = size[order[a]], args.x_stride[a] = stride[order[a]];
          args.y_stride[a] = to;
        }
        for (int64_t element : {1, 2, 4, 8}) {
          args.element = element;
          std::vector<uint64_t> want(x.size()), got(x.size());
          args.y = want.data();
          reference::copy(args);
          args.y = got.data();
          simd::copy(args);
          EXPECT_EQ(got, want) << size[1] << " " << order[3] << " " << element;
        }
        if (!std::next_permutation(order.begin(), order.end())) break;
      }
}

TEST(MoveRows, TakesRowsOfEveryDtypeIntoEveryAndZerosForNone) {
  const std::vector<int32_t> from = {4, -1, 4, 2}, to = {1, 0, 5, 3};
  for (Isa isa : available_isas())
    for (DType in : {DType::f32, DType::bf16, DType::f16})
      for (DType out : {DType::f32, DType::bf16, DType::f16})
        for (const int32_t* targets : {to.data(), static_cast<const int32_t*>(nullptr)}) {
          const Tensor table = random_tensor({5, 9}, in, 1);
          const Tensor y = random_tensor({6, 8}, out, 2);
          const auto before = y.to_floats();
          cpu_table(isa).move_rows({.x = table.slice(1, 1, 8).raw(),
                                    .x_dtype = in,
                                    .x_stride = 9,
                                    .from = from.data(),
                                    .y = y.raw(),
                                    .y_dtype = out,
                                    .y_stride = 8,
                                    .to = targets,
                                    .rows = 4,
                                    .columns = 7});
          auto want = before;
          const auto values = table.to_floats();
          tensor::with_float_type(out, [&](auto type) {
            using T = decltype(type);
            for (size_t t = 0; t < 4; ++t)
              for (size_t c = 0; c < 7; ++c)
                want[(targets ? size_t(to[t]) : t) * 8 + c] =
                    from[t] < 0 ? 0
                                : tensor::to_float(
                                      tensor::from_float<T>(values[size_t(from[t]) * 9 + c + 1]));
          });
          EXPECT_EQ(y.to_floats(), want) << name_of(isa);
        }
}

}  // namespace
}  // namespace tessera::kernels
