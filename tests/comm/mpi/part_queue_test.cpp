#include "comm/mpi/part_queue.h"

#include <gtest/gtest.h>

#include <utility>

namespace tessera::comm::mpi {
namespace {

constexpr int64_t kPart = PartQueue::kPart;

TEST(PartQueue, EachByteGoesOnceAndFewPartsAtATime) {
  PartQueue queue;
  queue.add(7, 3 * kPart + 5);
  int64_t sent = 0, under_way = 0;
  for (bool ended = false; !ended;) {
    while (const auto part = queue.next()) {
      EXPECT_EQ(part->message, 7u);
      EXPECT_EQ(part->begin, sent);
      sent += part->size;
      ended = part->last;
      under_way += part->size;
      EXPECT_LT(under_way, PartQueue::kAtOnce + kPart);
    }
    queue.ended(std::exchange(under_way, 0));
  }
  EXPECT_EQ(sent, 3 * kPart + 5);
  EXPECT_FALSE(queue.next());
}

TEST(PartQueue, AMessageThatIsNearlyThereOvertakesAHundredTimesAsMuch) {
  PartQueue queue;
  queue.add(0, 100 * kPart);
  for (int64_t at = 0; at < PartQueue::kAtOnce; at += kPart) EXPECT_EQ(queue.next()->message, 0u);
  queue.add(1, kPart);
  EXPECT_FALSE(queue.next()) << "those that are under way come first";
  queue.ended(kPart);
  const auto part = queue.next();
  EXPECT_EQ(part->message, 1u);
  EXPECT_TRUE(part->last);
}

TEST(PartQueue, OfEqualMessagesTheOlderGoesFirst) {
  PartQueue queue;
  queue.add(3, kPart);
  queue.add(4, kPart);
  EXPECT_EQ(queue.next()->message, 3u);
  EXPECT_EQ(queue.next()->message, 4u);
}

TEST(PartQueue, SmallMessagesGoTogether) {
  PartQueue queue;
  for (uint64_t i = 0; i < 100; ++i) queue.add(i, PartQueue::kAtOnce / 16);
  int posted = 0;
  while (queue.next()) ++posted;
  EXPECT_EQ(posted, 16);
}

}  // namespace
}  // namespace tessera::comm::mpi
