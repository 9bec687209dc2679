#include "nn/linear.h"

#include <gtest/gtest.h>

#include "ops/elementwise.h"
#include "tessera/error.h"

namespace tessera::nn {
namespace {

// Weights count up from zero; the bias is 100.
class Counting : public Weights {
 public:
  bool has(const std::string&) const override { return true; }
  tensor::Tensor get(const std::string& name, const tensor::Shape& shape) const override {
    tensor::Tensor x = tensor::Tensor::empty(shape, tensor::DType::f32);
    for (int64_t i = 0; i < x.elements(); ++i)
      x.data<float>()[i] = name == "layer.bias" ? 100.0f : static_cast<float>(i);
    return x;
  }
  ops::Weight matrix(const std::string& name, int64_t n, int64_t k,
                     ops::DType dtype) const override {
    return ops::pack_weight(get(name, {n, k}), dtype);
  }
  ops::Weight paired(const std::string& gate, const std::string& up, int64_t n, int64_t k,
                     ops::DType dtype) const override {
    return ops::pack_paired_weight(get(gate, {n, k}), get(up, {n, k}), dtype);
  }
  ops::ConvWeight conv(const std::string&, const std::string&, const tensor::Shape&,
                       ops::DType) const override {
    return {};
  }
  tensor::Tensor vector(const std::string& name, int64_t n) const override {
    return get(name, {n});
  }
};

TEST(Linear, MultipliesByTheTransposeAndAddsItsBias) {
  const Linear layer(Counting(), "layer", 2, 3, ops::DType::f32);
  const std::vector<float> x{1, 2, 3};
  const auto y = layer(tensor::Tensor::from(std::span<const float>(x), {1, 3})).to_floats();
  EXPECT_EQ(y, (std::vector<float>{0 + 2 + 6 + 100, 3 + 8 + 15 + 100}));
}

TEST(Linear, WithoutBias) {
  const Linear layer(Counting(), "layer", 2, 3, ops::DType::f32, false);
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
  const Linear layer(Counting(), "layer", 2, 3, ops::DType::f32);
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
