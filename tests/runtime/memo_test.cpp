#include "runtime/memo.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace tessera::runtime {
namespace {

TEST(Memo, AsksOnceUnlessItIsRefused) {
  const Memo<std::string, int> all;
  int asked = 0;
  const auto ask = [&](bool refuses) {
    return all.of("x", [&] {
      ++asked;
      if (refuses) throw std::runtime_error("no");
      return 7;
    });
  };
  EXPECT_THROW(ask(true), std::runtime_error);
  EXPECT_EQ(ask(false), 7);
  EXPECT_EQ(ask(true), 7);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(all.find("y"), std::nullopt);
  all.keep("x", 8);
  EXPECT_EQ(all.find("x"), 8);
}

TEST(Memo, DoesNotGrow) {
  const Memo<size_t, size_t> all;
  const size_t most = Memo<size_t, size_t>::kMost;
  for (size_t i = 0; i < 3 * most; ++i) all.keep(i, i);
  size_t kept = 0;
  for (size_t i = 0; i < 3 * most; ++i) kept += all.find(i).has_value();
  EXPECT_LE(kept, most);
  EXPECT_TRUE(all.find(3 * most - 1).has_value());
}

}  // namespace
}  // namespace tessera::runtime
