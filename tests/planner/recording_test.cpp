#include "planner/recording.h"

#include <gtest/gtest.h>

#include "planner/small_recording.h"

namespace tessera::planner {
namespace {

TEST(Recording, HoldsEachOpOnceAndEventsInTheirOrder) {
  const Recording made = two_ranks(2, 2, 1000);
  ASSERT_EQ(made.ranks.size(), 2u);
  ASSERT_EQ(made.ranks[0].steps.size(), 2u);
  EXPECT_EQ(made.ops.size(), 1u);
  EXPECT_EQ(made.letters.size(), 2u);
  EXPECT_EQ(made.sent_bytes(), 2 * 2 * 1000);
  EXPECT_EQ(made.sent_messages(), 4);
  EXPECT_EQ(made.ranks[0].steps[0][1].kind, Event::Kind::op);
}

TEST(Recording, StepsThatAreNotRecordedRepeatTheLastPeriod) {
  Recording made;
  made.ranks.resize(1);
  made.ranks[0].steps.resize(6);
  made.steps = 10;
  made.period = 2;
  std::vector<int> stands;
  for (int i = 0; i < 10; ++i) stands.push_back(made.recorded(i, 10));
  EXPECT_EQ(stands, (std::vector<int>{0, 1, 2, 3, 4, 3, 4, 3, 4, 5}));
}

TEST(Recording, DoesNotDependOnTheOrderOfTheRanks) {
  // In the second run rank 1 reports before rank 0.
  EXPECT_EQ(to_json(two_ranks(2, 2, 1000, false)), to_json(two_ranks(2, 2, 1000, true)));
}

TEST(Recording, OnlyPartsOfTheRunCount) {
  Recorder recorder(1);
  recorder.root()->op("matmul", 1, 1, {});
  recorder.root()->part("prepare", 0);
  recorder.root()->op("add", 1, 1, {});
  recorder.root()->part("", 0);
  recorder.root()->op("matmul", 1, 1, {});
  const Recording made = recorder.take(0, 1);
  ASSERT_EQ(made.ranks[0].prepare.size(), 1u);
  EXPECT_EQ(made.ops[made.ranks[0].prepare[0].id].kind, "add");
}

}  // namespace
}  // namespace tessera::planner
