#include "kernels/biased_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/random_values.h"
#include "kernels/table.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

TEST(BiasedAttention, IsASoftmaxOfProductsAndBiasesByDistance) {
  const int64_t tokens = 7, heads = 2, dim = 6, visible = 5;
  for (Isa isa : available_isas())
    for (DType dtype : {DType::f32, DType::bf16}) {
      const Tensor all = random_tensor({tokens, 3 * heads * dim}, dtype, 1, 0.5f);
      const Tensor bias = random_tensor({heads, 2 * tokens - 1}, DType::f32, 2);
      const Tensor out = Tensor::empty({tokens, heads * dim}, dtype);
      const int64_t wide = heads * dim, stride = 3 * wide;
      cpu_table(isa).biased_attention({.q = all.raw(),
                                       .k = all.slice(1, wide, 2 * wide).raw(),
                                       .v = all.slice(1, 2 * wide, 3 * wide).raw(),
                                       .q_stride = stride,
                                       .k_stride = stride,
                                       .v_stride = stride,
                                       .dtype = dtype,
                                       .tokens = tokens,
                                       .heads = heads,
                                       .head_dim = dim,
                                       .visible = visible,
                                       .bias = bias.data<float>(),
                                       .bias_stride = bias.stride(0),
                                       .out = out.raw(),
                                       .out_stride = out.stride(0)});
      const auto x = all.to_floats(), got = out.to_floats();
      const auto at = [&](int64_t t, int64_t which, int64_t h, int64_t c) {
        return double(x[size_t(t * stride + which * wide + h * dim + c)]);
      };
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t t = 0; t < tokens; ++t) {
          std::vector<double> e;
          double sum = 0;
          for (int64_t j = 0; j < visible; ++j) {
            double score = bias.row<float>(h)[j - t + tokens - 1];
            for (int64_t c = 0; c < dim; ++c) score += at(t, 0, h, c) * at(j, 1, h, c);
            sum += e.emplace_back(std::exp(score));
          }
          for (int64_t c = 0; c < dim; ++c) {
            double want = 0;
            for (int64_t j = 0; j < visible; ++j) want += e[size_t(j)] / sum * at(j, 2, h, c);
            EXPECT_NEAR(got[size_t(t * wide + h * dim + c)], want,
                        dtype == DType::f32 ? 1e-5 : 2e-2);
          }
        }
    }
}

}  // namespace
}  // namespace tessera::kernels
