#include "tokenizer/prefix_table.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::tokenizer {
namespace {

TEST(PrefixTable, FindsEveryTextThatStandsAtTheBeginning) {
  const PrefixTable table({{"abc", 3}, {"a", 1}, {"ab", 2}, {"b", 4}, {"", 9}, {"ab", 7}}, "here");
  std::vector<int32_t> found;
  table.each("abd", [&](size_t, int32_t value) { found.push_back(value); });
  EXPECT_EQ(found, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(table.longest("abcabc"), (std::pair<size_t, int32_t>{3, 3}));
  EXPECT_EQ(table.longest("a"), (std::pair<size_t, int32_t>{1, 1}));
  EXPECT_EQ(table.longest("xab").first, 0u);
  EXPECT_EQ(table.longest("").first, 0u);
  EXPECT_TRUE(PrefixTable().empty());
  EXPECT_EQ(PrefixTable({{"\xff\xff", 5}}, "here").longest("\xff\xff\xff").second, 5);
}

TEST(PrefixTable, RefusesWhatIsLongerThanAnyToken) {
  EXPECT_THROW(PrefixTable({{std::string(1000, 'a'), 1}}, "here"), Error);
}

}  // namespace
}  // namespace tessera::tokenizer
