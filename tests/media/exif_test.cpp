#include "media/exif.h"

#include <gtest/gtest.h>

namespace tessera::media {
namespace {

TEST(Exif, IsATiffWithOneComment) {
  const std::string block = exif_comment("a\xff");
  const std::string expected(
      "MM\0*\0\0\0\x08"
      "\0\x01\x87\x69\0\x04\0\0\0\x01\0\0\0\x1a\0\0\0\0"
      "\0\x01\x92\x86\0\x07\0\0\0\x0c\0\0\0\x2c\0\0\0\0"
      "UNICODE\0\0a\xff\xfd",
      8 + 18 + 18 + 12);
  EXPECT_EQ(block, expected);
}

TEST(Exif, FitsASegment) {
  EXPECT_EQ(exif_comment(std::string(100000, 'x')).size(), 44 + 8 + 2 * 32000u);
}

}  // namespace
}  // namespace tessera::media
