#include "base/digest.h"

#include <gtest/gtest.h>

namespace tessera::base {
namespace {

std::string of(std::string_view bytes) {
  Digest digest;
  digest.add(bytes);
  return digest.text();
}

// Values published with the function.
TEST(Digest, IsFnv1a) {
  EXPECT_EQ(of(""), "cbf29ce484222325");
  EXPECT_EQ(of("a"), "af63dc4c8601ec8c");
  EXPECT_EQ(of("foobar"), "85944171f73967e8");
}

TEST(Digest, PiecesCountAsOne) {
  Digest digest;
  digest.add("foo");
  digest.add("bar");
  EXPECT_EQ(digest.text(), of("foobar"));
}

}  // namespace
}  // namespace tessera::base
