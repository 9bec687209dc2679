#include "tokenizer/unicode.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::tokenizer {
namespace {

TEST(Unicode, WritesWhatItReads) {
  std::string text;
  for (char32_t c : {0x41u, 0xe9u, 0x732bu, 0x1f680u}) append(text, c);
  EXPECT_EQ(text, "A\xc3\xa9\xe7\x8c\xab\xf0\x9f\x9a\x80");
  size_t at = 3;
  EXPECT_EQ(next_code_point(text, at), char32_t{0x732b});
  EXPECT_EQ(at, 6u);
  EXPECT_EQ(repaired(text), text);
  EXPECT_EQ(repaired("a\xff"), "a\xef\xbf\xbd");
}

TEST(Unicode, NormalisesAndLowers) {
  EXPECT_EQ(normalized("e\xcc\x81", Form::nfc), "\xc3\xa9");
  EXPECT_EQ(normalized("\xc3\xa9", Form::nfd), "e\xcc\x81");
  EXPECT_EQ(lowered("\xc4\xb0S\xce\xa3"), "i\xcc\x87s\xcf\x83");
}

TEST(Unicode, StripsAnySpace) {
  EXPECT_EQ(stripped(" \xe3\x80\x80 a b\n\xc2\xa0"), "a b");
  EXPECT_EQ(stripped(" \t"), "");
  EXPECT_EQ(stripped(""), "");
  EXPECT_EQ(stripped(" a ", true, false), "a ");
  EXPECT_EQ(stripped(" a ", false, true), " a");
  EXPECT_EQ(stripped(" a ", false, false), " a ");
  for (const bool left : {true, false}) EXPECT_EQ(stripped(" \t", left, !left), "");
  EXPECT_EQ(stripped(" \t", false, false), " \t");
}

TEST(Unicode, FindsGraphemesAndMatches) {
  EXPECT_EQ(graphemes("e\xcc\x81x").size(), 2u);
  EXPECT_EQ(graphemes("a\r\nb").size(), 3u);
  const auto found = Regex("\\p{L}+", "here").matches("\xc3\xa9 ab");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1], (std::pair<size_t, size_t>{3, 5}));
  EXPECT_THROW(Regex("(", "here"), Error);
}

}  // namespace
}  // namespace tessera::tokenizer
