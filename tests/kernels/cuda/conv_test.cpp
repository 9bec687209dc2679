#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/conv.h"
#include "kernels/random_values.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/conv.cu"
#endif

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

struct Case {
  int64_t rows, height, width, in, out, filter;
  int stride, pad;
  bool upsample, affine, silu, residual;
};
const std::vector<Case> kSmall = {
    {0, 4, 4, 3, 5, 3, 1, 1, false, false, false, false},
    {1, 1, 1, 1, 1, 1, 1, 0, false, false, false, false},
    {2, 5, 7, 4, 20, 3, 1, 1, false, true, true, true},
    {1, 9, 20, 37, 70, 3, 1, 1, false, true, false, false},
    {1, 13, 11, 16, 130, 1, 1, 0, false, false, false, true},
    {2, 10, 9, 24, 48, 3, 2, 0, false, false, true, false},
    {1, 11, 6, 8, 16, 3, 2, 1, false, true, true, true},
    {2, 5, 9, 24, 40, 3, 1, 1, true, true, true, true},
    {1, 4, 4, 6, 8, 3, 1, 0, true, false, false, false},
    {1, 9, 19, 72, 136, 3, 1, 1, false, true, false,
     true},  // boxes beyond the edges, two of channels
    {1, 6, 11, 64, 24, 3, 1, 1, true, false, true, false},
    {2, 9, 7, 8, 3, 3, 1, 1, false, false, false, true},
    {1, 2, 130, 64, 64, 1, 1, 0, false, true, true, false},
};
const std::vector<Case> kLarge = {
    {1, 64, 60, 128, 128, 3, 1, 1, false, true, true, true},
    {2, 40, 33, 64, 256, 3, 1, 1, true, false, false, false},
    {1, 65, 64, 96, 130, 3, 2, 0, false, true, true, false},
    {1, 100, 90, 256, 64, 1, 1, 0, false, false, false, true},
    {1, 140, 130, 16, 72, 3, 1, 1, false, true, true, true},  // more tiles than multiprocessors
    {1, 140, 130, 8, 136, 3, 1, 1, false, false, false, true},
    {1, 70, 66, 8, 136, 3, 1, 1, true, true, false, false},
    {2, 120, 90, 64, 3, 3, 1, 1, false, true, true, false},
};

Tensor run(const Where& at, void (*kernel)(const ConvArgs&), const Case& c, DType filter,
           DType dtype) {
  const Tensor x = at(random_tensor({c.rows, c.height, c.width, c.in}, dtype, 1));
  const Tensor w = random_tensor({c.out, c.in, c.filter, c.filter}, filter, 2,
                                 1 / std::sqrt(static_cast<float>(c.in * c.filter * c.filter)));
  const Tensor bias = random_tensor({c.out}, DType::f32, 3);
  const Tensor scale = at(random_tensor({c.rows, 2, c.in}, DType::f32, 4));
  const auto lines = [&](int64_t n) {
    return (n * (c.upsample ? 2 : 1) + 2 * c.pad - c.filter) / c.stride + 1;
  };
  const Tensor y = at(random_tensor({c.rows, lines(c.height), lines(c.width), c.out}, dtype, 5));
  PackedConv packed = pack_conv(w, bias, filter, Isa::reference);
  packed.data = at(packed.data);
  packed.bias = at(packed.bias);
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
  return here(y);
}

TEST(CudaConv, EqualsTheReference) {
  each_kind([] {
    for (const Case& c : problems(kSmall, kLarge))
      for (DType filter : {DType::f32, DType::bf16})
        for (DType dtype : {DType::f32, DType::bf16}) {
          const double most = dtype == DType::bf16 ? 8e-3 : filter == DType::bf16 ? 3e-3 : 2e-5;
          EXPECT_LT(worst_difference(run(kThere, cuda::conv, c, filter, dtype),
                                     run(kHost, reference::conv, c, filter, dtype)),
                    most)
              << c.in << " " << c.out << " " << c.filter << " " << tensor::name_of(filter);
        }
  });
}

// The values of fewer rows begin those of more.
TEST(CudaConv, ARowDoesNotDependOnOthers) {
  each_kind([] {
    for (Case c : {kSmall[2], kSmall[5], kSmall[7]}) {
      const Tensor both = run(kThere, cuda::conv, c, DType::bf16, DType::bf16);
      c.rows = 1;
      EXPECT_TRUE(
          same_bits(run(kThere, cuda::conv, c, DType::bf16, DType::bf16), both.slice(0, 0, 1)));
    }
  });
}

TEST(CudaConv, DoesNotDependOnTheOrderOfThreads) {
  each_kind([] {
    for (const Case& c : problems<Case>({kSmall[7]}, kLarge)) {
      const auto once = [&] { return run(kThere, cuda::conv, c, DType::bf16, DType::bf16); };
      EXPECT_TRUE(same_bits(again(once), once()));
    }
  });
}

}  // namespace
}  // namespace tessera::kernels
