#include "base/input_file.h"
#include "whole/golden.h"

namespace tessera {
namespace {

TEST(Save, TextIsWrittenWhole) {
  const golden::Scratch scratch;
  save_text("twelve bytes", scratch / "x");
  EXPECT_EQ(base::read_file(scratch / "x", 100), "twelve bytes");
  EXPECT_THROW(save_text("x", scratch / "no/such/folder"), Error);
}

TEST(Save, ImagesOfEveryFormat) {
  const golden::Scratch scratch;
  const Image image{4, 2, std::vector<uint8_t>(24, 100), "x"};
  save_png(image, scratch / "x.png", {{"parameters", "seed 1"}});
  save_webp(image, scratch / "x.webp");
  save_jpeg(image, scratch / "x.jpg");
  for (const char* name : {"x.png", "x.webp", "x.jpg"})
    EXPECT_GT(std::filesystem::file_size(scratch / name), 20u) << name;
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(save_png(image, scratch / "y.png", {}, stop.get_token()), Error);
  EXPECT_FALSE(std::filesystem::exists(scratch / "y.png"));
}

}  // namespace
}  // namespace tessera
