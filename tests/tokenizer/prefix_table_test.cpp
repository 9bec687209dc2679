#include "tokenizer/prefix_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tessera/error.h"

namespace tessera::tokenizer {
namespace {

TEST(PrefixTable, FindsEveryTextThatStandsAtTheBeginning) {
  const PrefixTable table({{"abc", 3}, {"a", 1}, {"ab", 2}, {"b", 4}, {"", 9}, {"ab", 7}}, "here");
  std::vector<int32_t> found;
  table.each(table.places("abd")[0], [&](size_t, int32_t value) { found.push_back(value); });
  EXPECT_EQ(found, (std::vector<int32_t>{2, 1}));
  const auto longest = [](const PrefixTable& among, std::string_view text) {
    return among.longest(among.places(text)[0]);
  };
  EXPECT_EQ(longest(table, "abcabc"), (std::pair<size_t, int32_t>{3, 3}));
  EXPECT_EQ(longest(table, "a"), (std::pair<size_t, int32_t>{1, 1}));
  EXPECT_EQ(longest(table, "xab").first, 0u);
  EXPECT_TRUE(table.places("").empty());
  EXPECT_TRUE(PrefixTable().empty());
  EXPECT_EQ(longest(PrefixTable(), "ab").first, 0u);
  EXPECT_EQ(longest(PrefixTable({{"\xff\xff", 5}}, "here"), "\xff\xff\xff").second, 5);
}

TEST(PrefixTable, FindsWhatAPlainSearchFinds) {
  std::mt19937 random(7);
  const auto word = [&](size_t most) {
    std::string made(random() % most + 1, 'a');
    for (char& c : made) c = static_cast<char>('a' + random() % 3);
    return made;
  };
  for (int round = 0; round < 50; ++round) {
    PrefixTable::Texts texts;
    for (int i = 0; i < 20; ++i) texts.emplace_back(word(6), i);
    const std::string text = word(200);
    const PrefixTable table(texts, "here");
    const auto places = table.places(text);
    for (size_t at = 0; at < text.size(); ++at) {
      std::map<size_t, int32_t, std::greater<>> expected;  // the first of equal texts counts
      for (const auto& [one, value] : texts)
        if (text.compare(at, one.size(), one) == 0) expected.emplace(one.size(), value);
      std::map<size_t, int32_t, std::greater<>> found;
      table.each(places[at], [&](size_t bytes, int32_t value) { found.emplace(bytes, value); });
      ASSERT_EQ(found, expected) << text << " at " << at;
      ASSERT_EQ(table.longest(places[at]).first, expected.empty() ? 0 : expected.begin()->first);
    }
  }
}

TEST(PrefixTable, RefusesWhatIsLongerThanAnyToken) {
  EXPECT_THROW(PrefixTable({{std::string(1000, 'a'), 1}}, "here"), Error);
}

}  // namespace
}  // namespace tessera::tokenizer
