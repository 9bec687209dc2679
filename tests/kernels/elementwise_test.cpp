#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/closeness.h"
#include "kernels/random_values.h"
#include "kernels/table.h"
#include "tensor/tensor.h"

namespace tessera::kernels {
namespace {

double right(Elementwise op, double a, double b, double alpha, double beta, double gate) {
  switch (op) {
    case Elementwise::cast: return a;
    case Elementwise::add: return a + b;
    case Elementwise::blend: return a * alpha + b * beta;
    case Elementwise::multiply: return a * b;
    case Elementwise::scale: return a / beta * alpha;
    case Elementwise::silu: return a / (1 + std::exp(-a));
    case Elementwise::relu: return std::max(a, 0.0);
    case Elementwise::gelu_tanh:
      return 0.5 * a * (1 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a)));
    case Elementwise::swiglu: return a / (1 + std::exp(-a)) * b;
    case Elementwise::softcap: return alpha * std::tanh(a / alpha);
    case Elementwise::add_gated: return a + gate * b;
  }
  return 0;
}

TEST(Elementwise, EveryOpIsItsFormulaOnEveryInstructionSet) {
  const std::vector<float> gate{0.5f, -2, 3, 0.25f, 1, 7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1};
  for (Isa isa : available_isas())
    for (int op = 0; op <= int(Elementwise::add_gated); ++op)
      for (int64_t columns : {1, 8, 19}) {
        std::vector<float> a, b, y(size_t(3 * columns), -1);
        for (int64_t i = 0; i < 3 * columns; ++i) {
          a.push_back(float(i - columns) * 0.7f);
          b.push_back(1.5f - float(i) * 0.1f);
        }
        ElementwiseArgs args{.op = Elementwise(op),
                             .a = a.data(),
                             .b = b.data(),
                             .a_stride = columns,
                             .b_stride = columns,
                             .y = y.data(),
                             .y_stride = columns,
                             .rows = 3,
                             .columns = columns,
                             .alpha = 2,
                             .beta = -3,
                             .gate = gate.data(),
                             .gate_stride = 0};
        cpu_table(isa).elementwise(args);
        for (size_t i = 0; i < y.size(); ++i) {
          const double e = right(args.op, a[i], b[i], 2, -3, gate[i % size_t(columns)]);
          ASSERT_NEAR(y[i], e, 2e-6 * (1 + std::abs(e))) << "op " << op << " at " << i;
        }
      }
}

TEST(Elementwise, ReluKeepsNaN) {
  std::vector<float> a(21, -1), y(21, 5);
  a[2] = a[20] = std::nanf("");
  a[3] = std::numeric_limits<float>::infinity();
  for (Isa isa : available_isas()) {
    cpu_table(isa).elementwise({.op = Elementwise::relu,
                                .a = a.data(),
                                .a_stride = 21,
                                .y = y.data(),
                                .y_stride = 21,
                                .rows = 1,
                                .columns = 21});
    EXPECT_TRUE(std::isnan(y[2]) && std::isnan(y[20]));
    EXPECT_EQ(y[3], a[3]);
    EXPECT_EQ(y[4], 0);
  }
}

// Bit-identical for single elements, elsewhere within a unit of the last place: including rounding
// to bf16.
TEST(Elementwise, MixedTypesRoundAndKeepStrides) {
  const int64_t rows = 4, columns = 37, stride = 41;
  std::vector<tensor::BFloat16> a(size_t{rows * stride}), y(a.size(), tensor::to_bfloat16(-7));
  std::vector<float> b(a.size()), gate(size_t{2 * columns});
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = tensor::to_bfloat16(0.37f * float(i % 23) - 3);
    b[i] = 0.11f * float(i % 31) - 1;
  }
  for (size_t i = 0; i < gate.size(); ++i) gate[i] = float(i % 5) - 2;
  const std::vector<int32_t> row_of{1, 0, 0, 1};
  for (Isa isa : available_isas()) {
    cpu_table(isa).elementwise({.op = Elementwise::add_gated,
                                .a = a.data(),
                                .b = b.data(),
                                .a_stride = stride,
                                .b_stride = stride,
                                .a_dtype = tensor::DType::bf16,
                                .y = y.data(),
                                .y_stride = stride,
                                .y_dtype = tensor::DType::bf16,
                                .rows = rows,
                                .columns = columns,
                                .gate = gate.data(),
                                .gate_stride = columns,
                                .row_of = row_of.data()});
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t i = 0; i < stride; ++i) {
        const size_t at = size_t(t * stride + i);
        if (i >= columns) {
          ASSERT_EQ(tensor::to_float(y[at]), -7) << "a store behind the row";
          continue;
        }
        const float g = gate[size_t(row_of[size_t(t)] * columns + i)];
        const float e = tensor::to_float(a[at]) + g * b[at];
        ASSERT_NEAR(tensor::to_float(y[at]), e, 0.004f * (std::abs(e) + 1e-3f)) << t << " " << i;
      }
  }
}

TEST(Elementwise, EveryMixOfTypesEqualsTheReference) {
  using tensor::DType;
  const int64_t rows = 3, columns = 45;
  const tensor::Tensor gate = random_tensor({columns}, DType::f32, 3);
  for (DType a : {DType::f32, DType::bf16, DType::f16})
    for (DType b : {DType::f32, DType::bf16, DType::f16})
      for (DType y : {DType::f32, DType::bf16, DType::f16})
        for (int op = 0; op <= int(Elementwise::add_gated); ++op) {
          const tensor::Tensor x = random_tensor({rows, columns}, a, 1, 3),
                               z = random_tensor({rows, columns}, b, 2);
          const auto made = [&](Isa isa) {
            const tensor::Tensor out = tensor::Tensor::zeros({rows, columns}, y);
            cpu_table(isa).elementwise({.op = Elementwise(op),
                                        .a = x.raw(),
                                        .b = z.raw(),
                                        .a_stride = columns,
                                        .b_stride = columns,
                                        .a_dtype = a,
                                        .b_dtype = b,
                                        .y = out.raw(),
                                        .y_stride = columns,
                                        .y_dtype = y,
                                        .rows = rows,
                                        .columns = columns,
                                        .alpha = 2,
                                        .beta = -3,
                                        .gate = gate.data<float>()});
            return out;
          };
          const tensor::Tensor want = made(Isa::reference);
          for (Isa isa : available_isas())
            EXPECT_LT(worst_difference(made(isa), want), tolerance(y, 4e-6))
                << name_of(isa) << " op " << op << " " << tensor::name_of(a) << " "
                << tensor::name_of(b) << " to " << tensor::name_of(y);
        }
}

TEST(Elementwise, ZeroRowsAreLegal) {
  for (Isa isa : available_isas()) cpu_table(isa).elementwise({.rows = 0, .columns = 4});
}

}  // namespace
}  // namespace tessera::kernels
