// A GPU's memory for other processes; here a process maps its own once more.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/peer_device.h"
#include "tensor/device_pool.h"
#include "tensor/tensor.h"
#include "tessera/error.h"

namespace tessera::kernels {
namespace {

#if defined(TESSERA_ON_GPU)
using tensor::CopyBox, tensor::CopyWay;

TEST(PeerMemory, MappingsShowTheSamePages) {
  constexpr int64_t kBytes = 5000;
  tensor::DeviceRuntime& gpu = tensor::device_pool()->runtime();
  const auto device = open_peer_device();
  const auto read = [&](const std::byte* from) {
    std::vector<std::byte> bytes(kBytes, std::byte{1});
    gpu.copy({bytes.data(), kBytes, from, kBytes, kBytes}, CopyWay::download, nullptr);
    gpu.synchronise(nullptr);
    return bytes;
  };
  ExportedMemory exported = device->allocate(kBytes);
  EXPECT_EQ(read(exported.memory.get()), std::vector<std::byte>(kBytes));
  const auto mapped = device->map(exported.file, kBytes);
  EXPECT_NE(mapped, exported.memory);
  const std::vector<std::byte> ones(kBytes, std::byte{1});
  gpu.copy({exported.memory.get(), kBytes, ones.data(), kBytes, kBytes}, CopyWay::upload, nullptr);
  gpu.synchronise(nullptr);
  exported = {};
  EXPECT_EQ(read(mapped.get()), ones) << "pages live as long as a mapping";
}

TEST(PeerMemory, OtherSizesAndFilesAreErrors) {
  const auto device = open_peer_device();
  const ExportedMemory exported = device->allocate(5000);
  EXPECT_THROW(device->map(exported.file, int64_t{1} << 30), Error);
  EXPECT_THROW(device->map(base::Descriptor(), 5000), Error);
  EXPECT_THROW(device->allocate(int64_t{1} << 50), Error);
}

TEST(PeerMemory, GpusThatAreNotThereHaveAProblem) {
  const auto device = open_peer_device();
  EXPECT_NE(device->problem("0000:FF:1F.7"), "");
  EXPECT_NE(device->problem(""), "");
  EXPECT_NE(tensor::device_pool()->runtime().address(), "");
}
#else
// For want of CUDA, or of a GPU in use.
TEST(PeerMemory, WithoutADriverThereIsNone) {
  try {
    (void)open_peer_device();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
  }
}
#endif

}  // namespace
}  // namespace tessera::kernels
