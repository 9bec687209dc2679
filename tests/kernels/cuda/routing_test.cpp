#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/random_values.h"
#include "kernels/routing.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/routing.cu"
#endif

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

struct Routed {
  Tensor ids, weights, scores;
};

Routed run(const Where& at, void (*kernel)(const RouteArgs&), RouteArgs args, const Tensor& logits,
           const Tensor& bias = {}) {
  args.tokens = logits.size(0);
  args.experts = logits.size(1);
  const Routed r{Tensor::zeros({args.tokens, args.top_k}, DType::i32, at.device),
                 Tensor::zeros({args.tokens, args.top_k}, DType::f32, at.device),
                 Tensor::zeros(logits.shape(), DType::f32, at.device)};
  const Tensor given = at(logits), added = at(bias);
  args.logits = given.data<float>();
  if (bias.defined()) args.bias = added.data<float>();
  args.ids = r.ids.data<int32_t>();
  args.weights = r.weights.data<float>();
  args.scores = r.scores.data<float>();
  kernel(args);
  return {here(r.ids), here(r.weights), here(r.scores)};
}

// Quarters, for many ties.
Tensor coarse(int64_t tokens, int64_t experts) {
  Tensor logits = random_tensor({tokens, experts}, DType::f32, 3);
  for (int64_t i = 0; i < logits.elements(); ++i)
    logits.data<float>()[i] = std::round(4 * logits.data<float>()[i]) / 4;
  return logits;
}

void expect_equal(const Routed& got, const Routed& want) {
  EXPECT_EQ(got.ids.to_ints(), want.ids.to_ints());
  EXPECT_LT(worst_difference(got.weights, want.weights), 1e-6);
  EXPECT_LT(worst_difference(got.scores, want.scores), 1e-6);
}

TEST(CudaRoute, EqualsTheReference) {
  for (int experts : {1, 5, 8, 33, 64, 256})
    for (int k : {1, 2, 8})
      for (bool sigmoid : {false, true})
        for (bool renormalise : {false, true}) {
          if (k > experts) continue;
          const RouteArgs args{.sigmoid = sigmoid,
                               .top_k = k,
                               .renormalise = renormalise,
                               .scale = renormalise ? 2.5f : 1};
          const Tensor bias = random_tensor({experts}, DType::f32, 8, 0.5f);
          const Tensor added = sigmoid ? bias : Tensor{};
          for (int64_t tokens : problems<int64_t>({7}, {1000})) {
            const Tensor logits = coarse(tokens, experts);
            expect_equal(run(kThere, cuda::route, args, logits, added),
                         run(kHost, reference::route, args, logits, added));
          }
        }
}

TEST(CudaRoute, GroupsAreKeptByTheirTwoBest) {
  for (auto [experts, groups, kept] :
       {std::array<int, 3>{64, 8, 3}, {6, 3, 1}, {40, 40, 7}, {256, 8, 4}}) {
    const RouteArgs args{.sigmoid = true, .groups = groups, .top_groups = kept, .top_k = 4};
    const Tensor logits = coarse(9, experts);
    expect_equal(run(kThere, cuda::route, args, logits),
                 run(kHost, reference::route, args, logits));
  }
}

TEST(CudaRoute, TiesGoToTheLowestIndexAndClosedExpertsAreNeverTaken) {
  Tensor logits = Tensor::zeros({2, 40}, DType::f32);
  for (int e = 3; e < 40; ++e) logits.data<float>()[40 + e] = -INFINITY;
  const Routed r = run(kThere, cuda::route, {.top_k = 5}, logits);
  EXPECT_EQ(r.ids.to_ints(), (std::vector<int64_t>{0, 1, 2, 3, 4, 0, 1, 2, -1, -1}));
  EXPECT_EQ(r.weights.to_floats()[9], 0);
}

TEST(CudaRoute, ATokenDoesNotDependOnOthers) {
  const Tensor logits = coarse(40, 64);
  const Routed all = run(kThere, cuda::route, {.top_k = 6}, logits);
  const Routed some = run(kThere, cuda::route, {.top_k = 6}, logits.slice(0, 17, 40));
  EXPECT_TRUE(same_bits(some.ids, all.ids.slice(0, 17, 40)));
  EXPECT_TRUE(same_bits(some.weights, all.weights.slice(0, 17, 40)));
}

TEST(CudaRoute, ZeroTokensAreLegalAndTheOrderOfThreadsDoesNotMatter) {
  run(kThere, cuda::route, {.top_k = 2}, Tensor::zeros({0, 8}, DType::f32));
  const Tensor logits = coarse(6, 100);
  const auto once = [&] { return run(kThere, cuda::route, {.top_k = 6}, logits); };
  const Routed one = once(), other = again(once);
  EXPECT_TRUE(same_bits(other.ids, one.ids) && same_bits(other.weights, one.weights));
}

}  // namespace
}  // namespace tessera::kernels
