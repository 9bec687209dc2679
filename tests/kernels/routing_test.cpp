#include "kernels/routing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/table.h"

namespace tessera::kernels {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

std::vector<float> normal(int64_t n, uint32_t seed, float scale) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> draw(0, scale);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = draw(generator);
  return values;
}

std::vector<int32_t> top(Isa isa, const std::vector<float>& rank, int k, const float* closed) {
  std::vector<int32_t> ids(static_cast<size_t>(k), 99);
  cpu_table(isa).top_k({rank.data(), closed, static_cast<int64_t>(rank.size()), k, ids.data()});
  return ids;
}

TEST(RouterScores, EqualTheReferenceOnEveryInstructionSet) {
  for (Isa isa : available_isas())
    for (bool sigmoid : {false, true})
      for (int64_t n : {1, 7, 8, 16, 17, 64, 100, 256})
        for (float scale : {0.1f, 3.0f, 300.0f}) {
          const auto x = normal(n, uint32_t(n), scale);
          std::vector<double> want(x.size()), got(x.size());
          std::vector<float> a(x.size()), b(x.size());
          reference::router_scores({x.data(), n, sigmoid, want.data(), a.data()});
          cpu_table(isa).router_scores({x.data(), n, sigmoid, got.data(), b.data()});
          for (size_t e = 0; e < x.size(); ++e) {
            EXPECT_NEAR(got[e], want[e], 4e-15 * want[e] + 1e-300) << x[e];
            EXPECT_EQ(b[e], static_cast<float>(got[e]));
          }
        }
}

TEST(RouterScores, EqualLogitsHaveEqualScoresWhereverTheyStand) {
  for (Isa isa : available_isas()) {
    std::vector<float> x = normal(40, 3, 2);
    x[39] = x[17] = x[3];
    std::vector<double> exact(40);
    std::vector<float> score(40);
    cpu_table(isa).router_scores({x.data(), 40, false, exact.data(), score.data()});
    EXPECT_EQ(exact[39], exact[3]);
    EXPECT_EQ(exact[17], exact[3]);
  }
}

TEST(TopK, EqualsTheReferenceOnEveryInstructionSet) {
  for (Isa isa : available_isas())
    for (int64_t n : {1, 5, 16, 33, 64, 70, 128, 200, 256, 300}) {
      auto rank = normal(n, uint32_t(7 * n), 1);
      for (float& r : rank) r = std::round(4 * r) / 4;  // many ties
      std::vector<float> closed(rank.size());
      for (size_t i = 0; i < closed.size(); i += 3) closed[i] = kNone;
      for (int k : {1, 4, 9}) {
        std::vector<int32_t> want(static_cast<size_t>(k));
        for (const float* shut : std::initializer_list<const float*>{nullptr, closed.data()}) {
          reference::top_k({rank.data(), shut, n, k, want.data()});
          EXPECT_EQ(top(isa, rank, k, shut), want) << name_of(isa) << " " << n;
        }
      }
    }
}

// Values of any spread: a lane of the search may hold all of the largest, or none.
TEST(TopK, EqualsTheReferenceWhereverTheLargestStand) {
  std::mt19937 rng(3);
  for (Isa isa : available_isas())
    for (int round = 0; round < 200; ++round) {
      const int64_t n = std::uniform_int_distribution<int64_t>(1, 256)(rng);
      std::vector<float> rank(static_cast<size_t>(n)), closed(rank.size());
      const int kinds = std::uniform_int_distribution<int>(1, 40)(rng);
      for (float& r : rank) r = float(std::uniform_int_distribution<int>(0, kinds)(rng));
      for (size_t i = size_t(round % 16); i < rank.size(); i += 16) rank[i] += 50;
      for (float& c : closed)
        if (std::uniform_int_distribution<int>(0, 3)(rng) > 0) c = kNone;
      const int k = std::uniform_int_distribution<int>(1, 20)(rng);
      std::vector<int32_t> want(static_cast<size_t>(k));
      for (const float* shut : std::initializer_list<const float*>{nullptr, closed.data()}) {
        reference::top_k({rank.data(), shut, n, k, want.data()});
        ASSERT_EQ(top(isa, rank, k, shut), want) << name_of(isa) << " " << n << " " << k;
      }
    }
}

TEST(TopK, TiesGoToTheLowestIndexAndNothingIsTakenTwice) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (Isa isa : available_isas()) {
    EXPECT_EQ(top(isa, {1, 3, 3, kNone, nan, -0.0f, 0.0f}, 7, nullptr),
              (std::vector<int32_t>{1, 2, 0, 5, 6, -1, -1}));
    const std::vector<float> shut{0, kNone, 0};
    EXPECT_EQ(top(isa, {1, 3, 2}, 3, shut.data()), (std::vector<int32_t>{2, 0, -1}));
  }
}

}  // namespace
}  // namespace tessera::kernels
