#include "kernels/conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/random_values.h"
#include "kernels/table.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

struct Case {
  int64_t rows, height, width, in, out, filter;
  int stride, pad;  // pad on all sides
  bool upsample, affine, silu, residual;
};
constexpr Case kCases[] = {
    {0, 4, 4, 3, 5, 3, 1, 1, false, false, false, false},
    {1, 1, 1, 1, 1, 1, 1, 0, false, false, false, false},
    {2, 5, 7, 4, 20, 3, 1, 1, false, true, true, true},
    {1, 9, 70, 37, 70, 3, 1, 1, false, true, false, false},
    {1, 17, 66, 16, 130, 1, 1, 0, false, false, false, true},
    {2, 10, 9, 24, 48, 3, 2, 0, false, false, true, false},
    {1, 11, 6, 8, 16, 3, 2, 1, false, true, true, true},
    {1, 3, 5, 19, 33, 3, 1, 1, true, false, false, false},
    {2, 9, 65, 24, 96, 3, 1, 1, true, true, true, true},
    {1, 6, 6, 8, 8, 5, 1, 2, false, false, false, false},
    {1, 4, 4, 6, 8, 3, 1, 0, true, false, false, false},
    {1, 12, 20, 300, 64, 3, 1, 1, false, true, true, false},
};

struct Operands {
  Operands(const Case& size, DType filter, DType image = DType::bf16)
      : c(size),
        packed_dtype(filter),
        dtype(filter == DType::i8 ? image : filter),
        x(random_tensor({c.rows, c.height, c.width, c.in}, dtype, 1)),
        w(random_tensor({c.out, c.in, c.filter, c.filter}, dtype, 2,
                        1 / std::sqrt(static_cast<float>(c.in * c.filter * c.filter)))),
        bias(random_tensor({c.out}, DType::f32, 3)),
        scale(random_tensor({c.rows, 2, c.in}, DType::f32, 4)),
        residual(random_tensor({c.rows, lines(c.height), lines(c.width), c.out}, dtype, 5)) {}

  int64_t lines(int64_t n) const {
    return (n * (c.upsample ? 2 : 1) + 2 * c.pad - c.filter) / c.stride + 1;
  }
  Tensor run(Isa isa) const {
    const PackedConv packed = pack_conv(w, bias, packed_dtype, isa);
    const Tensor y = Tensor::empty(residual.shape(), dtype);
    cpu_table(isa).conv({.x = x.raw(),
                         .dtype = dtype,
                         .x_stride = x.stride(0),
                         .rows = c.rows,
                         .height = c.height,
                         .width = c.width,
                         .weight = &packed,
                         .scale_shift = c.affine ? scale.data<float>() : nullptr,
                         .silu = c.silu,
                         .upsample = c.upsample,
                         .stride = c.stride,
                         .pad_top = c.pad,
                         .pad_left = c.pad,
                         .residual = c.residual ? residual.raw() : nullptr,
                         .y = y.raw(),
                         .y_dtype = dtype,
                         .out_height = y.size(1),
                         .out_width = y.size(2)});
    return y;
  }

  Case c;
  DType packed_dtype, dtype;
  Tensor x, w, bias, scale, residual;
};

TEST(Conv, EqualsTheReferenceOnEveryInstructionSet) {
  for (DType dtype : {DType::f32, DType::bf16, DType::i8})
    for (const Case& c : kCases) {
      const Operands o(c, dtype);
      const std::vector<float> want = o.run(Isa::reference).to_floats();
      for (Isa isa : available_isas()) {
        const std::vector<float> got = o.run(isa).to_floats();
        ASSERT_EQ(got.size(), want.size());
        // The input may round to the other neighbour, and a folded filter is rounded again.
        const double bound = dtype == DType::f32                  ? 1e-5
                             : c.upsample && dtype == DType::bf16 ? 0.05
                                                                  : 0.02;
        for (size_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(got[i], want[i], bound * (1 + std::abs(want[i])))
              << name_of(isa) << " " << tensor::name_of(dtype) << " case " << &c - kCases
              << " element " << i;
      }
    }
}

TEST(Conv, APixelDoesNotDependOnThreads) {
  for (DType dtype : {DType::f32, DType::bf16, DType::i8})
    for (const Case& c : kCases)
      for (Isa isa : available_isas()) {
        const Operands o(c, dtype);
        const Tensor alone = o.run(isa);
        base::ThreadPool pool(3);
        tensor::Scope threaded;
        threaded.pool = &pool;
        const tensor::BindScope bind(threaded);
        const Tensor together = o.run(isa);
        EXPECT_EQ(alone.bytes() == 0 || std::memcmp(alone.raw(), together.raw(),
                                                    static_cast<size_t>(alone.bytes())) == 0,
                  true)
            << name_of(isa) << " case " << &c - kCases;
      }
}

double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(got[i] - want[i], 2);
    norm += std::pow(want[i], 2);
  }
  return norm > 0 ? std::sqrt(error / norm) : 0;
}

TEST(Conv, Int8IsCloseToExactFilters) {
  for (const Case& c : kCases) {
    if (c.residual) continue;
    Operands o(c, DType::i8);
    const std::vector<float> got = o.run(Isa::reference).to_floats();
    o.packed_dtype = DType::f32;
    EXPECT_LT(relative_error(got, o.run(Isa::reference).to_floats()), 0.02)
        << "case " << &c - kCases;
  }
}

TEST(Conv, Int8TakesImagesOfAnyFloat) {
  for (const Isa isa : available_isas())
    for (const Case& c : {kCases[2], kCases[6], kCases[7]}) {
      const std::vector<float> want =
          Operands(c, DType::i8, DType::f32).run(Isa::reference).to_floats();
      EXPECT_LT(relative_error(Operands(c, DType::i8, DType::f32).run(isa).to_floats(), want), 1e-5)
          << name_of(isa) << " width " << c.width;
      const Operands half(c, DType::i8, DType::f16);
      EXPECT_LT(relative_error(half.run(isa).to_floats(), half.run(Isa::reference).to_floats()),
                2e-3)
          << name_of(isa) << " width " << c.width;
    }
}

TEST(Conv, Int8KeepsNonFiniteNumbersToTheirPixels) {
  for (const float odd : {NAN, INFINITY})
    for (const Isa isa : available_isas()) {
      Operands o({1, 6, 6, 20, 8, 3, 1, 1, false, false, false, false}, DType::i8);
      for (int64_t i = 3; i < 20; i += 5)  // channels of pixel (0, 0)
        o.x.data<tensor::BFloat16>()[i] = tensor::to_bfloat16(odd);
      const std::vector<float> y = o.run(isa).to_floats();
      for (size_t i = 0; i < y.size(); ++i) {
        const size_t line = i / 48, column = i / 8 % 6;
        EXPECT_EQ(std::isnan(y[i]), line < 2 && column < 2) << name_of(isa) << " element " << i;
      }
    }
}

TEST(Conv, Int8HasALimit) {
  EXPECT_THROW(pack_conv(Tensor::zeros({1, 7282, 3, 3}, DType::f32), {}, DType::i8, Isa::reference),
               Error);
}

}  // namespace
}  // namespace tessera::kernels
