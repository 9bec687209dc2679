#include "tensor/page_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
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
  EXPECT_EQ(pool->waiting(), 2 * kMega) << "and six are too many beside it";
}

// With 14 and 10 waiting, a block of 20 takes the pages above the limit, so none of its pages is
// new.
TEST(PagePool, ABlockOfAnotherSizeTakesThePagesThatMayNotWait) {
  const auto pool = std::make_shared<PagePool>();
  const auto held = pool->take(8 * kMega);
  std::shared_ptr<void> one = pool->take(14 * kMega), other = pool->take(10 * kMega);
  std::memset(one.get(), 1, 14 * kMega);
  std::memset(other.get(), 2, 10 * kMega);
  one.reset();
  other.reset();
  EXPECT_EQ(pool->waiting(), 24 * kMega);
  for (int round = 0; round < 3; ++round) {
    const std::shared_ptr<void> block = pool->take(20 * kMega);
    const auto* const data = static_cast<const char*>(block.get());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % (2 * kMega), 0u);
    for (size_t i = 0; i < 20; ++i) EXPECT_NE(data[i * kMega], 0) << "a new page at " << i;
    EXPECT_EQ(pool->live(), 28 * kMega);
    EXPECT_EQ(pool->waiting(), 4 * kMega);
    std::memset(block.get(), 3, 20 * kMega);
  }
  std::vector<std::shared_ptr<void>> parts;
  for (int i = 0; i < 3; ++i) {
    parts.push_back(pool->take(6 * kMega));
    const auto* const data = static_cast<const char*>(parts.back().get());
    for (size_t j = 0; j < 6; ++j) EXPECT_NE(data[j * kMega], 0) << "a new page of part " << i;
  }
  EXPECT_EQ(pool->live(), 28 * kMega) << "the last is one of 8";
  EXPECT_EQ(pool->waiting(), 4 * kMega);
}

// The tail of a block, less than a huge page, is new each time; no page after the tail is touched.
TEST(PagePool, SizesThatAreNoWholeHugePagesKeepTheirEnds) {
  const auto pool = std::make_shared<PagePool>();
  const auto held = pool->take(12 * kMega);
  for (size_t round = 0; round < 40; ++round) {
    const size_t size = 4 * kMega + (round * 7919 % 9) * kMega + 4096 * (round % 5) + 512;
    const auto block = pool->take(size), next = pool->take(5 * kMega + 512);
    std::memset(block.get(), static_cast<int>(round), size);
    std::memset(next.get(), 255, 5 * kMega + 512);
    const auto* const data = static_cast<const unsigned char*>(block.get());
    EXPECT_EQ(data[0], round);
    EXPECT_EQ(data[size - 1], round);
    EXPECT_LE(pool->waiting(), 31 * kMega);
  }
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

// Kilobytes of this process offered to the system, counted separately.
long offered() {
  std::ifstream file("/proc/self/smaps_rollup");
  long kilobytes = -1;
  for (std::string word; file >> word;)
    if (word == "LazyFree:") file >> kilobytes;
  return kilobytes;
}

TEST(PagePool, WhatWaitsForNobodyIsTheSystemsIfItNeedsIt) {
  if (offered() < 0) GTEST_SKIP() << "this system does not say what it may take";
  const auto pool = std::make_shared<PagePool>();
  const auto scratch = pool->take(kMega);  // kept by its thread
  auto one = pool->take(40 * kMega), other = pool->take(8 * kMega);
  std::memset(one.get(), 1, 40 * kMega);
  std::memset(other.get(), 1, 8 * kMega);
  const long before = offered();
  one.reset();
  EXPECT_EQ(pool->waiting(), 40 * kMega);
  EXPECT_EQ(offered(), before) << "something computes still";
  other.reset();
  EXPECT_EQ(pool->waiting(), 48 * kMega);
  EXPECT_GE(offered(), before + 46 * 1024);
  one = pool->take(40 * kMega);
  std::memset(one.get(), 2, 40 * kMega);
  EXPECT_LE(offered(), before + 10 * 1024) << "those are in use again";
  pool->release();
  EXPECT_EQ(pool->waiting(), 0u);
  EXPECT_LE(offered(), before + 2 * 1024);
  EXPECT_EQ(*static_cast<const char*>(one.get()), 2);
}

// After large blocks come only small blocks: waiting pages decrease each time.
TEST(PagePool, ForgetsWhatWasInUseLongAgo) {
  const auto pool = std::make_shared<PagePool>();
  pool->take(128 * kMega).reset();
  EXPECT_EQ(pool->waiting(), 128 * kMega);
  pool->take(4 * kMega).reset();
  EXPECT_LE(pool->waiting(), 128 * kMega);
  EXPECT_GT(pool->waiting(), 64 * kMega);
  for (int i = 0; i < 40; ++i) pool->take(4 * kMega).reset();
  EXPECT_LE(pool->waiting(), 32 * kMega) << "which are not worth a call of the system";
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
  EXPECT_LE(pool->waiting(), 4 * 8 * kMega);
}

}  // namespace
}  // namespace tessera::tensor
