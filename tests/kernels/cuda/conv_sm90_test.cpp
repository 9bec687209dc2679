#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include "kernels/cuda/conv_sm90.h"
#include "kernels/cuda/finish.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/conv_sm90.cu"
#endif

namespace tessera::kernels {
namespace {

alignas(16) const unsigned char kMemory[64] = {};

cuda::ImageProduct product() {
  return {kMemory, {8 * 8 * 8, 1, 8, 8, 8}, false, 3, 3, 1, 1, 8, 8, kMemory};
}

TEST(CudaConvSm90, TakesWholeWordsOfChannels) {
  EXPECT_TRUE(cuda::serves_sm90(product()));
  for (auto change : {+[](cuda::ImageProduct& p) { p.images.channels = 12; },
                      +[](cuda::ImageProduct& p) { p.x = kMemory + 2; },
                      +[](cuda::ImageProduct& p) { p.w = kMemory + 8; },
                      +[](cuda::ImageProduct& p) { p.images.images = 2, p.images.stride = 516; }}) {
    cuda::ImageProduct p = product();
    change(p);
    EXPECT_FALSE(cuda::serves_sm90(p));
  }
}

TEST(CudaConvSm90, AMapOfImagesHasTheirPixelsAndNoOthers) {
  const cuda::MapShape map = cuda::image_map_shape({5000, 2, 9, 7, 72}, 16, 8);
  EXPECT_EQ(map.rank, 4);
  EXPECT_EQ(map.sizes, (std::array<uint64_t, 4>{72, 7, 9, 2}));
  EXPECT_EQ(map.strides, (std::array<uint64_t, 3>{144, 1008, 10000}));
  EXPECT_EQ(map.box, (std::array<uint32_t, 4>{64, 16, 8, 1}));
  EXPECT_STREQ(cuda::wrong_with(map, 0), "a stride is no multiple of the one before");
  EXPECT_EQ(cuda::wrong_with(cuda::image_map_shape({9 * 7 * 72, 2, 9, 7, 72}, 16, 8), 0), nullptr);
  EXPECT_NE(cuda::wrong_with(cuda::image_map_shape({504, 1, 9, 7, 8}, 512, 8), 0), nullptr);
}

}  // namespace
}  // namespace tessera::kernels
