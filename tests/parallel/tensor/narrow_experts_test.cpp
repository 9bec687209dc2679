#include "parallel/tensor/narrow_experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "comm/threads/launch.h"
#include "nn/moe/selected_experts.h"
#include "nn/random_bank.h"
#include "parallel/tensor/ordered_reduce.h"

namespace tessera::parallel {
namespace {

using namespace std::chrono_literals;
using namespace nn::random_bank;

TEST(NarrowExperts, SumToTheExpertsOfOneRankWithinRounding) {
  const nn::TokenView view{-1, {0}, {}, {{0, {0, 9}}}, {9}};
  const Tensor x = normal({9, 32}, 4);
  const nn::SelectionRule rule = nn::parse_selection("des-vote:0.6");
  nn::SelectedExperts whole(rule);
  whole.policy->restrict_to({{0, nn::kAllTokens}});
  const auto expected =
      whole.layers.apply(0, view, x, router(5, 2, 8), slice_of_bank(5, {0, 20})).to_floats();
  std::map<int, std::vector<float>> by_ranks;
  for (const auto& cut : {std::pair{2, 100}, {3, 100}, {2, 4}, {3, 2}}) {
    const int ranks = cut.first, rows_a_chunk = cut.second;
    std::vector<std::vector<float>> all{size_t(ranks)};
    comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
      OrderedReduce reduce(world, rows_a_chunk);
      nn::SelectedExperts experts(rule, std::make_unique<NarrowExperts>(reduce));
      experts.policy->restrict_to({{0, nn::kAllTokens}});
      all[size_t(world.rank())] =
          experts.layers
              .apply(0, view, x, router(5, 2, 8),
                     slice_of_bank(5, nn::split({0, 20}, ranks, world.rank())))
              .to_floats();
    });
    double error = 0, length = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      error += std::pow(double(all[0][i]) - double(expected[i]), 2);
      length += std::pow(double(expected[i]), 2);
    }
    EXPECT_LT(std::sqrt(error / length), 1e-6);
    for (const auto& one : all) EXPECT_EQ(one, all[0]);
    const auto& [same, first] = by_ranks.try_emplace(ranks, all[0]);
    EXPECT_TRUE(first || same->second == all[0]) << "the number of chunks changes a bit";
  }
}

}  // namespace
}  // namespace tessera::parallel
