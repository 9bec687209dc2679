#include <gtest/gtest.h>

#include "tessera/error.h"
#include "tessera/input_image.h"

namespace tessera {
namespace {

TEST(Margins, AreReadForAllSidesOrEach) {
  EXPECT_EQ(parse_margins("64").right, 64);
  const Margins m = parse_margins("1,2,3,4");
  EXPECT_EQ(m.left, 1);
  EXPECT_EQ(m.top, 2);
  EXPECT_EQ(m.right, 3);
  EXPECT_EQ(m.bottom, 4);
  for (const char* bad : {"", "1,2", "1,2,3", "1,2,3,4,5", "-1", "x", "1,2,3,", "20000", " 1"})
    EXPECT_THROW(parse_margins(bad), Error) << bad;
}

}  // namespace
}  // namespace tessera
