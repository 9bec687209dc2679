#include "kernels/cuda/emulation.h"
// The emulation comes first: it is what the source below is compiled with.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/cuda/matmul.cu"
#include "kernels/random_values.h"

namespace tessera::kernels {
namespace emulated {

// What the header promises of the library, in plain loops.
void library_product(const LibraryProduct& p) {
  const bool with_bias =
      p.epilogue == LibraryEpilogue::bias || p.epilogue == LibraryEpilogue::gelu_tanh_bias;
  const bool gelu =
      p.epilogue == LibraryEpilogue::gelu_tanh || p.epilogue == LibraryEpilogue::gelu_tanh_bias;
  for (int64_t t = 0; t < p.rows; ++t)
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < p.k; ++i) {
        float x[1], w[1];
        load<1>(p.x, p.dtype, t * p.x_stride + i, x);
        load<1>(p.w, p.dtype, j * p.k + i, w);
        sum += double{x[0]} * w[0];
      }
      float y[1] = {0}, v[1] = {static_cast<float>(sum)};
      if (p.beta != 0) load<1>(p.y, p.y_dtype, t * p.y_stride + j, y);
      v[0] += p.beta * y[0] + (with_bias ? p.bias[j] : 0);
      if (gelu) v[0] = gelu_tanh(v[0]);
      store<1>(p.y, p.y_dtype, t * p.y_stride + j, v);
    }
}

}  // namespace emulated
namespace {

using tensor::DType;
using tensor::Tensor;

struct Problem {
  int64_t rows, n, k;
  DType x, w, y;
  Activation activation;
  bool bias, gate, residual, in_place;
};

Tensor run(void (*kernel)(const MatmulArgs&), const Problem& p) {
  const bool paired = p.activation == Activation::swiglu;
  const float scale = 1 / std::sqrt(static_cast<float>(p.k));
  const PackedWeight w = pack_weight(
      random_tensor({p.n, p.k}, DType::f32, 1, scale),
      paired ? random_tensor({p.n, p.k}, DType::f32, 2, scale) : Tensor{}, p.w, Isa::reference);
  const Tensor x = random_tensor({p.rows, p.k + 3}, p.x, 3);
  const Tensor bias = random_tensor({p.n}, DType::f32, 4);
  const Tensor gate = random_tensor({2, p.n}, DType::f32, 5);
  const Tensor y = random_tensor({p.rows, p.n}, p.y, 6);
  const Tensor residual = p.in_place ? y : random_tensor({p.rows, p.n}, p.x, 7);
  std::vector<int32_t> row_of;
  for (int64_t t = 0; t < p.rows; ++t) row_of.push_back(static_cast<int32_t>(t % 2));
  Epilogue e{.activation = p.activation};
  if (p.bias && !paired) e.bias = bias.data<float>();
  if (p.gate) {
    e.gate = gate.data<float>();
    e.gate_stride = p.n;
    e.row_of = row_of.data();
  }
  if (p.residual) {
    e.residual = residual.raw();
    e.residual_dtype = residual.dtype();
    e.residual_stride = p.n;
  }
  kernel({.x = x.raw(),
          .x_dtype = p.x,
          .x_stride = p.k + 3,
          .rows = p.rows,
          .weight = &w,
          .epilogue = e,
          .y = y.raw(),
          .y_dtype = p.y,
          .y_stride = p.n});
  return y;
}

TEST(CudaMatmul, EveryEpilogueEqualsTheReference) {
  for (int activation = 0; activation <= int(Activation::swiglu); ++activation)
    for (int parts = 0; parts < 16; ++parts)
      for (int types = 0; types < 8; ++types)
        for (auto [rows, n, k] : {std::array<int, 3>{3, 16, 24}, {5, 19, 33}, {0, 8, 8}}) {
          const auto kind = [&](int bit) { return types >> bit & 1 ? DType::bf16 : DType::f32; };
          const Problem p{rows,
                          n,
                          k,
                          kind(0),
                          kind(1),
                          kind(2),
                          Activation(activation),
                          (parts & 1) != 0,
                          (parts & 2) != 0,
                          (parts & 4) != 0,
                          (parts & 8) != 0};
          ASSERT_LT(worst_difference(run(emulated::matmul, p), run(reference::matmul, p)),
                    tolerance(p.y, 1e-5))
              << activation << " " << parts << " " << types << " " << n;
        }
}

TEST(CudaMatmulPlan, TheLibraryFinishesWhatItCan) {
  const PackedWeight w{.n = 8, .k = 8, .dtype = DType::bf16, .data = {}};
  const float bias[8] = {};
  MatmulArgs args{.x_dtype = DType::bf16, .weight = &w, .y_dtype = DType::bf16};
  EXPECT_TRUE(emulated::matmul_plan(args).complete);
  args.epilogue.bias = bias;
  EXPECT_FALSE(emulated::matmul_plan(args).complete);
  args.y_dtype = DType::f32;
  EXPECT_EQ(emulated::matmul_plan(args).inside, emulated::LibraryEpilogue::bias);
  args.epilogue.activation = Activation::gelu_tanh;
  EXPECT_EQ(emulated::matmul_plan(args).inside, emulated::LibraryEpilogue::gelu_tanh_bias);
  args.epilogue.activation = Activation::gelu_erf;
  EXPECT_FALSE(emulated::matmul_plan(args).complete);
  args.epilogue.activation = Activation::none;
  args.epilogue.gate = bias;
  EXPECT_FALSE(emulated::matmul_plan(args).complete);
  args.x_dtype = DType::f32;
  EXPECT_TRUE(emulated::matmul_plan(args).converts);
}

}  // namespace
}  // namespace tessera::kernels
