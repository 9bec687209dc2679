#include "server/shares.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

TEST(Shares, WithoutOthersAClientHasAll) {
  for (const int clients : {0, 1}) {
    const Shares shares{clients, 10, 2, 1000};
    EXPECT_TRUE(shares.may_wait(9, 9));
    EXPECT_FALSE(shares.may_wait(10, 10));
    EXPECT_FALSE(shares.may_wait(0, 10)) << "an address is nobody's for sure";
    EXPECT_EQ(shares.most_runs(), 2);
    EXPECT_TRUE(shares.may_run(1, 0, 1));
    EXPECT_FALSE(shares.may_run(0, 2, 2));
    EXPECT_EQ(shares.own_disk(), 1000);
  }
}

TEST(Shares, APlaceToWaitIsLeftToEach) {
  const Shares shares{4, 16, 2, 1000};
  size_t own = 0;
  while (shares.may_wait(own, own)) ++own;
  EXPECT_EQ(own, 8U) << "half of the queue";
  for (size_t mine = 0; mine < 4; ++mine)
    EXPECT_TRUE(shares.may_wait(mine, 16 + mine)) << "whoever fills it";
  EXPECT_FALSE(shares.may_wait(4, 16));
  EXPECT_TRUE(shares.may_wait(4, 15));
  const Shares many{1000, 16, 2, 1000};
  EXPECT_TRUE(many.may_wait(0, 900));
  EXPECT_FALSE(many.may_wait(1, 900));
  const Shares narrow{2, 1, 1, 0};
  EXPECT_TRUE(narrow.may_wait(0, 5));
  EXPECT_FALSE(narrow.may_wait(1, 1));
}

TEST(Shares, WhoHasNothingAtWorkBeginsBesideOthers) {
  const Shares shares{3, 16, 2, 999};
  EXPECT_TRUE(shares.may_run(1, 0, 1));
  EXPECT_FALSE(shares.may_run(2, 0, 2));
  EXPECT_FALSE(shares.may_run(1, 1, 1)) << "a second one beside somebody else's";
  EXPECT_TRUE(shares.may_run(0, 2, 2));
  EXPECT_TRUE(shares.may_run(0, 3, 3));
  EXPECT_EQ(shares.most_runs(), 4);
  EXPECT_FALSE(shares.may_run(0, 4, 4));
  EXPECT_EQ(shares.own_disk(), 333);
  EXPECT_LE((Shares{1000, 16, 2, 0}.most_runs()), 16) << "threads are bounded";
}

TEST(Recent, IsForgottenByHalfInAMinute) {
  Recent recent;
  recent.add("anna", 8, 100);
  EXPECT_DOUBLE_EQ(recent.of("anna", 160), 4);
  recent.add("anna", 1, 160);
  EXPECT_DOUBLE_EQ(recent.of("anna", 160), 5);
  EXPECT_DOUBLE_EQ(recent.of("anna", 220), 2.5);
  EXPECT_EQ(recent.of("bert", 220), 0);
}

}  // namespace
}  // namespace tessera::server
