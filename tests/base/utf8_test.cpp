#include "base/utf8.h"

#include <gtest/gtest.h>

namespace tessera::base {
namespace {

TEST(Utf8, KeepsWhatIsValid) {
  for (const std::string text : {"", "plain", "cr\xc3\xa8me", "\xe2\x82\xac", "\xf0\x9f\x8e\xa8",
                                 "\xef\xbf\xbd", "\xf4\x8f\xbf\xbf"})
    EXPECT_EQ(valid_utf8(text), text);
}

TEST(Utf8, ReplacesEachByteThatBeginsNothing) {
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(valid_utf8("a\xff"
                       "b"),
            "a" + r + "b");
  EXPECT_EQ(valid_utf8("\xe8m"), r + "m");                   // Latin-1
  EXPECT_EQ(valid_utf8("\xc3"), r);                          // cut
  EXPECT_EQ(valid_utf8("\xe2\x82"), r + r);                  // cut
  EXPECT_EQ(valid_utf8("\xc0\xaf"), r + r);                  // longer than needed
  EXPECT_EQ(valid_utf8("\xe0\x80\xaf"), r + r + r);          // longer than needed
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), r + r + r);          // half of a pair
  EXPECT_EQ(valid_utf8("\xf4\x90\x80\x80"), r + r + r + r);  // above the last
}

TEST(Utf8, GoesToUtf16) {
  EXPECT_EQ(utf16("a\xc3\xa8\xf0\x9f\x8e\xa8\xff"), std::u16string(u"a\u00e8\U0001f3a8\ufffd"));
}

}  // namespace
}  // namespace tessera::base
