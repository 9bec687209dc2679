#include "kernels/cuda/leg.h"
// The leg comes first: it is what the sources below are compiled with.
#include <gtest/gtest.h>

#include "kernels/attention_problem.h"
#include "kernels/closeness.h"
#include "kernels/cuda/attention_sm90.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/attention_sm90.cu"
#endif

namespace tessera::kernels {
namespace {

TEST(CudaAttentionSm90, TilesFitIntoSharedMemory) {
  constexpr int64_t kMost = 227 * 1024;  // of a block, compute capability 9.0
  EXPECT_LE(cuda::Sm90Tile<64>::kShared, kMost);
  EXPECT_LE(cuda::Sm90Tile<80>::kShared, kMost);
  EXPECT_LE(cuda::Sm90Tile<128>::kShared, kMost);
  EXPECT_LE(cuda::Sm90Tile<256>::kShared, kMost);
  EXPECT_EQ(cuda::Sm90Tile<72>::kSteps, 5);
  EXPECT_EQ(cuda::Sm90Tile<256>::kKeys, 64);
}

#if !defined(TESSERA_ON_GPU)
// Three blocks of threads take turns at eleven tiles; every place in shared memory is used again.
TEST(CudaAttentionSm90, ABlockGoesFromTileToTile) {
  const Problem p{2, 2, 64, 620, DType::bf16};
  const Ranges spans = {
      {0, 300, 0, 620}, {300, 300, 0, 10}, {300, 310, 5, 6}, {310, 620, 310, 620}};
  const Answer want = run(kHost, reference::attention, p, spans);
  const Answer got = run(kThere, cuda::attention_sm90, p, spans);
  EXPECT_LT(worst_difference(got.out, want.out), 8e-3);
  EXPECT_LT(worst_difference(got.lse, want.lse), 2e-4);
  EXPECT_EQ(again([&] { return run(kThere, cuda::attention_sm90, p, spans); }), got);
}
#endif

}  // namespace
}  // namespace tessera::kernels
