#include "fused/device_layers.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::fused {
namespace {

struct NoLayers final : DeviceLayers {
  void run(std::span<const DeviceLayer>) override {}
};

TEST(DeviceLayers, ATestReplacesTheOperator) {
  int64_t asked = 0;
  replace_device_layers({[&](const DeviceSize& size, const DevicePeers& peers) {
                           asked = size.tokens + peers.rank;
                           return std::make_unique<NoLayers>();
                         },
                         [](const DeviceSize& size) { return size.tokens * 64; }});
  EXPECT_NE(open_device_layers({.tokens = 7}, {.rank = 2}), nullptr);
  EXPECT_EQ(asked, 9);
  EXPECT_EQ(device_buffer_bytes({.tokens = 7}), 448);
  replace_device_layers({});
}

// Without CUDA for want of kernels, and with CUDA for the number of ranks or for want of a GPU.
TEST(DeviceLayers, AProgramWithoutThemRefuses) {
  try {
    (void)open_device_layers({.ranks = 1000});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("GPU"), std::string::npos) << error.what();
  }
}

TEST(DeviceLayers, SizesOfOneFormAreEqual) {
  const DeviceSize one{.ranks = 2, .owner = {0, 1}, .tokens = 3, .hidden = 8, .inner = 8};
  DeviceSize other = one;
  EXPECT_TRUE(one == other);
  other.weights = tensor::DType::bf16;
  EXPECT_FALSE(one == other);
}

}  // namespace
}  // namespace tessera::fused
