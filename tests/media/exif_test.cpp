#include "media/exif.h"

#include <gtest/gtest.h>

namespace tessera::media {
namespace {

TEST(Exif, IsATiffWithOneComment) {
  const std::string block = exif_data({{"parameters", "a\xff"}});
  const std::string expected(
      "MM\0*\0\0\0\x08"
      "\0\x01\x87\x69\0\x04\0\0\0\x01\0\0\0\x1a\0\0\0\0"
      "\0\x01\x92\x86\0\x07\0\0\0\x0c\0\0\0\x2c\0\0\0\0"
      "UNICODE\0\0a\xff\xfd",
      8 + 18 + 18 + 12);
  EXPECT_EQ(block, expected);
}

TEST(Exif, NamesTheSoftware) {
  const std::string both = exif_data({{"Software", "Tessera 0.1.0"}, {"parameters", "a"}});
  const std::string expected(
      "MM\0*\0\0\0\x08"
      "\0\x02\x01\x31\0\x02\0\0\0\x0e\0\0\0\x26\x87\x69\0\x04\0\0\0\x01\0\0\0\x34\0\0\0\0"
      "Tessera 0.1.0\0"
      "\0\x01\x92\x86\0\x07\0\0\0\x0a\0\0\0\x46\0\0\0\0"
      "UNICODE\0\0a",
      8 + 30 + 14 + 18 + 10);
  EXPECT_EQ(both, expected);
  EXPECT_EQ(exif_software(both), "Tessera 0.1.0");
  EXPECT_EQ(exif_software(exif_data({{"Software", "abc"}})), "abc");
  EXPECT_EQ(exif_software(exif_data({{"parameters", "Tessera 1"}})), "");
  EXPECT_EQ(exif_data({}), "");
  for (size_t size = 0; size < both.size(); ++size) (void)exif_software(both.substr(0, size));
}

TEST(Exif, FitsASegment) {
  EXPECT_EQ(exif_data({{"parameters", std::string(100000, 'x')}}).size(), 44 + 8 + 2 * 32000u);
}

}  // namespace
}  // namespace tessera::media
