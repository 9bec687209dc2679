#include "kernels/scratch.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "tessera/error.h"

namespace tessera::kernels {
namespace {

TEST(Scratch, IsAlignedAndStaysWhileItIsLargeEnough) {
  Scratch scratch;
  std::byte* const first = scratch.at_least(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
  EXPECT_EQ(scratch.at_least(4096), first);
  std::byte* const more = scratch.at_least(int64_t{1} << 20);
  more[(int64_t{1} << 20) - 1] = std::byte{1};
  EXPECT_EQ(scratch.at_least(5), more);
}

TEST(Scratch, EachThreadHasItsOwn) {
  std::byte *mine = thread_scratch(0).at_least(64), *other = nullptr;
  std::thread([&] { other = thread_scratch(0).at_least(64); }).join();
  EXPECT_EQ(thread_scratch(0).at_least(64), mine);
  EXPECT_NE(thread_scratch(1).at_least(64), mine);
  EXPECT_NE(other, nullptr);
}

TEST(Scratch, SaysWhatIsTooMuch) {
  Scratch scratch;
  try {
    scratch.at_least(std::numeric_limits<int64_t>::max() / 2);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::memory);
  }
  EXPECT_NE(scratch.at_least(64), nullptr);
}

}  // namespace
}  // namespace tessera::kernels
