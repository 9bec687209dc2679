#include "parallel/sequence/group_peers.h"

#include <gtest/gtest.h>

#include "comm/threads/launch.h"

namespace tessera::parallel {
namespace {

using namespace std::chrono_literals;

TEST(GroupPeers, NumbersAreTheSameOnEveryRank) {
  comm::threads::run(3, 20s, [](comm::Communicator& world) {
    GroupPeers peers(world);
    std::vector<int64_t> values{int64_t{1} << 53, world.rank()};
    auto most = values;
    peers.sum(values);
    peers.max(most);
    EXPECT_EQ(values, (std::vector<int64_t>{3 * (int64_t{1} << 53), 3}));
    EXPECT_EQ(most, (std::vector<int64_t>{int64_t{1} << 53, 2}));
  });
}

TEST(GroupPeers, RowsAreGatheredInTheOrderOfTokens) {
  comm::threads::run(3, 20s, [](comm::Communicator& world) {
    GroupPeers peers(world);
    const int rank = world.rank();  // holds `rank` tokens
    peers.hold({{0, {0, 1}}, {0, {1, 3}}}, rank * (rank - 1) / 2);
    const std::vector<float> mine(size_t(rank) * 2, float(rank));
    const auto all =
        peers.gather(tensor::Tensor::from(std::span<const float>(mine), {rank, 2})).to_floats();
    EXPECT_EQ(all, (std::vector<float>{1, 1, 2, 2, 2, 2}));
    EXPECT_EQ(nn::token_count(peers.tokens()), 3);
    if (rank > 0) {
      EXPECT_EQ(all[size_t(2 * peers.first())], float(rank));
    }
  });
}

}  // namespace
}  // namespace tessera::parallel
