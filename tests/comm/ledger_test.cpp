#include "comm/ledger.h"

#include <gtest/gtest.h>

namespace tessera::comm {
namespace {

TEST(Ledger, CountsByOperationAndSite) {
  Ledger ledger;
  ledger.sent({"dispatch", 1}, 10);
  ledger.sent({"dispatch", 1}, 5);
  ledger.sent({"combine", 1}, 3);
  ledger.received({"dispatch", 1}, 0.5, 2);
  const auto& entry = ledger.entries().at({"dispatch", 1});
  EXPECT_EQ(entry.messages, 2);
  EXPECT_EQ(entry.bytes, 15);
  EXPECT_DOUBLE_EQ(entry.wait_seconds, 0.5);
  EXPECT_EQ(ledger.total().bytes, 18);
  EXPECT_DOUBLE_EQ(ledger.total().flight_seconds, 2);
}

}  // namespace
}  // namespace tessera::comm
