#include "server/events.h"

#include <gtest/gtest.h>

#include <memory>

namespace tessera::server {
namespace {

struct Counter : Waiter {
  void wake() override { ++woken; }
  int woken = 0;
};

TEST(EventLog, IsReadFromWhereOneWas) {
  EventLog log;
  for (int i = 1; i <= 5; ++i) log.add("progress", std::to_string(i));
  const auto part = log.after(3, {});
  ASSERT_EQ(part.events.size(), 2U);
  EXPECT_EQ(part.events[0].id, 4U);
  EXPECT_EQ(part.events[1].data(), "5");
  EXPECT_EQ(*part.events[1].text, "id: 5\nevent: progress\ndata: 5\n\n");
  EXPECT_FALSE(part.ended);
}

TEST(EventLog, WakesOnceWhoWaits) {
  EventLog log;
  const auto counter = std::make_shared<Counter>();
  for (int i = 0; i < 3; ++i)  // repeated requests wait only once
    EXPECT_TRUE(log.after(0, counter).events.empty());
  std::weak_ptr<Counter> gone;
  {
    const auto other = std::make_shared<Counter>();
    log.after(0, other);
    gone = other;
  }
  EXPECT_TRUE(gone.expired());
  log.add("progress", "1");
  log.add("progress", "2");
  EXPECT_EQ(counter->woken, 1);
  log.after(0, counter);  // events are present: no wait
  log.add("done", "{}", true);
  EXPECT_EQ(counter->woken, 1);
}

TEST(EventLog, NothingFollowsTheLast) {
  EventLog log;
  log.add("done", "{}", true);
  log.add("progress", "1");
  const auto part = log.after(0, {});
  EXPECT_EQ(part.events.size(), 1U);
  EXPECT_TRUE(part.ended);
  EXPECT_TRUE(log.after(1, {}).ended);
}

TEST(EventLog, HandsOnInParts) {
  EventLog log;
  for (int i = 1; i <= 100; ++i) log.add("progress", std::to_string(i), i == 100);
  uint64_t after = 0;
  size_t events = 0;
  for (bool ended = false; !ended;) {
    const auto part = log.after(after, {});
    ASSERT_FALSE(part.events.empty());
    after = part.events.back().id;
    events += part.events.size();
    ended = part.ended;
  }
  EXPECT_EQ(events, 100U);
}

TEST(EventLog, OldPreviewsGoFirst) {
  EventLog log;
  const std::string preview(size_t{1} << 20, 'x');
  for (int i = 1; i <= 10; ++i) {
    log.add("progress", "{}");
    log.add("preview", preview);
  }
  uint64_t after = 0;
  size_t previews = 0, steps = 0;
  for (auto part = log.after(0, {}); !part.events.empty(); part = log.after(after, {}))
    for (const auto& event : part.events) {
      after = event.id;
      ++(event.name == "preview" ? previews : steps);
    }
  EXPECT_EQ(steps, 10U);
  EXPECT_EQ(previews, 4U);
  EXPECT_EQ(after, 20U);
}

TEST(EventLog, ReadersShareOneText) {
  EventLog log;
  log.add("preview", std::string(size_t{1} << 20, 'x'));
  const auto first = log.after(0, {}), second = log.after(0, {});
  EXPECT_EQ(first.events[0].text.get(), second.events[0].text.get());
  EXPECT_EQ(first.events[0].text.use_count(), 3);
  EXPECT_EQ(log.after(0, {}, 1).events.size(), 1U);
}

TEST(Sse, IsOneEvent) {
  EXPECT_EQ(sse(7, "done", "{}"), "id: 7\nevent: done\ndata: {}\n\n");
  EXPECT_EQ(sse(0, "", "[DONE]"), "data: [DONE]\n\n");
}

}  // namespace
}  // namespace tessera::server
