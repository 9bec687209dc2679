#include "kernels/cuda/emulation.h"
// The emulation comes first: it is what the source below is compiled with.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/cuda/conv.cu"
#include "kernels/random_values.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

struct Case {
  int64_t rows, height, width, in, out, filter;
  int stride, pad;
  bool upsample, affine, silu, residual;
};
constexpr Case kCases[] = {
    {0, 4, 4, 3, 5, 3, 1, 1, false, false, false, false},
    {1, 1, 1, 1, 1, 1, 1, 0, false, false, false, false},
    {2, 5, 7, 4, 20, 3, 1, 1, false, true, true, true},
    {1, 9, 20, 37, 70, 3, 1, 1, false, true, false, false},
    {1, 13, 11, 16, 130, 1, 1, 0, false, false, false, true},
    {2, 10, 9, 24, 48, 3, 2, 0, false, false, true, false},
    {1, 11, 6, 8, 16, 3, 2, 1, false, true, true, true},
    {2, 5, 9, 24, 40, 3, 1, 1, true, true, true, true},
    {1, 4, 4, 6, 8, 3, 1, 0, true, false, false, false},
};

Tensor run(void (*kernel)(const ConvArgs&), const Case& c, DType filter, DType dtype) {
  const Tensor x = random_tensor({c.rows, c.height, c.width, c.in}, dtype, 1);
  const Tensor w = random_tensor({c.out, c.in, c.filter, c.filter}, filter, 2,
                                 1 / std::sqrt(static_cast<float>(c.in * c.filter * c.filter)));
  const Tensor bias = random_tensor({c.out}, DType::f32, 3);
  const Tensor scale = random_tensor({c.rows, 2, c.in}, DType::f32, 4);
  const auto lines = [&](int64_t n) {
    return (n * (c.upsample ? 2 : 1) + 2 * c.pad - c.filter) / c.stride + 1;
  };
  const Tensor y = random_tensor({c.rows, lines(c.height), lines(c.width), c.out}, dtype, 5);
  const PackedConv packed = pack_conv(w, bias, filter, Isa::reference);
  kernel({.x = x.raw(),
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
          .residual = c.residual ? y.raw() : nullptr,
          .y = y.raw(),
          .y_dtype = dtype,
          .out_height = y.size(1),
          .out_width = y.size(2)});
  return y;
}

TEST(CudaConv, EqualsTheReference) {
  for (const Case& c : kCases)
    for (DType filter : {DType::f32, DType::bf16})
      for (DType dtype : {DType::f32, DType::bf16}) {
        const double most = dtype == DType::bf16 ? 8e-3 : filter == DType::bf16 ? 3e-3 : 2e-5;
        EXPECT_LT(worst_difference(run(emulated::conv, c, filter, dtype),
                                   run(reference::conv, c, filter, dtype)),
                  most)
            << c.in << " " << c.out << " " << c.filter << " " << tensor::name_of(filter);
      }
}

TEST(CudaConv, DoesNotDependOnTheOrderOfThreads) {
  const Tensor forwards = run(emulated::conv, kCases[7], DType::bf16, DType::bf16);
  emulation::backwards = true;
  EXPECT_TRUE(same_bits(run(emulated::conv, kCases[7], DType::bf16, DType::bf16), forwards));
  emulation::backwards = false;
}

}  // namespace
}  // namespace tessera::kernels
