#include "base/member.h"

#include <gtest/gtest.h>

namespace tessera::base {
namespace {

TEST(Member, IsWhereItIs) {
  const Json json = {{"a", {1, 2}}};
  EXPECT_EQ(&member(json, "a"), &json["a"]);
  EXPECT_TRUE(member(json, "b").is_null());
  EXPECT_TRUE(member(Json(3), "a").is_null());
}

}  // namespace
}  // namespace tessera::base
