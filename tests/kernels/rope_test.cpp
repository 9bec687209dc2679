#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/random_values.h"
#include "kernels/table.h"
#include "tensor/tensor.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

// Complex multiplication in doubles, for any pairing.
TEST(Rope, EveryInstructionSetTurnsPairsAsComplexNumbers) {
  const int64_t tokens = 5, heads = 3, dim = 10, pairs = 4;
  std::vector<float> x(size_t(tokens * heads * dim)), cos(size_t(tokens * pairs)), sin(cos.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(float(i) * 1.7f);
  for (size_t i = 0; i < cos.size(); ++i) {
    cos[i] = std::cos(float(i));
    sin[i] = std::sin(float(i));
  }
  for (Isa isa : available_isas())
    for (bool interleaved : {false, true}) {
      std::vector<float> y(x.size());
      cpu_table(isa).rope({.x = x.data(),
                           .x_stride = heads * dim,
                           .y = y.data(),
                           .y_stride = heads * dim,
                           .tokens = tokens,
                           .heads = heads,
                           .head_dim = dim,
                           .pairs = pairs,
                           .cos = cos.data(),
                           .sin = sin.data(),
                           .interleaved = interleaved});
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t h = 0; h < heads; ++h) {
          const size_t at = size_t((t * heads + h) * dim);
          for (int64_t i = 0; i < pairs; ++i) {
            const size_t a = at + size_t(interleaved ? 2 * i : i);
            const size_t b = at + size_t(interleaved ? 2 * i + 1 : i + pairs);
            const double c = cos[size_t(t * pairs + i)], s = sin[size_t(t * pairs + i)];
            EXPECT_NEAR(y[a], x[a] * c - x[b] * s, 1e-6);
            EXPECT_NEAR(y[b], x[b] * c + x[a] * s, 1e-6);
          }
          for (size_t i = size_t(2 * pairs); i < size_t(dim); ++i) EXPECT_EQ(y[at + i], x[at + i]);
        }
    }
}

// Any bits except NaN, including subnormal numbers.
TEST(Rope, EveryInstructionSetHasTheBitsOfTheReference) {
  const int64_t tokens = 3, heads = 2;
  std::mt19937 random(7);
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t dim : {2, 10, 64, 72, 128, 130})
      for (bool interleaved : {false, true})
        for (int64_t pairs : {dim / 2, dim / 2 - 1}) {
          const Tensor x = random_tensor({tokens, heads * dim}, dtype, 3);
          if (dtype == DType::bf16)
            for (int64_t i = 0; i < x.elements(); i += 3) {
              const auto bits = static_cast<uint16_t>(random());
              x.data<tensor::BFloat16>()[i].bits = (bits & 0x7f80) == 0x7f80 ? bits & 0x80ff : bits;
            }
          const Tensor cos = random_tensor({tokens, pairs}, DType::f32, 4);
          const Tensor sin = random_tensor({tokens, pairs}, DType::f32, 5);
          const auto turned = [&](Isa isa) {
            const Tensor y = Tensor::zeros(x.shape(), dtype);
            cpu_table(isa).rope({x.raw(), heads * dim, y.raw(), heads * dim, dtype, tokens, heads,
                                 dim, pairs, cos.data<float>(), sin.data<float>(), interleaved});
            return y;
          };
          const Tensor want = turned(Isa::reference);
          for (Isa isa : available_isas())
            EXPECT_EQ(std::memcmp(turned(isa).raw(), want.raw(), size_t(want.bytes())), 0)
                << name_of(isa) << " " << tensor::name_of(dtype) << " " << dim << " " << pairs;
        }
}

}  // namespace
}  // namespace tessera::kernels
