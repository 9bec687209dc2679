#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/elementwise.h"
#include "kernels/random_values.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/elementwise.cu"
#endif

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

struct Problem {
  int64_t rows, columns, stride;
  DType a, b, y;
  bool by_row;
};

// Rows of a wider tensor, filled with sevens: values after a row must stay.
Tensor run(const Where& at, void (*kernel)(const ElementwiseArgs&), Elementwise op,
           const Problem& p) {
  const Tensor a = at(random_tensor({p.rows, p.stride}, p.a, 1, 2));
  const Tensor b = at(random_tensor({p.rows, p.stride}, p.b, 2, 2));
  const Tensor gate = at(random_tensor({2, p.stride}, DType::f32, 3));
  std::vector<int32_t> row_of;
  for (int64_t t = 0; t < p.rows; ++t) row_of.push_back(static_cast<int32_t>(t * 5 % 2));
  const Tensor rows = at(row_of), y = at(random_tensor({p.rows, p.stride}, p.y, 4));
  kernel({.op = op,
          .a = a.raw(),
          .b = op == Elementwise::cast ? nullptr : b.raw(),
          .a_stride = p.stride,
          .b_stride = p.stride,
          .a_dtype = p.a,
          .b_dtype = p.b,
          .y = y.raw(),
          .y_stride = p.stride,
          .y_dtype = p.y,
          .rows = p.rows,
          .columns = p.columns,
          .alpha = 2,
          .beta = -3,
          .gate = gate.data<float>(),
          .gate_stride = p.by_row ? p.stride : 0,
          .row_of = p.by_row ? static_cast<const int32_t*>(rows.raw()) : nullptr});
  return here(y);
}

TEST(CudaElementwise, EveryOpEqualsTheReference) {
  const DType kinds[] = {DType::f32, DType::bf16, DType::f16};
  for (int op = 0; op <= int(Elementwise::add_gated); ++op)
    for (int types = 0; types < 27; ++types)
      for (auto [rows, columns, stride] :
           {std::array<int, 3>{3, 16, 24}, {5, 37, 41}, {2, 24, 27}, {0, 8, 8}}) {
        const Problem p{rows,
                        columns,
                        stride,
                        kinds[types % 3],
                        kinds[types / 3 % 3],
                        kinds[types / 9],
                        types % 2 == 0};
        const Tensor want = run(kHost, reference::elementwise, Elementwise(op), p);
        const Tensor got = run(kThere, cuda::elementwise, Elementwise(op), p);
        ASSERT_LT(worst_difference(got, want), tolerance(p.y, 2e-6)) << op << " " << types;
      }
}

TEST(CudaElementwise, MoreRowsThanTheGridHoldsThreads) {
  const Problem p{90, 129, 130, DType::bf16, DType::f32, DType::f32, true};
  for (Elementwise op : {Elementwise::add, Elementwise::add_gated})
    EXPECT_LT(worst_difference(run(kThere, cuda::elementwise, op, p),
                               run(kHost, reference::elementwise, op, p)),
              2e-6);
}

}  // namespace
}  // namespace tessera::kernels
