#include "nn/low_rank_weights.h"

#include <gtest/gtest.h>

#include "nn/linear.h"
#include "nn/merged_weights.h"
#include "nn/one_layer.h"
#include "ops/elementwise.h"

namespace tessera::nn {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;

LowRankWeights beside(std::shared_ptr<const WeightChanges> changes) {
  return {std::make_shared<OneLayer>(),
          std::make_shared<LowRanks>(std::move(changes), Device::cpu)};
}

}  // namespace

TEST(LowRankWeights, ProductsAreThoseOfTheMergedMatrix) {
  const LowRankWeights pairs = beside(pair_of_rank_two());
  const MergedWeights merged(std::make_shared<OneLayer>(), pair_of_rank_two(), true, Device::cpu);
  EXPECT_NE(pairs.matrix("x.weight", 16, 24, DType::f32)->low, nullptr);
  EXPECT_EQ(pairs.matrix("y.weight", 16, 24, DType::f32)->low, nullptr);
  const Tensor x = numbers({21, 24}, 0.1f);
  using ops::Activation;
  for (const Activation activation :
       {Activation::none, Activation::silu, Activation::gelu_tanh, Activation::gelu_erf,
        Activation::quick_gelu, Activation::relu}) {
    ops::MatmulOptions options{.activation = activation};
    options.residual = numbers({21, 16}, 0.2f);
    const std::vector<float> one = Linear(pairs, "x", 16, 24, DType::f32)(x, options).to_floats();
    const std::vector<float> other =
        Linear(merged, "x", 16, 24, DType::f32)(x, options).to_floats();
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(one[i], other[i], 1e-4) << static_cast<int>(activation);
  }
  const OneLayer base;
  const std::vector<float> plain = Linear(base, "x", 16, 24, DType::f32)(x).to_floats();
  EXPECT_NE(Linear(pairs, "x", 16, 24, DType::f32)(x).to_floats(), plain);
}

TEST(LowRankWeights, EitherOfAPairChanges) {
  const auto both = std::make_shared<WeightChanges>(*pair_of_rank_two());
  (*both)["z.weight"] = both->at("x.weight");
  const Tensor x = numbers({5, 24}, 0.1f);
  const ops::MatmulOptions gated{.activation = ops::Activation::swiglu};
  const auto product = [&](const Weights& of, const char* gate, const char* up) {
    return ops::matmul(x, of.paired(gate, up, 16, 24, DType::f32), gated).to_floats();
  };
  const LowRankWeights pairs = beside(both);
  const MergedWeights merged(std::make_shared<OneLayer>(), both, true, Device::cpu);
  const std::pair<const char*, const char*> named[] = {
      {"x.weight", "y.weight"}, {"y.weight", "x.weight"}, {"x.weight", "z.weight"}};
  for (const auto& [gate, up] : named) {
    const std::vector<float> one = product(pairs, gate, up), other = product(merged, gate, up);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], other[i], 1e-4) << gate << up;
  }
}

TEST(LowRankWeights, ACutTakesItsPartOfThePair) {
  const LowRankWeights pairs = beside(pair_of_rank_two());
  const auto outputs = pairs.matrix("x.weight", 16, 24, DType::f32, {0, {{4, 8}}})->low;
  EXPECT_EQ(outputs->up.n, 4);
  EXPECT_EQ(outputs->down.k, 24);
  const auto inputs = pairs.matrix("x.weight", 16, 24, DType::f32, {1, {{0, 8}}})->low;
  EXPECT_EQ(inputs->up.n, 16);
  EXPECT_EQ(inputs->down.k, 8);
}

TEST(LowRankWeights, BesideASmoothedMatrixThePairIsTheSame) {
  const LowRankWeights plain = beside(pair_of_rank_two()),
                       smoothed(std::make_shared<SmoothedLayer>(),
                                std::make_shared<LowRanks>(pair_of_rank_two(), Device::cpu));
  const Tensor x = numbers({21, 24}, 0.1f);
  const std::vector<float> one = Linear(plain, "x", 16, 24, DType::f32)(x).to_floats(),
                           other = Linear(smoothed, "x", 16, 24, DType::f32)(x).to_floats();
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], other[i], 1e-4);
  // A part of the inputs takes its part of their scale.
  const nn::Cut part{1, {{8, 16}}};
  const auto low = [&](const Weights& of) {
    const auto weight = of.matrix("x.weight", 16, 24, DType::f32, part);
    const auto down = std::make_shared<const ops::PackedWeight>(weight->low->down);
    Tensor inputs = numbers({3, 8}, 0.1f);
    if (of.smoothed("x.weight"))
      inputs =
          ops::multiply_row(inputs, of.vector(input_scale_of("x.weight"), 24, {0, part.ranges}));
    return ops::matmul(inputs, down).to_floats();
  };
  const std::vector<float> cut = low(plain), smoothed_cut = low(smoothed);
  for (size_t i = 0; i < cut.size(); ++i) EXPECT_NEAR(cut[i], smoothed_cut[i], 1e-5);
}

TEST(LowRankWeights, PairsArePackedOnce) {
  const LowRankWeights pairs = beside(pair_of_rank_two());
  const auto low = [&] { return pairs.matrix("x.weight", 16, 24, DType::f32)->low; };
  EXPECT_EQ(low(), low());
}

}  // namespace tessera::nn
