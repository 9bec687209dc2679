#include "comm/inbox.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera::comm {
namespace {

using tensor::DType;
using tensor::Tensor;

Message message(int64_t bytes) { return {{"m", 0}, Tensor::empty({bytes}, DType::u8)}; }

TEST(Inbox, KeepsOrderForEachChannelAndSender) {
  Inbox inbox;
  inbox.deliver(1, 0, message(1));
  inbox.deliver(2, 0, message(2));
  inbox.deliver(1, 0, message(3));
  inbox.deliver(1, 1, message(4));
  const auto never = [] { FAIL() << "there was something to take"; };
  EXPECT_EQ(inbox.take(1, 1, never).data.bytes(), 4);
  EXPECT_EQ(inbox.take(1, 0, never).data.bytes(), 1);
  EXPECT_EQ(inbox.take(1, 0, never).data.bytes(), 3);
  EXPECT_FALSE(inbox.poll(1, 0));
  EXPECT_EQ(inbox.poll(2, 0)->data.bytes(), 2);
}

TEST(Inbox, TheFirstFailureStaysAndWhatArrivedBeforeIsGiven) {
  Inbox inbox;
  inbox.deliver(1, 0, message(1));
  inbox.fail(Error(ErrorCode::rank, "first"));
  inbox.fail(Error(ErrorCode::rank, "second"));
  EXPECT_TRUE(inbox.poll(1, 0));
  try {
    inbox.poll(1, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
}

TEST(Inbox, AClosedChannelTakesNothing) {
  Inbox inbox;
  inbox.deliver(5, 0, message(1));
  inbox.close(5);
  inbox.deliver(5, 0, message(1));
  EXPECT_FALSE(inbox.poll(5, 0));
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
  for (int64_t bytes : {1, 2, 3}) inbox.deliver(1, 7, message(bytes));
  EXPECT_EQ(inbox.poll(1, 7)->tag.site, 7);
  EXPECT_EQ(inbox.poll(1, 7)->data.bytes(), 3) << "the gate kept the second";
  inbox.guard(nullptr);
  inbox.deliver(1, 7, message(2));
  EXPECT_EQ(inbox.poll(1, 7)->tag.site, 0);
  inbox.guard(gate);
  inbox.fail(Error(ErrorCode::rank, "first"));
  inbox.fail(Error(ErrorCode::rank, "second"));
  EXPECT_EQ(gate->failures, (std::vector<std::string>{"first"}));
  inbox.guard(gate);
  EXPECT_EQ(gate->failures.size(), 2u) << "a gate that comes later hears of it, too";
}

}  // namespace
}  // namespace tessera::comm
