#include "cluster/rank_progress_channel.h"

#include <gtest/gtest.h>

#include "comm/threads/launch.h"

namespace tessera::cluster {
namespace {

using namespace std::chrono_literals;

TEST(RankProgressChannel, RankZeroHearsEachWordInItsOrder) {
  comm::threads::run(3, 10s, [](comm::Communicator& world) {
    const auto before = world.ledger().total().bytes;
    RankProgressChannel told(world, world.rank() == 0);  // the first rank's word decides
    ASSERT_TRUE(told.wanted());
    for (int step = 0; step < 3 && world.rank() > 0; ++step)
      told.tell({world.rank(), 0.5 * step, 0.25, 100 + step, {1, step}, {7}});
    for (int step = 0; step < 3 && world.rank() == 0; ++step) {
      const auto heard = told.hear();
      ASSERT_EQ(heard.size(), 2u);
      for (int i = 0; i < 2; ++i) {
        const RankProgress& one = heard[static_cast<size_t>(i)];
        EXPECT_EQ(one.rank, i + 1);
        EXPECT_EQ(one.compute_seconds, 0.5 * step);
        EXPECT_EQ(one.wait_seconds, 0.25);
        EXPECT_EQ(one.sent_bytes, 100 + step);
        EXPECT_EQ(one.expert_ages, (std::vector<int64_t>{1, step}));
        EXPECT_EQ(one.kv_ages, std::vector<int64_t>{7});
      }
    }
    EXPECT_LE(world.ledger().total().bytes - before, 8 * world.size()) << "but for the agreement";
  });
}

TEST(RankProgressChannel, NothingIsSaidWhereNobodyLooks) {
  comm::threads::run(2, 10s, [](comm::Communicator& world) {
    EXPECT_FALSE(RankProgressChannel(world, world.rank() == 1).wanted());
  });
}

TEST(RankProgressChannel, WhatNobodyHearsIsDropped) {  // a cancelled run
  comm::threads::run(2, 10s, [](comm::Communicator& world) {
    for (int run = 0; run < 3; ++run) {
      RankProgressChannel told(world, true);
      if (world.rank() == 1) told.tell({1, 1.0 * run, 0, 0, {}, {}});
      if (world.rank() == 1) told.tell({1, 9, 0, 0, {}, {}});
      if (world.rank() > 0) continue;
      EXPECT_EQ(told.hear().at(0).compute_seconds, run);
    }
  });
}

}  // namespace
}  // namespace tessera::cluster
