#include "parallel/tensor/narrow_experts.h"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/threads/launch.h"
#include "nn/moe/selected_experts.h"
#include "nn/random_bank.h"

namespace tessera::parallel {
namespace {

using namespace std::chrono_literals;
using namespace nn::random_bank;

// Columns [begin, end) of the inner width of five experts and the shared one.
nn::ExpertWeights slice_of_bank(nn::Range inner) {
  auto routed = std::make_shared<std::vector<ops::Expert>>();
  const auto one = [&](uint32_t s) {
    return ops::Expert{
        ops::pack_paired_weight(normal({20, 32}, s, 0.2f).slice(0, inner.begin, inner.end),
                                normal({20, 32}, s + 1, 0.2f).slice(0, inner.begin, inner.end),
                                DType::f32),
        ops::pack_weight(normal({32, 20}, s + 2, 0.2f).slice(1, inner.begin, inner.end),
                         DType::f32)};
  };
  for (uint32_t e = 0; e < 5; ++e) routed->push_back(one(10 * e));
  return {std::move(routed), one(7777)};
}

TEST(NarrowExperts, SumToTheExpertsOfOneRankWithinRounding) {
  const nn::TokenView view{-1, {0}, {}, {{0, {0, 9}}}, {9}};
  const Tensor x = normal({9, 32}, 4);
  const nn::SelectionRule rule = nn::parse_selection("des-vote:0.6");
  nn::SelectedExperts whole(rule);
  whole.policy->restrict_to({0});
  const auto expected =
      whole.layers.apply(0, view, x, router(5, 2, 8), slice_of_bank({0, 20})).to_floats();
  for (int ranks : {2, 3}) {
    std::vector<std::vector<float>> all{size_t(ranks)};
    comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
      OrderedReduce reduce(world);
      nn::SelectedExperts experts(rule, std::make_unique<NarrowExperts>(reduce));
      experts.policy->restrict_to({0});
      all[size_t(world.rank())] = experts.layers
                                      .apply(0, view, x, router(5, 2, 8),
                                             slice_of_bank(nn::split({0, 20}, ranks, world.rank())))
                                      .to_floats();
    });
    double error = 0, length = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      error += std::pow(double(all[0][i]) - double(expected[i]), 2);
      length += std::pow(double(expected[i]), 2);
    }
    EXPECT_LT(std::sqrt(error / length), 1e-6);
    for (const auto& one : all) EXPECT_EQ(one, all[0]);
  }
}

TEST(OrderedReduce, AddsInTheOrderOfRanks) {
  // (1 + 2^-24) + 2^-24 and 1 + (2^-24 + 2^-24) differ in f32.
  comm::threads::run(3, 20s, [](comm::Communicator& world) {
    OrderedReduce reduce(world);
    const std::vector<float> mine{world.rank() == 0 ? 1.0f : 0x1p-24f};
    Tensor x = Tensor::from(std::span<const float>(mine), {1});
    reduce.sum(x);
    EXPECT_EQ(x.to_floats()[0], 1.0f);
  });
}

}  // namespace
}  // namespace tessera::parallel
