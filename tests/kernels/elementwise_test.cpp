#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/table.h"

namespace tessera::kernels {
namespace {

double right(Elementwise op, double a, double b, double alpha, double beta, double gate) {
  switch (op) {
    case Elementwise::cast: return a;
    case Elementwise::add: return a + b;
    case Elementwise::blend: return a * alpha + b * beta;
    case Elementwise::silu: return a / (1 + std::exp(-a));
    case Elementwise::gelu_tanh:
      return 0.5 * a * (1 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a)));
    case Elementwise::gelu_erf: return 0.5 * a * (1 + std::erf(a / std::sqrt(2)));
    case Elementwise::swiglu: return a / (1 + std::exp(-a)) * b;
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

TEST(Elementwise, ZeroRowsAreLegal) {
  for (Isa isa : available_isas()) cpu_table(isa).elementwise({.rows = 0, .columns = 4});
}

}  // namespace
}  // namespace tessera::kernels
