#include "nn/linear.h"

#include <gtest/gtest.h>

#include "nn/counting_weights.h"
#include "nn/one_layer.h"
#include "nn/sharded_weights.h"
#include "ops/elementwise.h"
#include "tessera/error.h"

namespace tessera::nn {
namespace {

using tensor::Tensor;

TEST(Linear, MultipliesByTheTransposeAndAddsItsBias) {
  const Linear layer(CountingWeights(), "layer", 2, 3, ops::DType::f32);
  const std::vector<float> x{1, 2, 3};
  const auto y = layer(tensor::Tensor::from(std::span<const float>(x), {1, 3})).to_floats();
  EXPECT_EQ(y, (std::vector<float>{0 + 2 + 6 + 100, 3 + 8 + 15 + 100}));
}

TEST(Linear, WithoutBias) {
  const Linear layer(CountingWeights(), "layer", 2, 3, ops::DType::f32, {.bias = false});
  EXPECT_FALSE(layer.bias().defined());
}

/// Matrices provided at use; counts the uses.
class ComingWeights : public CountingWeights {
 public:
  explicit ComingWeights(int& times) : times_(times) {}
  FetchedWeight fetch(const WeightRequest& request) const override {
    if (!request.packs()) return CountingWeights::fetch(request);
    auto form = std::make_shared<ops::PackedWeight>();
    form->n = request.shape[0], form->k = request.shape[1];
    return {.packed = form, .at_use = [request, &times = times_] {
              return ++times, CountingWeights().fetch(request);
            }};
  }

 private:
  int& times_;
};

TEST(Linear, AsksForAWeightThatIsNotHereEachTimeItIsUsed) {
  int times = 0;
  const ComingWeights weights(times);
  const Linear layer(ShardedWeights(weights, {}), "layer", 2, 3, ops::DType::f32),
      here(CountingWeights(), "layer", 2, 3, ops::DType::f32);
  EXPECT_EQ(times, 0);
  EXPECT_EQ(layer.weight()->n, 2);
  for (const int uses : {1, 2}) {
    const std::vector<float> x{1, 2, 3};
    const Tensor line = Tensor::from(std::span<const float>(x), {1, 3});
    EXPECT_EQ(layer(line).to_floats(), here(line).to_floats());
    EXPECT_EQ(times, uses);
  }
}

TEST(Linear, InputsOfASmoothedWeightAreScaled) {
  const Tensor x = numbers({5, 24}, 0.1f);
  const auto layer = [&](const Weights& weights) {
    return Linear(weights, "x", 16, 24, ops::DType::f32)(x).to_floats();
  };
  const auto plain = layer(OneLayer()), smoothed = layer(SmoothedLayer());
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(smoothed[i], plain[i], 1e-5);
  const Linear not_smoothed(SmoothedLayer(), "y", 16, 24, ops::DType::f32);
  EXPECT_EQ(not_smoothed(x).to_floats(), plain);
}

// Sums earlier inputs; the last product gets the sum.
class Remembering : public Reduce {
 public:
  Tensor sum(int64_t rows, const Part& part, const Finish& finish) override {
    ++calls;
    const Tensor mine = part({0, rows});
    sum_ = sum_.defined() ? ops::add(mine, sum_) : mine;
    return finish(sum_, {0, rows});
  }
  int calls = 0;

 private:
  Tensor sum_;
};

Tensor line(const std::vector<float>& values) {
  return Tensor::from(std::span<const float>(values), {1, std::ssize(values)});
}

TEST(Linear, ShardsByOutputsHaveColumnsAndTheirBiases) {
  const CountingWeights all;
  const auto x = line({1, 2, 3});
  const LinearForm form{.split = Split::outputs({{2}, {4, 2}})};
  const auto whole = Linear(all, "layer", 6, 3, ops::DType::f32, form)(x).to_floats();
  for (int r = 0; r < 2; ++r) {
    const Linear layer(ShardedWeights(all, {r, 2}), "layer", 6, 3, ops::DType::f32, form);
    const size_t at = static_cast<size_t>(r);
    EXPECT_EQ(layer(x).to_floats(),
              (std::vector<float>{whole[at], whole[2 + 2 * at], whole[3 + 2 * at]}));
    EXPECT_EQ(layer.bias().size(0), 3);
  }
}

TEST(Linear, ShardsByInputsAreSummedBeforeBiasGateAndResidual) {
  const CountingWeights all;
  const LinearForm form{.split = Split::inputs({{4, 2}})};
  const auto layer = [&](int r) {
    return Linear(ShardedWeights(all, {r, 2}), "layer", 2, 4, ops::DType::f32, form);
  };
  const auto residual = line({0.5f, 7}), gate = line({2, 3});
  Remembering sums;
  layer(0)(line({1, 2}), {}, &sums);  // 1 x 0 + 2 x 1 and 1 x 4 + 2 x 5
  EXPECT_EQ(layer(1)(line({3, 4}), {.gate = gate, .residual = residual}, &sums).to_floats(),
            (std::vector<float>{2 * (20 + 100) + 0.5f, 3 * (60 + 100) + 7}));
  EXPECT_EQ(sums.calls, 2);
  EXPECT_THROW(layer(0)(line({1, 2})), Error) << "the rest of the sum";
  EXPECT_THROW(layer(0)(line({1, 2}), {.activation = ops::Activation::silu}, &sums), Error);
  EXPECT_THROW(layer(0)(line({1, 2}), {.gate = gate}, &sums), Error);
}

TEST(Linear, WithoutShardsNothingIsSummed) {
  const CountingWeights all;
  const LinearForm form{.split = Split::inputs({{3}})};
  const Linear layer(all, "layer", 2, 3, ops::DType::f32, form);
  Remembering sums;
  EXPECT_EQ(layer(line({1, 2, 3}), {}, &sums).to_floats(), (std::vector<float>{108, 126}));
  EXPECT_EQ(sums.calls, 0);
}

}  // namespace
}  // namespace tessera::nn
