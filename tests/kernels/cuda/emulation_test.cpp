#include "kernels/cuda/emulation.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace tessera::kernels::emulated {
namespace {

struct EachOrder : testing::TestWithParam<bool> {
  void SetUp() override { emulation::backwards = GetParam(); }
  void TearDown() override { emulation::backwards = false; }
};
using Emulation = EachOrder;

TEST_P(Emulation, ThreadsMeetAtBarriers) {
  std::vector<int> board(96), right(96);
  emulation::run_block(96, 0, [&] {
    const unsigned t = threadIdx.x;
    board[t] = static_cast<int>(t);
    __syncthreads();
    const int other = board[95 - t];
    __syncthreads();
    board[t] = other;
  });
  for (int t = 0; t < 96; ++t) right[static_cast<size_t>(t)] = 95 - t;
  EXPECT_EQ(board, right);
}

TEST_P(Emulation, LanesReadEachOther) {
  std::vector<int> sum(64), up(64), first(64);
  std::vector<unsigned> even(64), same(64);
  emulation::run_block(64, 0, [&] {
    const unsigned t = threadIdx.x;
    int x = static_cast<int>(t);
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    sum[t] = x;
    up[t] = __shfl_up_sync(~0u, static_cast<int>(t), 1);
    first[t] = __shfl_sync(~0u, static_cast<int>(t), 0);
    even[t] = __ballot_sync(~0u, t % 2 == 0);
    same[t] = __match_any_sync(~0u, static_cast<int>(t % 4));
  });
  EXPECT_EQ(sum[3], 31 * 16);
  EXPECT_EQ(sum[40], 31 * 16 + 32 * 32);
  EXPECT_EQ(up[0], 0);
  EXPECT_EQ(up[37], 36);
  EXPECT_EQ(first[37], 32);
  EXPECT_EQ(even[5], 0x55555555u);
  EXPECT_EQ(same[5], 0x22222222u);
}

TEST_P(Emulation, CopiesArriveWithTheirWaitAndNotBefore) {
  alignas(16) const int from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<int> early(32), late(32), none(32);
  emulation::run_block(32, 4096, [&] {
    auto* shared = reinterpret_cast<int*>(dynamic_shared()) + 8 * threadIdx.x;
    cp_async_16(shared, from, true);
    cp_async_commit();
    cp_async_16(shared + 4, from + 4, false);
    cp_async_commit();
    early[threadIdx.x] = shared[0];
    cp_async_wait<1>();
    late[threadIdx.x] = shared[0];
    cp_async_wait<0>();
    none[threadIdx.x] = shared[7];
  });
  EXPECT_EQ(early, std::vector<int>(32, -1));
  EXPECT_EQ(late, std::vector<int>(32, 1));
  EXPECT_EQ(none, std::vector<int>(32, 0));
}

// a [16, 16] times b [16, 8] by the fragments that ldmatrix gives.
TEST_P(Emulation, MatrixProductsFollowTheFragmentLayout) {
  alignas(16) tensor::BFloat16 a[16][16], b[8][16], b_rows[16][8];
  float right[16][8] = {}, got[16][8], got_transposed[16][8];
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k) a[i][k] = tensor::to_bfloat16(float((7 * i + 3 * k) % 11 - 5));
  for (int j = 0; j < 8; ++j)
    for (int k = 0; k < 16; ++k)
      b_rows[k][j] = b[j][k] = tensor::to_bfloat16(float((5 * j + 2 * k) % 13 - 6));
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j)
      for (int k = 0; k < 16; ++k) right[i][j] += tensor::to_float(a[i][k]) * to_float(b[j][k]);
  emulation::run_block(32, 0, [&] {
    const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
    uint32_t fa[4], fb[4], fc[4];
    load_matrices(fa, &a[lane % 16][lane / 16 * 8]);
    load_matrices(fb, &b[lane % 8][lane / 8 % 2 * 8]);
    load_matrices_transposed(fc, &b_rows[lane % 16][0]);
    for (auto [fragment, out] : {std::pair{fb, got}, std::pair{fc, got_transposed}}) {
      float d[4] = {};
      multiply_bf16(d, fa, fragment[0], fragment[1]);
      for (int i = 0; i < 4; ++i) out[g + i / 2 * 8][2 * t + i % 2] = d[i];
    }
  });
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) {
      EXPECT_EQ(got[i][j], right[i][j]) << i << " " << j;
      EXPECT_EQ(got_transposed[i][j], right[i][j]) << i << " " << j;
    }
}

TEST_P(Emulation, AThreadThatNeverComesIsAnError) {
  EXPECT_THROW(emulation::run_block(32, 0,
                                    [] {
                                      if (threadIdx.x != 7) __syncthreads();
                                    }),
               std::logic_error);
}

INSTANTIATE_TEST_SUITE_P(Orders, Emulation, testing::Bool());

}  // namespace
}  // namespace tessera::kernels::emulated
