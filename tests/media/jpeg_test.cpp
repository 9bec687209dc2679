#include "media/jpeg.h"

#include <gtest/gtest.h>
#include <turbojpeg.h>

#include <cstdlib>
#include <filesystem>

#include "media/exif.h"
#include "tessera/error.h"

namespace tessera::media {
namespace {

Image slope(int width, int height) {
  Image image{width, height, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < 3; ++c)
        image.rgb.push_back(static_cast<uint8_t>((c * 60 + 2 * x + 3 * y) % 200));
  return image;
}

std::vector<uint8_t> decoded(const std::string& bytes, int& width, int& height) {
  tjhandle const reader = tjInitDecompress();
  int kind = 0, space = 0;
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  EXPECT_EQ(tjDecompressHeader3(reader, data, bytes.size(), &width, &height, &kind, &space), 0);
  std::vector<uint8_t> rgb(size_t(width) * size_t(height) * 3);
  EXPECT_EQ(tjDecompress2(reader, data, bytes.size(), rgb.data(), width, 0, height, TJPF_RGB, 0),
            0);
  tjDestroy(reader);
  return rgb;
}

TEST(Jpeg, IsNearTheImage) {
  for (const auto& [width, height] : {std::pair{1, 1}, {17, 9}, {64, 32}}) {
    const Image image = slope(width, height);
    int w = 0, h = 0;
    const std::vector<uint8_t> rgb = decoded(encode_jpeg(image, {{"parameters", "p"}}), w, h);
    ASSERT_EQ(std::pair(w, h), std::pair(width, height));
    for (size_t i = 0; i < rgb.size(); ++i)
      EXPECT_LT(std::abs(int(rgb[i]) - int(image.rgb[i])), 24) << i;
  }
}

TEST(Jpeg, HoldsTheParameters) {
  const std::string bytes = encode_jpeg(slope(8, 8), {{"parameters", "cr\xc3\xa8me"}});
  const size_t at = bytes.find("Exif");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(bytes.substr(at - 4, 2), "\xff\xe1");
  const std::string exif = exif_data({{"parameters", "cr\xc3\xa8me"}});
  EXPECT_EQ(bytes.substr(at + 6, exif.size()), exif);
  EXPECT_EQ(encode_jpeg(slope(8, 8)).find("Exif"), std::string::npos);
}

TEST(Jpeg, RefusesWhatDoesNotFit) {
  EXPECT_THROW(encode_jpeg({0, 4, {}}), Error);
  EXPECT_THROW(encode_jpeg({4, 4, {1, 2, 3}}), Error);
  EXPECT_THROW(encode_jpeg({70000, 1, std::vector<uint8_t>(210000)}), Error);
}

TEST(Jpeg, IsWrittenWhole) {
  const auto path = std::filesystem::temp_directory_path() / "tessera_jpeg_test.jpg";
  write_jpeg(path.string(), slope(8, 8));
  EXPECT_EQ(std::filesystem::file_size(path), encode_jpeg(slope(8, 8)).size());
  std::filesystem::remove(path);
  EXPECT_THROW(write_jpeg("/no/such/folder/x.jpg", slope(8, 8)), Error);
}

}  // namespace
}  // namespace tessera::media
