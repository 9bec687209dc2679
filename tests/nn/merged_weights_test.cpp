#include "nn/merged_weights.h"

#include <gtest/gtest.h>

#include "nn/linear.h"
#include "nn/one_layer.h"
#include "tessera/error.h"

namespace tessera::nn {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;

class Quantised final : public PackingWeights {
 public:
  bool has(const std::string&) const override { return true; }
  Tensor stored(const std::string&, const tensor::Shape& shape) const override {
    return Tensor::zeros(shape, DType::i8);
  }
};

}  // namespace

TEST(MergedWeights, LeavesPairsToProductsUnlessAllAreMerged) {
  const auto base = std::make_shared<OneLayer>();
  const MergedWeights some(base, pair_of_rank_two(), false, Device::cpu);
  const MergedWeights all(base, pair_of_rank_two(), true, Device::cpu);
  const Tensor x = numbers({5, 24}, 0.1f);
  const auto product = [&](const Weights& of) {
    return Linear(of, "x", 16, 24, DType::f32, {.bias = false})(x).to_floats();
  };
  EXPECT_EQ(product(some), product(*base));
  EXPECT_NE(product(all), product(*base));
  // Both kinds of adapters merge into layers with stored weights.
  EXPECT_EQ(some.get("x.weight", {16, 24}).to_floats(), all.get("x.weight", {16, 24}).to_floats());
  EXPECT_EQ(some.get("y.weight", {16, 24}).to_floats(), base->get("", {16, 24}).to_floats());
}

TEST(MergedWeights, MergesDenseChangesIntoEitherOfAPair) {
  WeightChange change;
  change.dense = [] { return numbers({16, 24}, 0.02f); };
  const auto changes = std::make_shared<WeightChanges>(WeightChanges{{"up.weight", {change}}});
  const MergedWeights merged(std::make_shared<OneLayer>(), changes, false, Device::cpu);
  const Tensor x = numbers({3, 24}, 0.1f);
  const ops::MatmulOptions gated{.activation = ops::Activation::swiglu};
  const ops::Weight pair = merged.paired("gate.weight", "up.weight", 16, 24, DType::f32);
  const Tensor gate = numbers({16, 24}, 0.05f);
  const ops::Weight expected = ops::pack_paired_weight(gate, changed(gate, {change}), DType::f32);
  EXPECT_EQ(ops::matmul(x, pair, gated).to_floats(), ops::matmul(x, expected, gated).to_floats());
}

TEST(MergedWeights, RefusesWholeNumbers) {
  const MergedWeights merged(std::make_shared<Quantised>(), pair_of_rank_two(), true, Device::cpu);
  EXPECT_THROW(merged.matrix("x.weight", 16, 24, DType::f32), Error);
}

}  // namespace tessera::nn
