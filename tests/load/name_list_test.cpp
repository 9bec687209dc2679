#include "load/name_list.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tessera::load {
namespace {

TEST(ListedNames, DrawsNumbersTogether) {
  std::vector<NamedItem> items;
  for (int b = 0; b < 12; ++b)
    for (int e = 0; e < 8; ++e)
      items.push_back({"blocks." + std::to_string(b) + ".experts." + std::to_string(e) + ".w", ""});
  EXPECT_EQ(listed_names(items), "'blocks.{0-11}.experts.{0-7}.w'");
}

TEST(ListedNames, KeepsNamesWithoutNumbersAndOtherNotesApart) {
  EXPECT_EQ(listed_names({{"up", " [2]"}, {"a.1", " [3]"}, {"a.2", " [3]"}, {"a.3", " [4]"}}),
            "'up' [2], 'a.{1-2}' [3], 'a.3' [4]");
  EXPECT_EQ(listed_names({}), "");
}

TEST(ListedNames, SplitsWhereACombinationIsAbsent) {
  EXPECT_EQ(listed_names({{"a.0.b.0", ""}, {"a.0.b.1", ""}, {"a.1.b.0", ""}}),
            "'a.0.b.{0-1}', 'a.1.b.0'");
  EXPECT_EQ(listed_names({{"a.1", ""}, {"a.4", ""}, {"a.9", ""}}), "'a.{1,4,9}'");
}

TEST(ListedNames, LeavesOddNumbersAsTheyAre) {
  EXPECT_EQ(listed_names({{"a.007", ""}, {"a.12345678901", ""}}), "'a.007', 'a.12345678901'");
  EXPECT_EQ(listed_names({{"a\n1", ""}}), "'a?1'");
}

TEST(ListedNames, EndsWhenNumbersHaveNoOrder) {
  std::vector<NamedItem> items;
  constexpr int64_t kItems = 20000;
  for (int64_t i = 0; i < kItems; ++i)
    items.push_back({fmt::format("{}.{}.x", i, i * 7919 % kItems), ""});
  const std::string text = listed_names(items);
  EXPECT_LT(text.size(), 10000u);
  EXPECT_NE(text.find(" and 19800 more"), std::string::npos) << text.substr(text.size() - 40);
}

TEST(ListedNames, TakesNamesOfManyNumbers) {
  std::string zeros, ones;
  for (int i = 0; i < 100000; ++i) zeros += "0.", ones += "1.";
  const std::string text = listed_names({{zeros + "a", ""}, {ones + "a", ""}, {zeros + "b", ""}});
  EXPECT_LT(text.size(), 1000u);
}

TEST(ListedNames, EndsWhenNamesHaveNoOrder) {
  std::vector<NamedItem> items;
  for (int i = 0; i < 1000; ++i)
    items.push_back({std::string(static_cast<size_t>(i % 300 + 1), 'x') +
                         std::string(static_cast<size_t>(i / 300), 'y'),
                     ""});
  const std::string text = listed_names(items);
  EXPECT_LT(text.size(), 60000u);
  EXPECT_NE(text.find(" and 800 more"), std::string::npos) << text.substr(text.size() - 40);
}

}  // namespace
}  // namespace tessera::load
