#include "nn/linear.h"

#include <gtest/gtest.h>

#include "nn/counting_weights.h"
#include "ops/elementwise.h"
#include "tessera/error.h"

namespace tessera::nn {
namespace {

TEST(Linear, MultipliesByTheTransposeAndAddsItsBias) {
  const Linear layer(CountingWeights(), "layer", 2, 3, ops::DType::f32);
  const std::vector<float> x{1, 2, 3};
  const auto y = layer(tensor::Tensor::from(std::span<const float>(x), {1, 3})).to_floats();
  EXPECT_EQ(y, (std::vector<float>{0 + 2 + 6 + 100, 3 + 8 + 15 + 100}));
}

TEST(Linear, WithoutBias) {
  const Linear layer(CountingWeights(), "layer", 2, 3, ops::DType::f32, false);
  EXPECT_FALSE(layer.bias().defined());
}

// Sums what was given before; the last product gets the sum.
class Remembering : public Reduce {
 public:
  void sum(tensor::Tensor& x) override {
    ++calls;
    if (sum_.defined()) x = ops::add(x, sum_);
    sum_ = x;
  }
  int calls = 0;

 private:
  tensor::Tensor sum_;
};

TEST(Linear, PartsOfASplitProductAreSummedBeforeBiasAndResidual) {
  const Linear layer(CountingWeights(), "layer", 2, 3, ops::DType::f32);
  const std::vector<float> values{1, 2, 3}, more{0.5f, 7};
  const auto x = tensor::Tensor::from(std::span<const float>(values), {1, 3});
  const auto residual = tensor::Tensor::from(std::span<const float>(more), {1, 2});
  Remembering twice;
  layer(x, {}, &twice);
  EXPECT_EQ(layer(x, {.residual = residual}, &twice).to_floats(),
            (std::vector<float>{2 * 8 + 100.5f, 2 * 26 + 107}));
  EXPECT_EQ(twice.calls, 2);
  EXPECT_THROW(reduced_matmul(x, layer.weight(), {.activation = ops::Activation::silu}, &twice),
               Error);
}

}  // namespace
}  // namespace tessera::nn
