#include "kernels/far_memory.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::kernels {
namespace {

// For want of NVSHMEM, or of a GPU in use.
TEST(FarMemory, AProgramWithoutItRefuses) {
  try {
    (void)begin_far_memory({{0}, 0});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), has_far_memory() ? ErrorCode::usage : ErrorCode::plan) << error.what();
  }
  if (has_far_memory()) return;
  EXPECT_THROW(join_far_memory({{0}, 0}, {}), Error);
  EXPECT_THROW(next_far_block(64), Error);
  EXPECT_THROW(allocate_far_memory(0, 64), Error);
}

}  // namespace
}  // namespace tessera::kernels
