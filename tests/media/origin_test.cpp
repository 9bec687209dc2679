#include "media/origin.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "media/jpeg.h"
#include "media/png.h"
#include "media/video.h"
#include "media/webp.h"
#include "tessera/error.h"

namespace tessera::media {
namespace {

namespace fs = std::filesystem;
using Texts = std::map<std::string, std::string>;

class OriginTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tessera-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  bool is_image(const std::string& bytes) const {
    return is_own_image(base::InputFile(file(bytes)));
  }
  bool is_video(const std::string& bytes) const {
    return is_own_video(base::InputFile(file(bytes)));
  }
  std::string file(const std::string& bytes) const {
    std::ofstream(folder_ / "x", std::ios::binary) << bytes;
    return (folder_ / "x").string();
  }
  fs::path folder_;
};

const Image kImage{16, 16, std::vector<uint8_t>(16 * 16 * 3, 100)};
const Texts kMark{{"Software", "Tessera 0.1.0"}};
const Texts kOthers{{"Software", "GIMP"}, {"parameters", "a mosaic of Tessera 5"}};

TEST_F(OriginTest, ImagesNameTheProgram) {
  const Texts long_text{{"Software", "Tessera 0.1.0"}, {"parameters", std::string(100000, 'x')}};
  for (const auto encode : {encode_png, encode_webp, encode_jpeg}) {
    EXPECT_TRUE(is_image(encode(kImage, kMark)));
    EXPECT_TRUE(is_image(encode(kImage, long_text)));
    EXPECT_FALSE(is_image(encode(kImage, kOthers)));
    EXPECT_FALSE(is_image(encode(kImage, {})));
    EXPECT_FALSE(is_video(encode(kImage, kMark)));
  }
}

TEST_F(OriginTest, VideosNameTheProgram) {
  try {
    check_mp4();
  } catch (const Error& e) {
    GTEST_SKIP() << e.what();
  }
  const auto encode = [](const Texts& texts) { return encode_mp4({kImage, kImage}, 8, texts); };
  EXPECT_TRUE(is_video(encode(kMark)));
  EXPECT_TRUE(is_video(encode({{"parameters", "a\nSteps: 1, Version: Tessera 0.1.0"}})));
  EXPECT_FALSE(is_video(encode({{"parameters", "a\nSteps: 1, Version: v1.9"}})));
  EXPECT_FALSE(is_video(encode({})));
  EXPECT_FALSE(is_image(encode(kMark)));
}

TEST_F(OriginTest, DamagedFilesAreNone) {
  for (const auto encode : {encode_png, encode_webp, encode_jpeg}) {
    const std::string whole = encode(kImage, kMark);
    for (size_t size = 0; size < whole.size(); size += 61) {
      std::string cut = whole.substr(0, size);
      (void)is_image(cut);
      (void)is_video(cut);
      for (size_t at = 2; at < std::min<size_t>(whole.size(), 48); ++at) {
        std::string wrong = whole;
        wrong[at] = static_cast<char>(size * 31 + at);
        (void)is_image(wrong);
      }
    }
    EXPECT_FALSE(is_image(whole.substr(0, 12)));
  }
  EXPECT_FALSE(is_image(""));
  EXPECT_FALSE(
      is_video(std::string("\0\0\0\x08"
                           "ftyp\0\0\0\0moov",
                           16)));
}

}  // namespace
}  // namespace tessera::media
