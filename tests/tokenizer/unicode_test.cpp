#include "tokenizer/unicode.h"

#include <gtest/gtest.h>

#include <ctime>

#include "base/stop.h"
#include "tessera/error.h"

namespace tessera::tokenizer {
namespace {

// As for a whole text.
std::vector<std::pair<size_t, size_t>> matches(const Regex& regex, std::string_view text) {
  TextAllowance allowance(text.size());
  return regex.matches(text, allowance);
}

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

TEST(Unicode, Lowers) { EXPECT_EQ(lowered("\xc4\xb0S\xce\xa3"), "i\xcc\x87s\xcf\x83"); }

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

// ICU keeps a place for each blank of a run, and its own limit ends at 170,000.
TEST(Unicode, MatchesALongRunOfBlanks) {
  const std::string blanks(400'000, ' ');
  const auto found = matches(Regex("\\s+(?!\\S)|\\s+", "here"), blanks);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0], (std::pair<size_t, size_t>(0, blanks.size())));
}

// Pieces of a text share a matcher: the second piece is matched from its own beginning.
TEST(Unicode, MatchesPieceAfterPiece) {
  const Regex regex("b", "here");
  TextAllowance allowance(10);
  EXPECT_EQ(regex.matches("aab", allowance).at(0).first, 2u);
  EXPECT_EQ(regex.matches("b", allowance).at(0).first, 0u);
  EXPECT_TRUE(regex.matches("", allowance).empty());
}

TEST(Unicode, FindsGraphemesAndMatches) {
  EXPECT_EQ(graphemes("e\xcc\x81x").size(), 2u);
  EXPECT_EQ(graphemes("a\r\nb").size(), 3u);
  const auto found = matches(Regex("\\p{L}+", "here"), "\xc3\xa9 ab");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1], (std::pair<size_t, size_t>{3, 5}));
  EXPECT_THROW(Regex("(", "here"), Error);
}

// Patterns with excessive backtracking, and the allowance of a text.
TEST(Regex, GivesUpOnWorkThatTheTextDoesNotExplain) {
  const std::clock_t begin = std::clock();  // processor time, because others may load the machine
  for (const char* pattern : {"(a|aa)+$", "(a*)*b", "(a+)+b", "(?:a?){30}a{30}b"})
    EXPECT_THROW(matches(Regex(pattern, "t"), std::string(5000, 'a') + "c"), Error) << pattern;
  EXPECT_LT(std::clock() - begin, 20 * CLOCKS_PER_SEC);
  EXPECT_THROW(Regex(std::string(20000, 'a'), "t"), Error);
}

TEST(Regex, EndsAtAStop) {
  std::stop_source source;
  source.request_stop();
  const base::BindStop bind(source.get_token());
  try {
    matches(Regex("(a|aa)+$", "here"), std::string(40, 'a') + "b");
    ADD_FAILURE() << "nothing was stopped";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled) << e.what();
  }
}

TEST(Regex, PublishedPatternsTakeLongTexts) {
  const Regex gpt4(
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
      "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      "t");
  std::string text;
  for (int i = 0; i < 10000; ++i) text += "It's 2026,\n\n  and \xc3\xa9t\xc3\xa9\t(!!) x\n";
  EXPECT_GT(matches(gpt4, text).size(), 100000u);
  for (const char* one : {" ", "a", "\n", "!", "1"}) {
    text.clear();
    for (int i = 0; i < 200000; ++i) text += one;
    EXPECT_FALSE(matches(gpt4, text).empty()) << one;
  }
}

}  // namespace
}  // namespace tessera::tokenizer
