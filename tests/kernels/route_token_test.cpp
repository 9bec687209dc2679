#include "kernels/route_token.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace tessera::kernels {
namespace {

constexpr float kClosed = -std::numeric_limits<float>::infinity();
const RoutingSteps kSteps{reference::router_scores, reference::top_k};

TEST(RouteToken, GroupsAreRankedByTheirTwoBest) {
  std::vector<float> rank{5, 0, 3, 3, 4, 1.5f};  // worth 5, 6, 5.5
  limit_groups(rank, 3, 1, kSteps);
  EXPECT_EQ(rank, (std::vector<float>{kClosed, kClosed, 3, 3, kClosed, kClosed}));
}

TEST(RouteToken, AGroupOfOneMemberCountsAndOneOfNoneIsClosed) {
  std::vector<float> rank{kClosed, kClosed, kClosed, 7, 1, 2};
  limit_groups(rank, 3, 2, kSteps);
  EXPECT_EQ(rank, (std::vector<float>{kClosed, kClosed, kClosed, 7, 1, 2}));
  std::vector<float> alone{kClosed, kClosed, kClosed, 7};
  limit_groups(alone, 2, 2, kSteps);
  EXPECT_EQ(alone, (std::vector<float>{kClosed, kClosed, kClosed, 7}));
}

TEST(RouteToken, TiesOfGroupsGoToTheLowestIndex) {
  std::vector<float> rank{1, 1, 1, 1};
  limit_groups(rank, 2, 1, kSteps);
  EXPECT_EQ(rank, (std::vector<float>{1, 1, kClosed, kClosed}));
}

TEST(RouteToken, IsATokenOfAll) {
  const std::vector<float> logits{2, 1, 0, -1, -3, 5, 4, 4}, bias{0, 0, 0, 9};
  std::vector<int32_t> ids(4), id(2);
  std::vector<float> weights(4), weight(2), all(8);
  RouteArgs args{.logits = logits.data(),
                 .tokens = 2,
                 .experts = 4,
                 .sigmoid = true,
                 .bias = bias.data(),
                 .top_k = 2,
                 .renormalise = true,
                 .scale = 2,
                 .ids = ids.data(),
                 .weights = weights.data(),
                 .scores = all.data()};
  route_tokens(args, kSteps);
  EXPECT_EQ(ids, (std::vector<int32_t>{3, 0, 3, 1}));
  EXPECT_NEAR(weights[0] + weights[1], 2, 1e-5);
  TokenScores scores(4);
  args.logits += 4, args.ids = id.data(), args.weights = weight.data(), args.scores = nullptr;
  route_token(args, 0, kSteps, scores);
  EXPECT_EQ(id, (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(weight, (std::vector<float>{weights[2], weights[3]}));
  EXPECT_EQ(scores.score, std::vector<float>(all.begin() + 4, all.end()));
}

}  // namespace
}  // namespace tessera::kernels
