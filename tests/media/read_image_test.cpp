#include "media/read_image.h"

#include <gtest/gtest.h>

#include <functional>

#include "media/jpeg.h"
#include "media/webp.h"
#include "tessera/error.h"

namespace tessera::media {
namespace {

Image slope(int width, int height) {
  Image image{width, height, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (const int level : {10 * x, 12 * y, 40}) image.rgb.push_back(static_cast<uint8_t>(level));
  return image;
}

// Exif data of either byte order with only an orientation in the first directory.
std::string exif_of(int orientation, bool little) {
  const auto number = [&](unsigned value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i)
      text += static_cast<char>(value >> 8 * (little ? i : bytes - 1 - i) & 0xff);
    return text;
  };
  return (little ? "II" : "MM") + number(42, 2) + number(8, 4) + number(1, 2) + number(0x112, 2) +
         number(3, 2) + number(1, 4) + number(static_cast<unsigned>(orientation), 2) +
         number(0, 2) + number(0, 4);
}

std::string jpeg_with(const Image& image, const std::string& exif) {
  std::string bytes = encode_jpeg(image);
  const std::string body = std::string("Exif\0\0", 6) + exif;
  const size_t length = body.size() + 2;
  return bytes.insert(2, std::string("\xff\xe1") + static_cast<char>(length >> 8) +
                             static_cast<char>(length & 0xff) + body);
}

std::string refusal_of(const std::string& bytes) {
  try {
    read_image(bytes, "x");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    const std::string said = e.what();
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    return said;
  }
  return "";
}

// A PNG header with these sides and a valid checksum.
std::string png_of_sides(uint32_t width, uint32_t height) {
  std::string png = encode_png(slope(2, 2));
  for (int i = 0; i < 4; ++i) {
    png[16 + static_cast<size_t>(i)] = static_cast<char>(width >> (24 - 8 * i) & 0xff);
    png[20 + static_cast<size_t>(i)] = static_cast<char>(height >> (24 - 8 * i) & 0xff);
  }
  uint32_t crc = 0xffffffffu;
  for (size_t i = 12; i < 29; ++i) {
    crc ^= static_cast<unsigned char>(png[i]);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  crc = ~crc;
  for (int i = 0; i < 4; ++i)
    png[29 + static_cast<size_t>(i)] = static_cast<char>(crc >> (24 - 8 * i) & 0xff);
  return png;
}

}  // namespace

TEST(ReadImage, ReadsTheThreeFormats) {
  const Image image = slope(12, 7);
  for (const std::string& bytes : {encode_png(image, {{"parameters", "none"}}),
                                   encode_webp(image, {{"parameters", "none"}})}) {
    const ReadImage read = read_image(bytes, "x");
    EXPECT_EQ(read.image.width, 12);
    EXPECT_EQ(read.image.rgb, image.rgb);
    EXPECT_TRUE(read.alpha.empty());
  }
  const Image near = read_image(encode_jpeg(image, {{"parameters", "none"}}), "x").image;
  ASSERT_EQ(near.rgb.size(), image.rgb.size());
  for (size_t i = 0; i < near.rgb.size(); ++i) EXPECT_NEAR(near.rgb[i], image.rgb[i], 12) << i;
}

TEST(ReadImage, TurnsAsTheOrientationSays) {
  const Image image = slope(12, 7);
  const auto upright = [&](int orientation, bool little) {
    return read_image(jpeg_with(image, exif_of(orientation, little)), "x").image;
  };
  const Image plain = read_image(encode_jpeg(image), "x").image;
  const auto at = [](const Image& of, int x, int y) {
    return std::vector<uint8_t>(&of.rgb[size_t(y * of.width + x) * 3],
                                &of.rgb[size_t(y * of.width + x) * 3] + 3);
  };
  // Where the pixel (x, y) of the file is seen, by the standard's eight cases.
  const std::function<std::pair<int, int>(int, int)> places[] = {[](int x, int y) {
                                                                   return std::pair{x, y};
                                                                 },
                                                                 [](int x, int y) {
                                                                   return std::pair{11 - x, y};
                                                                 },
                                                                 [](int x, int y) {
                                                                   return std::pair{11 - x, 6 - y};
                                                                 },
                                                                 [](int x, int y) {
                                                                   return std::pair{x, 6 - y};
                                                                 },
                                                                 [](int x, int y) {
                                                                   return std::pair{y, x};
                                                                 },
                                                                 [](int x, int y) {
                                                                   return std::pair{6 - y, x};
                                                                 },
                                                                 [](int x, int y) {
                                                                   return std::pair{6 - y, 11 - x};
                                                                 },
                                                                 [](int x, int y) {
                                                                   return std::pair{y, 11 - x};
                                                                 }};
  for (int orientation = 1; orientation <= 8; ++orientation)
    for (const bool little : {false, true}) {
      const Image seen = upright(orientation, little);
      ASSERT_EQ(seen.width, orientation < 5 ? 12 : 7) << orientation;
      for (const auto& [x, y] : {std::pair{0, 0}, {11, 0}, {3, 5}, {11, 6}}) {
        const auto [to_x, to_y] = places[orientation - 1](x, y);
        EXPECT_EQ(at(seen, to_x, to_y), at(plain, x, y)) << orientation << " " << x << " " << y;
      }
    }
}

TEST(ReadImage, RefusesBombsBeforeTheyTakeMemory) {
  EXPECT_EQ(refusal_of(png_of_sides(100000, 100000)),
            "'x' has 100000 x 100000 pixels; expected at most 2^26, as 8192 x 8192");
  EXPECT_NE(refusal_of(png_of_sides(0x7fffffff, 0x7fffffff)), "");
  EXPECT_NE(refusal_of(png_of_sides(0, 5)), "");
}

TEST(ReadImage, RefusesWhatIsNoImageOrIsTruncated) {
  EXPECT_EQ(refusal_of(""), "'x' is no PNG, JPEG or WebP image: it is empty");
  EXPECT_EQ(refusal_of("GIF89a......"), "'x' is no PNG, JPEG or WebP image");
  const Image image = slope(40, 30);
  for (const std::string& bytes : {encode_png(image), encode_jpeg(image), encode_webp(image)})
    for (size_t size = 0; size + 2 < bytes.size(); size += 1 + size / 8)
      EXPECT_NE(refusal_of(bytes.substr(0, size)), "") << size << " of " << bytes.size();
}

TEST(ReadImage, OutlivesDamage) {
  const Image image = slope(20, 15);
  for (const std::string& bytes : {encode_png(image), encode_jpeg(image), encode_webp(image)})
    for (size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 150)
      for (const char flip : {'\x01', '\x80', '\xff'}) {
        std::string changed = bytes;
        changed[at] = static_cast<char>(changed[at] ^ flip);
        (void)refusal_of(changed);  // an image, or an error of a single line
      }
}

}  // namespace tessera::media
