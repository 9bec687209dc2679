#include "base/printable.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "base/config_reader.h"

namespace tessera::base {

// Arguments of a successful check cost no string: text is built only for a message.
static_assert(std::is_trivially_copyable_v<Printable>);
static_assert(std::is_trivially_copyable_v<ConfigReader::Shown>);

TEST(Printable, QuotesAndKeepsOneLine) {
  EXPECT_EQ(printable("blocks.0.attn"), "'blocks.0.attn'");
  EXPECT_EQ(printable("a\nb\x1b[31m"), "'a?b?[31m'");
  EXPECT_EQ(printable(""), "''");
}

TEST(Printable, CutsLongNamesBetweenCharacters) {
  EXPECT_EQ(printable(std::string(500, 'x')), "'" + std::string(120, 'x') + "...'");
  const std::string cut = printable(std::string(119, 'x') + "\xc3\xa9" + std::string(9, 'y'));
  EXPECT_EQ(cut, "'" + std::string(119, 'x') + "...'");
}

}  // namespace tessera::base
