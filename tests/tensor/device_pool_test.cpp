#include "tensor/device_pool.h"

#include <gtest/gtest.h>

#include "fake_runtime.h"
#include "tessera/error.h"

namespace tessera::tensor {
namespace {

constexpr int64_t kMegabyte = 1 << 20;

TEST(DevicePool, RoundsToEighthsAndWeightsToLines) {
  EXPECT_EQ(DevicePool::rounded(0, MemoryClass::activations), 512);
  EXPECT_EQ(DevicePool::rounded(513, MemoryClass::activations), 1024);
  EXPECT_EQ(DevicePool::rounded(kMegabyte + 1, MemoryClass::activations),
            kMegabyte + kMegabyte / 8);
  EXPECT_EQ(DevicePool::rounded(kMegabyte + 1, MemoryClass::weights), kMegabyte + 512);
  for (int64_t bytes = 1; bytes < 5 * kMegabyte; bytes += 4099) {
    const int64_t taken = DevicePool::rounded(bytes, MemoryClass::kv);
    EXPECT_GE(taken, bytes);
    EXPECT_LE(taken, bytes + std::max<int64_t>(512, bytes / 8));
  }
}

TEST(DevicePool, FreedBlocksServeTheNextOfAboutTheirSize) {
  const auto runtime = std::make_shared<FakeRuntime>();
  DevicePool pool(runtime);
  std::byte* const a = pool.take(kMegabyte, MemoryClass::activations);
  pool.give(a);
  EXPECT_EQ(pool.take(kMegabyte - 100, MemoryClass::activations), a);
  std::byte* const b = pool.take(kMegabyte, MemoryClass::activations);
  EXPECT_NE(b, a);
  pool.give(a);
  EXPECT_NE(pool.take(kMegabyte / 2, MemoryClass::activations), a);  // would waste half
  EXPECT_EQ(pool.use().waiting, kMegabyte);
  EXPECT_EQ(pool.use().live, kMegabyte + kMegabyte / 2);
  EXPECT_EQ(pool.use().allocations, 3);
  EXPECT_EQ(runtime->freed, 0);
  pool.flush();
  EXPECT_EQ(runtime->freed, 1);
  EXPECT_EQ(pool.use().waiting, 0);
}

TEST(DevicePool, WithoutMemoryWhatWaitsIsFreedFirst) {
  const auto runtime = std::make_shared<FakeRuntime>(4 * kMegabyte);
  DevicePool pool(runtime);
  pool.give(pool.take(3 * kMegabyte, MemoryClass::activations));
  std::byte* const large = pool.take(4 * kMegabyte, MemoryClass::activations);
  EXPECT_NE(large, nullptr);
  EXPECT_EQ(runtime->freed, 1);
  try {
    pool.take(2 * kMegabyte, MemoryClass::kv);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::memory);
    EXPECT_STREQ(error.what(),
                 "the GPU (Fake GPU) has no 2 MB for kv: 0 MB of 4 MB are free, this run holds 4 "
                 "MB: use a smaller size, batch or model");
  }
  pool.give(large);
  EXPECT_EQ(pool.use().live, 0);
}

// Freeing waits for all kernels; meanwhile other threads can use the pool without a wait.
TEST(DevicePool, IsOpenToOthersWhileItFrees) {
  const auto runtime = std::make_shared<FakeRuntime>();
  DevicePool pool(runtime);
  std::byte* const held = pool.take(kMegabyte, MemoryClass::activations);
  pool.give(pool.take(3 * kMegabyte, MemoryClass::activations));
  runtime->on_free = [&] {
    pool.give(held);
    EXPECT_EQ(pool.take(kMegabyte, MemoryClass::activations), held);
  };
  pool.flush();
  EXPECT_EQ(runtime->freed, 1);
  EXPECT_EQ(pool.use().live, kMegabyte);
  EXPECT_EQ(pool.use().waiting, 0);
  pool.give(held);
}

TEST(DevicePool, AnArenaKeepsItsBlocksUntilItIsClosed) {
  const auto runtime = std::make_shared<FakeRuntime>();
  DevicePool pool(runtime);
  std::byte* const before = pool.take(kMegabyte, MemoryClass::activations);
  pool.give(before);
  const int64_t arena = pool.open_arena();
  EXPECT_EQ(pool.take(kMegabyte, MemoryClass::activations, arena), before);  // the waiting block
  pool.give(before);
  EXPECT_NE(pool.take(kMegabyte, MemoryClass::activations), before);
  EXPECT_EQ(pool.take(kMegabyte, MemoryClass::activations, arena), before);
  pool.close_arena(arena);
  pool.give(before);
  EXPECT_EQ(pool.take(kMegabyte, MemoryClass::activations), before);
}

TEST(DevicePool, EndsWithNothingLeftBehind) {
  const auto runtime = std::make_shared<FakeRuntime>();
  {
    DevicePool pool(runtime);
    pool.give(pool.take(100, MemoryClass::buffers));
  }
  EXPECT_EQ(runtime->used(), 0);
}

}  // namespace
}  // namespace tessera::tensor
