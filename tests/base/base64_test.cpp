#include "base/base64.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::base {
namespace {

TEST(Base64, GivesTheBytes) {
  EXPECT_EQ(from_base64("aGVsbG8=", "t"), "hello");
  EXPECT_EQ(from_base64("", "t"), "");
  EXPECT_THROW(from_base64("aGVs*G8=", "t"), Error);
  EXPECT_THROW(from_base64("abc", "t"), Error);
}

}  // namespace
}  // namespace tessera::base
