#include "nn/linear.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tessera::nn
