#include "media/webp.h"

#include <gtest/gtest.h>
#include <webp/decode.h>
#include <webp/mux.h>

#include <filesystem>

#include "base/stop.h"
#include "media/exif.h"
#include "tessera/error.h"

namespace tessera::media {
namespace {

Image speckled(int width, int height) {
  Image image{width, height, {}};
  for (int i = 0; i < width * height * 3; ++i)
    image.rgb.push_back(static_cast<uint8_t>(i * 37 % 251));
  return image;
}

TEST(WebP, LosesNothing) {
  for (const auto& [width, height] : {std::pair{1, 1}, {17, 9}, {64, 32}}) {
    const Image image = speckled(width, height);
    for (const std::string& bytes :
         {encode_webp(image), encode_webp(image, {{"parameters", "a"}})}) {
      int w = 0, h = 0;
      uint8_t* const rgb =
          WebPDecodeRGB(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), &w, &h);
      ASSERT_NE(rgb, nullptr);
      EXPECT_EQ(w, width);
      EXPECT_EQ(h, height);
      EXPECT_EQ(std::vector<uint8_t>(rgb, rgb + image.rgb.size()), image.rgb);
      WebPFree(rgb);
    }
  }
}

TEST(WebP, HoldsTheParameters) {
  const std::string bytes = encode_webp(speckled(4, 4), {{"parameters", "1 < 2 & crème"}});
  const WebPData whole{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  WebPMux* const mux = WebPMuxCreate(&whole, 0);
  WebPData xmp{};
  ASSERT_EQ(WebPMuxGetChunk(mux, "XMP ", &xmp), WEBP_MUX_OK);
  const std::string text(reinterpret_cast<const char*>(xmp.bytes), xmp.size);
  EXPECT_NE(text.find("parameters: 1 &lt; 2 &amp; crème"), std::string::npos) << text;
  WebPData exif{};
  ASSERT_EQ(WebPMuxGetChunk(mux, "EXIF", &exif), WEBP_MUX_OK);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(exif.bytes), exif.size),
            exif_data({{"parameters", "1 < 2 & crème"}}));
  WebPMuxDelete(mux);
}

TEST(WebP, RefusesWhatDoesNotFit) {
  EXPECT_THROW(encode_webp({0, 4, {}}), Error);
  EXPECT_THROW(encode_webp({2, 2, {1, 2, 3}}), Error);
  EXPECT_THROW(encode_webp({16384, 1, std::vector<uint8_t>(16384 * 3)}), Error);
}

TEST(WebP, IsNotFinishedAfterAStop) {
  std::stop_source source;
  source.request_stop();
  const base::BindStop bind(source.get_token());
  try {
    encode_webp(speckled(300, 200));
    ADD_FAILURE() << "nothing was stopped";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled) << e.what();
  }
}

TEST(WebP, WritesAWholeFileOrNone) {
  const auto folder = std::filesystem::temp_directory_path() / "tessera-webp-test";
  std::filesystem::create_directory(folder);
  write_webp((folder / "a.webp").string(), speckled(8, 8));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  EXPECT_THROW(write_webp((folder / "none/a.webp").string(), speckled(8, 8)), Error);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tessera::media
