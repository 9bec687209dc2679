#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include "kernels/attention_problem.h"
#include "kernels/closeness.h"
#include "kernels/cuda/attention_sm90.h"
#include "kernels/cuda/registers.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/attention_sm90.cu"
#endif

namespace tessera::kernels {
namespace {

TEST(CudaAttentionSm90, TilesFitIntoSharedMemory) {
  constexpr int64_t kMost = 227 * 1024;  // bytes of a block, compute capability 9.0
  EXPECT_LE((cuda::Sm90Tile<64, 3>::kShared), kMost);
  EXPECT_LE((cuda::Sm90Tile<80, 2>::kShared), kMost);
  EXPECT_LE((cuda::Sm90Tile<128, 2>::kShared), kMost);
  EXPECT_LE((cuda::Sm90Tile<256, 2>::kShared), kMost);
  EXPECT_EQ((cuda::Sm90Tile<72, 2>::kSteps), 5);
  EXPECT_EQ((cuda::Sm90Tile<256, 2>::kKeys), 64);
}

// A request for more registers than others released would wait forever.
TEST(CudaAttentionSm90, RegistersThatAreTakenWereGiven) {
  EXPECT_EQ(cuda::launched_registers(3), 168);
  EXPECT_EQ(cuda::launched_registers(4), 128);
  for (int computing : {2, 3})
    for (int fetching : {24, 32, 40}) {
      const int threads = computing + 1, all = cuda::launched_registers(threads) * threads;
      EXPECT_LE(cuda::computing_registers(computing, fetching) * computing + fetching, all);
    }
  EXPECT_EQ(cuda::computing_registers(2, 24), 240);
  EXPECT_EQ(cuda::computing_registers(3, 32), 160);
}

TEST(CudaAttentionSm90, ThreeWarpgroupsComputeWhereTheirTilesFillTheGpu) {
  EXPECT_EQ(cuda::narrow_groups(4096, 24, 132), 3);
  EXPECT_EQ(cuda::narrow_groups(1024, 24, 132), 2);
  EXPECT_EQ(cuda::narrow_groups(16384, 24, 132), 3);
  EXPECT_EQ(cuda::narrow_groups(0, 24, 132), 3);
}

#if !defined(TESSERA_ON_GPU)
// NaNs of a GPU's arithmetic, and others.
TEST(CudaAttentionSm90, NoNumberIsNoProbability) {
  for (const uint32_t bits : {0x7fffffffu, 0x7fc00000u, 0xffc00000u})
    EXPECT_TRUE(std::isnan(cuda::exp2_by_polynomial(std::bit_cast<float>(bits)))) << bits;
  EXPECT_NEAR(cuda::exp2_by_polynomial(-3.5f), std::exp2(-3.5f), 1e-5);
  EXPECT_LT(cuda::exp2_by_polynomial(-INFINITY), 1e-37f);
}

// A query has the same bits in tiles of either size.
TEST(CudaAttentionSm90, TwoAndThreeWarpgroupsGiveTheSame) {
  const Problem p{2, 2, 64, 420, DType::bf16};
  const Ranges spans = {{0, 300, 0, 420}, {300, 420, 290, 420}};
  const Answer three = run(kThere, cuda::run<64, 3>, p, spans);
  EXPECT_EQ(run(kThere, cuda::run<64, 2>, p, spans), three);
  EXPECT_EQ(again([&] { return run(kThere, cuda::run<64, 3>, p, spans); }), three);
}

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
  for (int spared : {1, 5}) {  // on three multiprocessors
    const Spare spare(spared);
    EXPECT_EQ(run(kThere, cuda::attention_sm90, p, spans), got) << spared;
  }
}
#endif

}  // namespace
}  // namespace tessera::kernels
