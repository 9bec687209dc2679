#include "media/png.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "base/stop.h"
#include "tessera/error.h"

namespace tessera::media {
namespace {

using tensor::Tensor;

Image gradient(int width, int height) {
  Image image{width, height, std::vector<uint8_t>(size_t(width) * size_t(height) * 3)};
  for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = uint8_t(i * 7);
  return image;
}

// Type and body of each chunk.
std::vector<std::pair<std::string, std::string>> chunks(const std::string& png) {
  std::vector<std::pair<std::string, std::string>> out;
  for (size_t at = 8; at + 12 <= png.size();) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | uint8_t(png[at + i]);
    out.emplace_back(png.substr(at + 4, 4), png.substr(at + 8, length));
    at += 12 + length;
  }
  return out;
}

}  // namespace

TEST(Png, ReadsWhatWasWritten) {
  const std::string path =
      (std::filesystem::temp_directory_path() / "tessera_png_test.png").string();
  const Image image = gradient(13, 7);
  write_png(path, image, {{"parameters", "steps 25, seed 3"}});
  const Image back = read_png(path);
  EXPECT_EQ(back.width, 13);
  EXPECT_EQ(back.height, 7);
  EXPECT_EQ(back.rgb, image.rgb);
  std::filesystem::remove(path);
}

TEST(Png, CarriesTexts) {
  const std::string png =
      encode_png(gradient(2, 2), {{"parameters", "seed 3"}, {"prompt", "caf\xc3\xa9"}});
  EXPECT_EQ(decode_png(png, "memory").rgb, gradient(2, 2).rgb) << "the checksums hold";
  const auto all = chunks(png);
  EXPECT_EQ(all[0].first, "IHDR");
  EXPECT_EQ(all[1].first, "tEXt");
  EXPECT_EQ(all[1].second, std::string("parameters\0seed 3", 17));
  EXPECT_EQ(all[2].first, "iTXt");
  EXPECT_EQ(all[2].second, std::string("prompt\0\0\0\0\0caf\xc3\xa9", 16));
}

TEST(Png, RefusesKeysThatPngForbids) {
  for (const std::string& key :
       {std::string(), std::string(80, 'x'), std::string(" x"), std::string("\n")})
    EXPECT_THROW(encode_png(gradient(1, 1), {{key, "v"}}), Error);
}

TEST(Png, RefusesSizesThatDoNotFit) {
  EXPECT_THROW(encode_png(Image{}), Error);
  EXPECT_THROW(encode_png(Image{2, 2, std::vector<uint8_t>(11)}), Error);
}

TEST(Png, IsNotFinishedAfterAStop) {
  std::stop_source source;
  source.request_stop();
  const base::BindStop bind(source.get_token());
  try {
    encode_png(gradient(300, 200));
    ADD_FAILURE() << "nothing was stopped";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled) << e.what();
  }
}

TEST(Png, RefusesDamage) {
  const std::string good = encode_png(gradient(16, 16));
  EXPECT_THROW(decode_png("", "x"), Error);
  EXPECT_THROW(decode_png("GIF89a", "x"), Error);
  EXPECT_THROW(decode_png(good.substr(0, 20), "x"), Error);
  EXPECT_THROW(decode_png(good.substr(0, good.size() / 2), "x"), Error);
}

TEST(Png, RoundsAndClamps) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values = {0, 1, 0.5f, -3, 2, nan};
  const Image image = to_image(Tensor::from(std::span<const float>(values), {3, 1, 2}));
  EXPECT_EQ(image.width, 2);
  EXPECT_EQ(image.height, 1);
  EXPECT_EQ(image.rgb, (std::vector<uint8_t>{0, 128, 255, 255, 0, 0}));
  EXPECT_THROW(to_image(Tensor::zeros({4, 2, 2}, tensor::DType::f32)), Error);
  EXPECT_THROW(to_image(Tensor::zeros({3, 2, 2}, tensor::DType::u8)), Error);
}

}  // namespace tessera::media
