#include "base/seeded_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

namespace tessera::base {
namespace {

TEST(SeededHash, IsTheSameForTheSameKey) {
  const SeededHash hash;
  EXPECT_EQ(hash(std::string_view("a text of more than eight bytes")),
            hash(std::string("a text of more than eight bytes")));
  EXPECT_EQ(hash(uint64_t{7}), hash(uint64_t{7}));
  EXPECT_NE(hash(std::string_view("a")), hash(std::string_view(std::string("a\0", 2))));
}

// Keys with the same place in a table of known size.
TEST(SeededHash, SpreadsKeysThatWereChosen) {
  constexpr uint64_t kPlaces = 10007;
  std::map<uint64_t, int> numbers, texts;
  for (uint64_t i = 0; i < kPlaces; ++i) {
    ++numbers[SeededHash()(i * kPlaces) % kPlaces];
    ++texts[SeededHash()(std::string_view(std::to_string(i * kPlaces))) % kPlaces];
  }
  for (const auto& found : {numbers, texts}) {
    const auto most = std::ranges::max_element(found, {}, [](const auto& at) { return at.second; });
    EXPECT_LT(most->second, 30);
  }
}

}  // namespace
}  // namespace tessera::base
