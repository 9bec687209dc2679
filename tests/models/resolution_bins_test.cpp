#include "models/resolution_bins.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::models {
namespace {

// Results of diffusers: requested height and width, then those of PixArt at a sample_size of 32,
// 64, 128 and 256, then those of HunyuanDiT.
constexpr int64_t kCases[][12] = {
    {1024, 1024, 256, 256, 512, 512, 1024, 1024, 2048, 2048, 1024, 1024},
    {512, 512, 256, 256, 512, 512, 1024, 1024, 2048, 2048, 1024, 1024},
    {256, 256, 256, 256, 512, 512, 1024, 1024, 2048, 2048, 1024, 1024},
    {1000, 700, 304, 208, 608, 416, 1216, 832, 2432, 1664, 1024, 768},
    {720, 1280, 192, 336, 384, 672, 768, 1344, 1536, 2688, 768, 1280},
    {1280, 720, 336, 192, 672, 384, 1344, 768, 2688, 1536, 1280, 768},
    {640, 480, 288, 224, 576, 448, 1152, 896, 2304, 1792, 1024, 768},
    {2048, 2048, 256, 256, 512, 512, 1024, 1024, 2048, 2048, 1280, 1280},
    {300, 1200, 128, 512, 256, 1024, 512, 2048, 1024, 4096, 768, 1280},
    {896, 1152, 224, 288, 448, 576, 896, 1152, 1792, 2304, 864, 1152},
    {1536, 640, 384, 160, 768, 320, 1536, 640, 3072, 1280, 1280, 768},
    {768, 768, 256, 256, 512, 512, 1024, 1024, 2048, 2048, 1024, 1024},
};

TEST(ResolutionBins, AreThoseOfDiffusers) {
  for (const auto& c : kCases) {
    int64_t sample_size = 32;
    for (int i = 2; i < 10; i += 2, sample_size *= 2) {
      const PipelineSpec::Bin bin = pixart_bin(sample_size, c[0], c[1]);
      EXPECT_EQ(bin.height, c[i]) << c[0] << " x " << c[1] << " at " << sample_size;
      EXPECT_EQ(bin.width, c[i + 1]) << c[0] << " x " << c[1] << " at " << sample_size;
      EXPECT_TRUE(bin.resized_back);
    }
    const PipelineSpec::Bin bin = hunyuan_dit_bin(c[0], c[1]);
    EXPECT_EQ(bin.height, c[10]) << c[0] << " x " << c[1];
    EXPECT_EQ(bin.width, c[11]) << c[0] << " x " << c[1];
    EXPECT_FALSE(bin.resized_back);
  }
}

TEST(ResolutionBins, TheLargestTableHasRatiosOfItsOwn) {
  EXPECT_EQ(pixart_bin(256, 1024, 3968).width, 3968);
  EXPECT_EQ(pixart_bin(256, 3328, 1152).height, 3328);
  EXPECT_EQ(pixart_bin(128, 3328, 1152).height, 1728);
}

TEST(ResolutionBins, ASizeOfTheListStays) {
  for (const auto& [height, width] :
       {std::pair<int64_t, int64_t>{1024, 1024}, {864, 1152}, {1280, 768}})
    EXPECT_EQ(hunyuan_dit_bin(height, width).width, width);
}

TEST(ResolutionBins, OtherSampleSizesHaveNoTable) { EXPECT_THROW(pixart_bin(16, 512, 512), Error); }

}  // namespace
}  // namespace tessera::models
