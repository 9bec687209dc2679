#include "base/base64.h"

#include <gtest/gtest.h>

#include "tessera/encodings.h"
#include "tessera/error.h"

namespace tessera::base {
namespace {

TEST(Base64, GivesTheBytes) {
  EXPECT_EQ(from_base64("aGVsbG8=", "t"), "hello");
  EXPECT_EQ(from_base64("", "t"), "");
  EXPECT_THROW(from_base64("aGVs*G8=", "t"), Error);
  EXPECT_THROW(from_base64("abc", "t"), Error);
}

TEST(Base64, IsThatOfTheRfc) {
  const std::pair<const char*, const char*> known[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : known) EXPECT_EQ(to_base64(bytes), text);
  EXPECT_EQ(to_base64("\xff\xfe\xfd"), "//79");
}

TEST(Base64, OfEveryLength) {
  std::string bytes;
  for (int i = 0; i < 260; ++i) {
    EXPECT_EQ(from_base64(to_base64(bytes), "t"), bytes) << i;
    bytes += static_cast<char>(i);
  }
}

}  // namespace
}  // namespace tessera::base
