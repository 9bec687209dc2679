#include "comm/inbox.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/fail.h"
#include "tensor/scope.h"

namespace tessera::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using tensor::DType;
using tensor::Tensor;

Message message(int64_t bytes, uint64_t order = 0) {
  Message m{{"m", 0}, Tensor::empty({bytes}, DType::u8)};
  m.order = order;
  return m;
}

Message closing(uint64_t sent) {
  Message m = message(0, sent);
  m.last = true;
  return m;
}

const auto kNever = [] { FAIL() << "there was something to take"; };

TEST(Inbox, EachMessageIsFoundByItsChannelSenderAndNumber) {
  Inbox inbox;
  inbox.deliver(1, 0, message(3, 1));  // overtakes an earlier message
  inbox.deliver(2, 0, message(2));
  inbox.deliver(1, 1, message(4));
  EXPECT_FALSE(inbox.ready(1, 0, 0));
  EXPECT_EQ(inbox.take(1, 0, 1, kNever).data.bytes(), 3);
  inbox.deliver(1, 0, message(1));
  EXPECT_EQ(inbox.take(1, 1, 0, kNever).data.bytes(), 4);
  EXPECT_EQ(inbox.take(1, 0, 0, kNever).data.bytes(), 1);
  EXPECT_TRUE(inbox.ready(2, 0, 0));
  EXPECT_FALSE(inbox.ready(1, 0, 0)) << "a message is there once";
}

TEST(Inbox, TheFirstFailureStaysAndWhatArrivedBeforeIsGiven) {
  Inbox inbox;
  inbox.deliver(1, 0, message(1));
  inbox.fail(Error(ErrorCode::rank, "first"));
  inbox.fail(Error(ErrorCode::rank, "second"));
  EXPECT_EQ(inbox.take(1, 0, 0, kNever).data.bytes(), 1);
  try {
    inbox.ready(1, 0, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_THROW(inbox.take(1, 0, 0, kNever), Error);
}

TEST(Inbox, AMessageThatComesTwiceFailsTheRank) {
  Inbox inbox;
  inbox.deliver(1, 3, message(1));
  inbox.deliver(1, 3, message(1));
  EXPECT_THROW(inbox.ready(9, 9, 9), Error);
}

TEST(Inbox, AClosedChannelTakesNothingAndIsForgottenWhenAllHaveClosedIt) {
  Inbox inbox;
  for (uint64_t channel = 5; channel < 500; ++channel) {
    inbox.deliver(channel, 0, message(1));
    inbox.close(channel, 2);
    inbox.deliver(channel, 1, closing(1));  // a message is in flight
    inbox.deliver(channel, 0, message(1, 1));
    EXPECT_FALSE(inbox.ready(channel, 0, 0));
    EXPECT_FALSE(inbox.ready(channel, 0, 1));
    inbox.deliver(channel, 0, closing(2));
    EXPECT_EQ(inbox.channels(), 1u);
    inbox.deliver(channel, 1, message(7));
    EXPECT_EQ(inbox.channels(), 0u);
  }
  EXPECT_EQ(inbox.ahead(0), 0u);
  EXPECT_EQ(inbox.ahead(1), 0u);
}

TEST(Inbox, WhatIsForgottenIsDroppedWhenItComes) {
  Inbox inbox;
  inbox.deliver(1, 0, message(10, 0));
  for (uint64_t order : {0, 1, 2}) inbox.expect(1, 0, order);
  inbox.forget(1, 0, 0);
  inbox.forget(1, 0, 1);
  inbox.deliver(1, 0, message(10, 1));
  EXPECT_FALSE(inbox.ready(1, 0, 0));
  EXPECT_FALSE(inbox.ready(1, 0, 1));
  inbox.deliver(1, 0, message(10, 2));
  EXPECT_TRUE(inbox.ready(1, 0, 2));
}

TEST(Inbox, CountsWhatNobodyExpectsYet) {
  Inbox inbox;
  inbox.deliver(1, 4, message(100, 0));
  EXPECT_EQ(inbox.ahead(4), 100u);
  inbox.expect(1, 4, 1);
  inbox.deliver(1, 4, message(30, 1));
  EXPECT_EQ(inbox.ahead(4), 100u) << "this one was expected";
  EXPECT_EQ(inbox.accepted(4), 30u);
  EXPECT_THROW(inbox.await_room(4, 99, [] { fail(ErrorCode::rank, "too long"); }), Error);
  std::jthread later([&] {
    std::this_thread::sleep_for(30ms);
    inbox.expect(1, 4, 0);
  });
  inbox.await_room(4, 99, [] {});
  EXPECT_EQ(inbox.accepted(4), 130u);
}

TEST(Inbox, AListenerHearsAChannelUntilItIsClosed) {
  Inbox inbox;
  std::vector<std::pair<int, uint64_t>> heard;
  inbox.listen(7, [&](int from, Message m) { heard.emplace_back(from, m.order); });
  inbox.deliver(7, 2, message(100, 1));  // independent of earlier messages
  inbox.deliver(7, 3, message(1, 0));
  inbox.deliver(8, 2, message(1, 0));
  EXPECT_EQ(heard, (std::vector<std::pair<int, uint64_t>>{{2, 1}, {3, 0}}));
  EXPECT_FALSE(inbox.ready(7, 2, 1)) << "nobody receives it";
  EXPECT_TRUE(inbox.ready(8, 2, 0));
  EXPECT_EQ(inbox.accepted(2), 100u) << "its sender has room for more";
  EXPECT_EQ(inbox.accepted(3), 1u);
  inbox.close(7, 2);
  inbox.deliver(7, 2, message(1, 0));
  EXPECT_EQ(heard.size(), 2u);
  inbox.deliver(7, 2, closing(2));
  inbox.deliver(7, 3, closing(1));
  EXPECT_EQ(inbox.channels(), 1u) << "the other one";
}

TEST(Inbox, AListenerHearsWhatCameBeforeIt) {
  Inbox inbox;
  inbox.deliver(7, 2, message(100, 0));
  inbox.deliver(7, 3, message(1, 0));
  std::vector<std::pair<int, uint64_t>> heard;
  inbox.listen(7, [&](int from, Message m) { heard.emplace_back(from, m.order); });
  inbox.deliver(7, 2, message(10, 1));
  EXPECT_EQ(heard, (std::vector<std::pair<int, uint64_t>>{{2, 0}, {3, 0}, {2, 1}}));
  EXPECT_EQ(inbox.accepted(2), 110u);
  EXPECT_EQ(inbox.ahead(2), 0u);
  EXPECT_FALSE(inbox.ready(7, 2, 0)) << "it was heard";
}

TEST(Inbox, WhatAListenerThrowsFailsTheRank) {
  Inbox inbox;
  inbox.listen(7, [](int, Message) { fail(ErrorCode::rank, "no place"); });
  EXPECT_NO_THROW(inbox.deliver(7, 0, message(1))) << "of the thread that delivers";
  EXPECT_THROW(inbox.check(), Error);
}

// If the deadline were checked only without arrivals, the wait would never end.
TEST(Inbox, AWaitAsksTheClockHoweverOftenSomethingElseArrives) {
  Inbox inbox;
  std::jthread noise([&](const std::stop_token& stop) {
    for (uint64_t i = 0; !stop.stop_requested(); ++i) {
      inbox.deliver(2, 0, message(1, i));
      inbox.take(2, 0, i, kNever);
      std::this_thread::sleep_for(1ms);
    }
  });
  const auto limit = Clock::now() + 100ms;
  EXPECT_THROW(inbox.take(1, 0, 0,
                          [&] {
                            if (Clock::now() > limit) fail(ErrorCode::rank, "too long");
                          }),
               Error);
}

class Notes : public Gate {
 public:
  bool pass(int from, Message& m) override {
    m.tag.site = from;
    return m.data.bytes() != 2;
  }
  void failed(const Error& error) override { failures.push_back(error.what()); }
  std::vector<std::string> failures;
};

TEST(Inbox, AGateSeesMessagesAndTheFailureFirst) {
  Inbox inbox;
  const auto gate = std::make_shared<Notes>();
  inbox.guard(gate);
  for (int64_t bytes : {1, 2, 3}) inbox.deliver(1, 7, message(bytes, static_cast<uint64_t>(bytes)));
  EXPECT_EQ(inbox.take(1, 7, 1, kNever).tag.site, 7);
  EXPECT_EQ(inbox.take(1, 7, 3, kNever).data.bytes(), 3);
  EXPECT_FALSE(inbox.ready(1, 7, 2)) << "the gate kept the second";
  EXPECT_EQ(inbox.accepted(7), 2u) << "and has it";
  inbox.guard(nullptr);
  inbox.deliver(1, 7, message(2, 4));
  EXPECT_EQ(inbox.take(1, 7, 4, kNever).tag.site, 0);
  inbox.guard(gate);
  inbox.fail(Error(ErrorCode::rank, "first"));
  inbox.fail(Error(ErrorCode::rank, "second"));
  EXPECT_EQ(gate->failures, (std::vector<std::string>{"first"}));
  inbox.guard(gate);
  EXPECT_EQ(gate->failures.size(), 2u) << "a gate that comes later hears of it, too";
}

}  // namespace
}  // namespace tessera::comm
