#include "comm/patience.h"

#include <gtest/gtest.h>

#include <thread>

#include "scripted_transport.h"

namespace tessera::comm {
namespace {

using namespace std::chrono_literals;

TEST(Patience, RunsOnlyWhileNobodyOfTheWorldGetsOn) {
  ScriptedTransport world(4);
  Patience patience(world, 100ms);
  for (int i = 0; i < 30; ++i) {
    std::this_thread::sleep_for(10ms);
    ++world.counts[3];  // progress of a rank not known as awaited
    EXPECT_FALSE(patience.over());
  }
  std::this_thread::sleep_for(150ms);
  EXPECT_TRUE(patience.over());
  ++world.counts[1];
  EXPECT_FALSE(patience.over());
}

TEST(Patience, AChainOfWaitsIsFollowedToItsEnd) {
  ScriptedTransport world(4);
  EXPECT_EQ(standstill(world, 1), "rank 1, which made no progress");
  world.waits[1] = 3;
  world.waits[3] = 2;
  EXPECT_EQ(standstill(world, 1),
            "rank 1, which waits for rank 3, which waits for rank 2, which made no progress");
  world.waits[2] = 0;
  EXPECT_NE(standstill(world, 1).find("rank 0, so that they wait for each other"),
            std::string::npos);
  world.waits[2] = 3;
  EXPECT_NE(standstill(world, 1).find("rank 3, so that they wait for each other"),
            std::string::npos);
  world.waits[2] = 99;
  EXPECT_NE(standstill(world, 1).find("rank 2, which made no progress"), std::string::npos);
}

TEST(Patience, AWaitIsToldWhileItLasts) {
  ScriptedTransport world(2);
  {
    const Waiting waiting(world, 1);
    EXPECT_EQ(world.waits[0], 1);
  }
  EXPECT_EQ(world.waits[0], -1);
}

}  // namespace
}  // namespace tessera::comm
