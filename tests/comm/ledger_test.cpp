#include "comm/ledger.h"

#include <gtest/gtest.h>

namespace tessera::comm {
namespace {

TEST(Ledger, CountsByOperationAndSite) {
  Ledger ledger;
  ledger.sent({"dispatch", 1}, 10);
  ledger.sent({"dispatch", 1}, 5);
  ledger.sent({"combine", 1, TrafficKind::control}, 3);
  ledger.received({"dispatch", 1}, 0.5, 2);
  const auto& entry = ledger.entries().at({"dispatch", 1});
  EXPECT_EQ(entry.messages, 2);
  EXPECT_EQ(entry.bytes, 15);
  EXPECT_DOUBLE_EQ(entry.wait_seconds, 0.5);
  EXPECT_EQ(entry.kind, TrafficKind::plan);
  EXPECT_EQ(ledger.entries().at({"combine", 1}).kind, TrafficKind::control);
  EXPECT_EQ(ledger.total().bytes, 18);
  EXPECT_DOUBLE_EQ(ledger.total().flight_seconds, 2);
}

TEST(Ledger, TellsWhatWasAdded) {
  Ledger ledger;
  ledger.sent({"dispatch", 1}, 10);
  ledger.sent({"combine", 1}, 3);
  const Ledger::Entries before = ledger.entries();
  ledger.sent({"dispatch", 1}, 5);
  ledger.sent({"halo", -1}, 2);
  const Ledger::Entries added = ledger.since(before);
  ASSERT_EQ(added.size(), 2u);
  EXPECT_EQ(added.at({"dispatch", 1}).bytes, 5);
  EXPECT_EQ(added.at({"dispatch", 1}).messages, 1);
  EXPECT_EQ(added.at({"halo", -1}).bytes, 2);
}

}  // namespace
}  // namespace tessera::comm
