#include "fused/peer_device.h"

#include <gtest/gtest.h>

#include "fused/shared_pages.h"
#include "tessera/error.h"

namespace tessera::fused {
namespace {

TEST(PeerDevice, ATestReplacesIt) {
  const GpuOfEachRank gpus;
  EXPECT_EQ(open_peer_device(0)->problem("0000:01:00.0"), "");
}

// For want of CUDA, or of a GPU.
TEST(PeerDevice, AProgramWithoutAGpuRefuses) {
  try {
    (void)open_peer_device(0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage) << error.what();
  }
}

// The double of the tests is a device: two mappings are the same memory, as long as one lives.
TEST(PeerDevice, MemoryOutlivesItsOwner) {
  SharedPages one({}), other({});
  ExportedMemory exported = one.allocate(5000);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(exported.memory.get()[i], std::byte{0});
  const std::shared_ptr<std::byte> there = other.map(exported.file, 5000);
  exported.memory.get()[7] = std::byte{3};
  exported = {};
  EXPECT_EQ(there.get()[7], std::byte{3});
}

}  // namespace
}  // namespace tessera::fused
