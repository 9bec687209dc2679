#include "kernels/cuda/emulation.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "kernels/cuda/sm90.cuh"
#include "tensor/device_pool.h"

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

// a [16, 16] times b [16, 8] by the fragments of ldmatrix.
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

TEST_P(Emulation, ACopyThatNobodyWaitsForOrThatMeetsAnotherIsAnError) {
  alignas(16) const int from[4] = {1, 2, 3, 4};
  EXPECT_THROW(emulation::run_block(32, 4096,
                                    [&] {
                                      cp_async_16(dynamic_shared() + 16 * threadIdx.x, from, true);
                                      cp_async_commit();
                                    }),
               std::logic_error);
  EXPECT_THROW(emulation::run_block(32, 4096,
                                    [&] {
                                      cp_async_16(dynamic_shared(), from, true);
                                      cp_async_wait<0>();
                                    }),
               std::logic_error);
}

TEST_P(Emulation, ThreadsThatArriveDoNotWait) {
  std::vector<int> seen(64);
  emulation::run_block(64, 0, [&] {
    static int board;
    const bool first = threadIdx.x < 32;
    if (first) {
      board = 7;
      arrive_for_threads(3, 64);
    } else {
      wait_for_threads(3, 64);
      seen[threadIdx.x] = board;
    }
  });
  EXPECT_EQ(seen[63], 7);
  EXPECT_THROW(emulation::run_block(32, 0, [] { arrive_for_threads(3, 64); }), std::logic_error);
}

// A warpgroup's work on two tiles of ones: 64 rows of 64 columns each.
struct Warpgroup {
  unsigned char* tiles = tiles_from(dynamic_shared());
  float sums[8][4] = {};
  uint32_t left[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};

  void fill() const {
    for (unsigned i = threadIdx.x; i < 2 * 64 * 8; i += 128)
      store_shared(tiles + 16 * i, {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80});
  }
  void fill_and_show() const {
    fill();
    fence_shared();
    __syncthreads();
  }
  void multiply(const unsigned char* at) {
    products_begin();
    multiply_registers<64, 0>(sums, left, tile_descriptor(at, 8192));
    products_commit();
  }
  void multiply() { multiply(tiles); }
};
template <class F>
void by_warpgroup(const F& f) {
  emulation::run_block(128, 20000, [&] {
    Warpgroup group;
    f(group);
  });
}
template <class F>
std::string refusal(const F& f) {
  try {
    by_warpgroup(f);
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}

TEST_P(Emulation, ProductsSeeWhatWasShownToThem) {
  float sum = 0;
  by_warpgroup([&](Warpgroup& g) {
    g.fill_and_show();
    g.multiply();
    products_wait<0>(g.sums);
    sum = g.sums[7][3];
  });
  EXPECT_EQ(sum, 16);
  EXPECT_NE(refusal([](Warpgroup& g) {
              g.fill();
              __syncthreads();
              g.multiply();
              products_wait<0>(g.sums);
            }).find("did not show"),
            std::string::npos);
  // A thread's fence covers its own writes, not those of others.
  EXPECT_NE(refusal([](Warpgroup& g) {
              g.fill();
              if (threadIdx.x != 5) fence_shared();
              __syncthreads();
              g.multiply();
              products_wait<0>(g.sums);
            }).find("did not show"),
            std::string::npos);
}

TEST_P(Emulation, RegistersOfAProductStayAsTheyAre) {
  EXPECT_EQ(refusal([](Warpgroup& g) {
              g.fill_and_show();
              g.multiply();
              products_wait<0>(g.sums);
              g.left[3] = 0;
              g.sums[0][0] = 1;
            }),
            "");
  EXPECT_NE(refusal([](Warpgroup& g) {
              g.fill_and_show();
              g.multiply();
              g.left[3] = 0;
              products_wait<0>(g.sums);
            }).find("registers of a product"),
            std::string::npos);
  EXPECT_NE(refusal([](Warpgroup& g) {
              g.fill_and_show();
              g.multiply();
              g.sums[0][0] = 1;
              products_wait<0>(g.sums);
            }).find("sums of a product"),
            std::string::npos);
  EXPECT_NE(refusal([](Warpgroup& g) {
              g.fill_and_show();
              multiply_registers<64, 0>(g.sums, g.left, tile_descriptor(g.tiles, 8192));
            }).find("before products_begin()"),
            std::string::npos);
}

TEST_P(Emulation, LayoutsOfTilesAreThoseOfTheIsa) {
  EXPECT_NE(refusal([](Warpgroup& g) { g.multiply(g.tiles + 32); }).find("does not begin"),
            std::string::npos);
  EXPECT_THROW(emulation::check_tile(tile_descriptor(emulation::shared_base(), 8192), 80, true),
               std::logic_error);
  EXPECT_THROW(emulation::check_tile(tile_descriptor(emulation::shared_base(), 16), 128, true),
               std::logic_error);
  EXPECT_NO_THROW(
      emulation::check_tile(tile_descriptor(emulation::shared_base(), 8192), 128, true));
  EXPECT_NO_THROW(
      emulation::check_tile(tile_descriptor(emulation::shared_base() + 96, 16), 80, false));
  EXPECT_THROW(
      emulation::check_tile(tile_descriptor(emulation::shared_base() + 128, 16), 80, false),
      std::logic_error);
}

TEST_P(Emulation, TheCopyEngineKnowsABarrierThatWasShownToIt) {
  const auto use = [](bool known) {
    emulation::run_block(32, 4096, [=] {
      auto* barrier = reinterpret_cast<uint64_t*>(dynamic_shared());
      if (threadIdx.x == 0) {
        barrier_init(barrier, 32);
        if (known) barriers_ready();
      }
      __syncthreads();
      barrier_arrive(barrier);
      barrier_wait(barrier, 0);
    });
  };
  EXPECT_NO_THROW(use(true));
  EXPECT_THROW(use(false), std::logic_error);
}

// Each waits for the other's word.
TEST_P(Emulation, LaunchesOnSeveralGpusRunAtOnce) {
  uint64_t words[2] = {};
  emulation::Together gpus;
  for (const int g : {0, 1})
    gpus.add({2, 32, 0, [&words, g] {
                EXPECT_LT(blockIdx.x, 2u);
                if (blockIdx.x == 1 && threadIdx.x == 0) store_release(&words[g], 1);
                while (load_acquire(&words[1 - g]) == 0) pause();
              }});
  gpus.run();
  EXPECT_EQ(words[0] + words[1], 2u);
}

TEST(CudaRowMap, KnowsWhatTheDriverRefuses) {
  const auto wrong = [](int64_t stride, int64_t rows, int heads, int dim, int box, uintptr_t at) {
    return wrong_with(row_map_shape(stride, rows, heads, dim, box), at) != nullptr;
  };
  EXPECT_FALSE(wrong(216, 9, 3, 72, 128, 1024));
  EXPECT_FALSE(wrong(88, 9, 1, 72, 128, 1024));             // a single head: any whole words
  EXPECT_FALSE(wrong(216, 0, 3, 72, 128, 1024));            // no rows, and nothing to read
  EXPECT_TRUE(wrong(216, 9, 3, 72, 128, 1032));             // address
  EXPECT_TRUE(wrong(220, 9, 1, 72, 128, 1024));             // stride without whole words
  EXPECT_TRUE(wrong(224, 9, 3, 72, 128, 1024));             // not a multiple of a head
  EXPECT_TRUE(wrong(64, 9, 1, 72, 128, 1024));              // overlapping rows
  EXPECT_TRUE(wrong(int64_t{1} << 39, 9, 1, 72, 1, 1024));  // 2^40 bytes
  EXPECT_TRUE(wrong(72, (int64_t{1} << 32) + 1, 1, 72, 1, 1024));
  EXPECT_TRUE(wrong(216, 9, 3, 72, 257, 1024));
  EXPECT_TRUE(wrong(216, 9, 3, 72, 0, 1024));
  EXPECT_TRUE(wrong(216, 9, 0, 72, 128, 1024));
}

TEST(DeviceScratch, ComesFromThePoolAndGoesBackThere) {
  const auto pool = tensor::device_pool();
  const auto before = pool->use();
  { const Scratch warm(4096); }
  const auto between = pool->use();
  {
    const Scratch scratch(4096);
    EXPECT_EQ(pool->use().live, between.live + 4096);
    EXPECT_NE(scratch.as<float>(), nullptr);
  }
  EXPECT_EQ(pool->use().allocations, between.allocations);  // the device was not asked again
  EXPECT_EQ(pool->use().live, before.live);
  EXPECT_EQ(Scratch(0).as<float>(), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Orders, Emulation, testing::Bool());

}  // namespace
}  // namespace tessera::kernels::emulated
