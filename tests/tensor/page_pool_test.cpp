#include "tensor/page_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace tessera::tensor {
namespace {

constexpr size_t kMega = size_t{1} << 20;

TEST(PagePool, ABlockWaitsForTheNextOfItsSize) {
  const auto pool = std::make_shared<PagePool>();
  const auto held = pool->take(8 * kMega);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(held.get()) % (2 * kMega), 0u);
  std::shared_ptr<void> block = pool->take(8 * kMega);
  const void* const first = block.get();
  std::memset(block.get(), 1, 8 * kMega);
  block.reset();
  EXPECT_EQ(pool->live(), 8 * kMega);
  EXPECT_EQ(pool->waiting(), 8 * kMega);
  block = pool->take(6 * kMega);
  EXPECT_EQ(block.get(), first) << "the same pages, a third larger";
  EXPECT_EQ(*static_cast<const char*>(block.get()), 1);
  block.reset();
  block = pool->take(5 * kMega);
  EXPECT_EQ(pool->live(), 13 * kMega) << "those would be too large";
  EXPECT_EQ(pool->waiting(), 0u) << "and are too many beside it";
}

TEST(PagePool, WhatWaitsIsNeverMoreThanWasInUseAtOnce) {
  const auto pool = std::make_shared<PagePool>();
  size_t most = 0;
  const auto held = pool->take(6 * kMega);
  for (size_t round = 0; round < 3; ++round)
    for (size_t size = 1; size < 24; ++size) {
      const auto one = pool->take(size * kMega), other = pool->take((24 - size) * kMega);
      ASSERT_TRUE(one && other);
      most = std::max(most, pool->live());
      EXPECT_LE(pool->live() + pool->waiting(), most) << size;
    }
  EXPECT_LE(most, 43 * kMega) << "blocks of at most half as much again";
}

TEST(PagePool, NothingWaitsForNobody) {
  const auto pool = std::make_shared<PagePool>();
  const auto scratch = pool->take(kMega);  // stays with its thread
  auto one = pool->take(9 * kMega), other = pool->take(4 * kMega);
  one.reset();
  EXPECT_EQ(pool->waiting(), 9 * kMega);
  other.reset();
  EXPECT_EQ(pool->waiting(), 0u);
  EXPECT_EQ(pool->live(), kMega);
}

TEST(PagePool, HasNoMoreThanTheSystem) {
  const auto pool = std::make_shared<PagePool>();
  EXPECT_EQ(pool->take(size_t{1} << 60), nullptr);
  EXPECT_EQ(pool->live(), 0u);
}

TEST(PagePool, LivesAsLongAsItsBlocks) {
  auto pool = std::make_shared<PagePool>();
  const auto block = pool->take(4 * kMega);
  pool.reset();
  std::memset(block.get(), 1, 4 * kMega);
}

TEST(PagePool, ServesThreadsAtOnce) {
  const auto pool = std::make_shared<PagePool>();
  std::vector<std::thread> threads;
  for (int which = 0; which < 4; ++which)
    threads.emplace_back([&, which] {
      for (size_t time = 0; time < 200; ++time) {
        const auto block = pool->take((1 + time % 5) * kMega);
        auto* const mark = static_cast<volatile int*>(block.get());
        *mark = which;
        std::this_thread::yield();
        EXPECT_EQ(*mark, which);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool->live(), 0u);
  EXPECT_EQ(pool->waiting(), 0u);
}

}  // namespace
}  // namespace tessera::tensor
