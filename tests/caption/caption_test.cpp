#include "caption/caption.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "tessera/error.h"
#include "test_paths.h"

namespace tessera::caption {
namespace {

TEST(Caption, CleansAsTheCleanerOfDiffusers) {
  const base::Json cases = base::read_json(TESSERA_TEST_DATA "/captions/cases.json");
  ASSERT_GE(cases.size(), 300u);
  int misread = 0, changed = 0;
  for (const base::Json& one : cases) {
    const auto prompt = one.at(0).get<std::string>(), expected = one.at(1).get<std::string>();
    const CleanCaption made = clean_caption(prompt);
    changed += made.text != plain_caption(prompt);
    if (made.misread && made.text != expected)
      ++misread;
    else
      EXPECT_EQ(made.text, expected) << one.dump();
  }
  EXPECT_LE(misread, 4) << "only texts in a wrong encoding may come out otherwise";
  EXPECT_GE(changed, 150);
}

TEST(Caption, SaysWhereFtfyWouldRepairAnEncoding) {
  EXPECT_TRUE(clean_caption("a caf\xc3\xa2\xe2\x82\xac\xc2\xa6").misread);  // â€¦
  EXPECT_TRUE(clean_caption("\xe2\x94\x9c\xe2\x8c\x90").misread);  // box drawings of a DOS page
  for (const char* fine :
       {"a cat", "un ch\xc3\xa2teau", "\xd0\xbf\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82",
        "S\xc3\xa3o Paulo \xe2\x80\x94 50\xc2\xb0"})
    EXPECT_FALSE(clean_caption(fine).misread) << fine;
}

TEST(Caption, PlainIsLowerAndStripOfPython) {
  EXPECT_EQ(plain_caption("\x1c \tA Cat\xc2\xa0\n"), "a cat");
  EXPECT_EQ(plain_caption("\xce\x9f\xce\x94\xce\x9f\xce\xa3"),
            "\xce\xbf\xce\xb4\xce\xbf\xcf\x82");  // a final sigma
  EXPECT_EQ(plain_caption("<b>A&amp;B</b>"), "<b>a&amp;b</b>");
  EXPECT_EQ(plain_caption("a\xff"), "a\xef\xbf\xbd");
}

// Work follows the length: patterns with a look-ahead for '.' or '>' everywhere end in seconds.
TEST(Caption, LongPromptsEnd) {
  for (const std::string piece : {"a", "a.", "<", "<!--", "<a b=\""}) {
    std::string prompt;
    while (prompt.size() + piece.size() <= 5000) prompt += piece;
    try {
      EXPECT_LE(clean_caption(prompt).text.size(), 2 * prompt.size());
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
    }
  }
  try {
    clean_caption(std::string(10001, 'a'));
    FAIL() << "no limit";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_NE(std::string(e.what()).find("10001 bytes"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("`clean_caption` off"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::caption
