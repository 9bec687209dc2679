#include "base/find_text.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace tessera::base {
namespace {

TEST(FindText, FindsWhatTheStandardLibraryFinds) {
  std::mt19937 random(3);
  const auto word = [&](size_t most) {
    std::string made(random() % most, 'a');
    for (char& c : made) c = static_cast<char>('a' + random() % 2);
    return made;
  };
  for (int round = 0; round < 2000; ++round) {
    const std::string text = word(40), part = word(6);
    const size_t from = random() % 45;
    EXPECT_EQ(find_text(text, part, from), text.find(part, from)) << text << " " << part;
    EXPECT_EQ(find_last_text(text, part), text.rfind(part)) << text << " " << part;
  }
}

TEST(FindText, FindsAcrossItsWindows) {
  for (const size_t at : {size_t{1} << 20, (size_t{1} << 20) - 2, size_t{3} << 20}) {
    std::string text(size_t{4} << 20, 'a');
    text.replace(at, 3, "bcd");
    EXPECT_EQ(find_text(text, "bcd"), at);
    EXPECT_EQ(find_last_text(text, "bcd"), at);
    constexpr size_t kLong = size_t{2} << 20;
    const std::string part = std::string(kLong, 'a') + "b";
    EXPECT_EQ(find_text(text, part), at < kLong ? std::string::npos : at - kLong);
  }
}

}  // namespace
}  // namespace tessera::base
