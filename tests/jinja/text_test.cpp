#include "jinja/text.h"

#include <gtest/gtest.h>

namespace tessera::jinja {
namespace {

using Texts = std::vector<std::string>;

TEST(TemplateText, CutsAsPythonDoes) {
  EXPECT_EQ(split("a,b,c", ",", 1, false), (Texts{"a", "b,c"}));
  EXPECT_EQ(split("a,b,c", ",", 1, true), (Texts{"a,b", "c"}));
  EXPECT_EQ(split(" a  b c ", "", -1, false), (Texts{"a", "b", "c"}));
  EXPECT_EQ(split(" a  b c ", "", 1, false), (Texts{"a", "b c "}));
  EXPECT_EQ(split(" a  b c ", "", 1, true), (Texts{" a  b", "c"}));
  EXPECT_EQ(lines_of("a\r\nb\n\nc", false), (Texts{"a", "b", "", "c"}));
  EXPECT_EQ(trimmed("\xc2\xa0x\xe3\x80\x80", true, true), "x");
  EXPECT_EQ(trimmed("\xc3\xa9x\xc3\xa9", true, false, "\xc3\xa9"), "x\xc3\xa9");
}

TEST(TemplateText, CountsReplacesAndChangesCharacters) {
  EXPECT_EQ(character_count("\xc3\xa9\xf0\x9f\x98\x80"), 2);
  EXPECT_EQ(replaced("aaa", "a", "b", 2), "bba");
  EXPECT_EQ(replaced("ab", "", "-", -1), "-a-b-");
  EXPECT_EQ(titled("o'neil x2y"), "O'Neil X2Y");
  EXPECT_EQ(capitalized("\xc3\xa9TE"), "\xc3\x89te");
  EXPECT_TRUE(all_of_kind("12", "isdigit"));
  EXPECT_FALSE(all_of_kind("", "isalpha"));
}

}  // namespace
}  // namespace tessera::jinja
