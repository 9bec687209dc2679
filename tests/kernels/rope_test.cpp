#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/table.h"
#include "tensor/tensor.h"

namespace tessera::kernels {
namespace {

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

}  // namespace
}  // namespace tessera::kernels
