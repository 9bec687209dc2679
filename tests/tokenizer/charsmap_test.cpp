#include "tokenizer/charsmap.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::tokenizer {
namespace {

TEST(Charsmap, AnEmptyOneChangesNothing) {
  EXPECT_EQ(Charsmap("", "here").apply("\xef\xac\x81"), "\xef\xac\x81");
}

TEST(Charsmap, RefusesDamage) {
  using namespace std::string_literals;
  EXPECT_THROW(Charsmap("abc", "here"), Error);
  EXPECT_THROW(Charsmap("\xff\xff\xff\xff"s + "abcd"s, "here"), Error);
  EXPECT_THROW(Charsmap("\4\0\0\0"s + "abcd"s + "\xff"s, "here"), Error);
}

TEST(Charsmap, LeadingOutsideIsAnError) {
  using namespace std::string_literals;
  // 'a' is unit 97, a leaf of value 9 after a single byte of text.
  std::string units(4 * 100, '\0');
  units.replace(4 * 97, 4, "\x61\x05\0\0"s);  // label 'a', leaf, offset 1
  units.replace(4 * 96, 4, "\x09\0\0\x80"s);
  const Charsmap map("\x90\x01\0\0"s + units + "x\0"s, "here");
  EXPECT_THROW(map.longest("a"), Error);
  EXPECT_FALSE(map.longest("b").has_value());
}

}  // namespace
}  // namespace tessera::tokenizer
