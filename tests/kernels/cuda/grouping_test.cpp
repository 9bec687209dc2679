#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include <random>

#include "kernels/cuda/grouping.h"
#include "kernels/experts.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/grouping.cu"
#endif

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

struct Sorted {
  std::vector<int32_t> begin, tile_begin, pair;
  bool operator==(const Sorted&) const = default;
};

Sorted sort(const std::vector<int32_t>& ids, int experts, int tile_rows) {
  cuda::DeviceGroups groups;
  const auto pairs = static_cast<int64_t>(ids.size());
  const Tensor there = kThere(ids);
  const Tensor memory =
      Tensor::empty({cuda::lay_out(groups, nullptr, pairs, experts)}, DType::u8, kThere.device);
  cuda::lay_out(groups, memory.data<std::byte>(), pairs, experts);
  cuda::group_on_device(static_cast<const int32_t*>(there.raw()), pairs, experts, tile_rows,
                        groups);
  const Tensor left = here(memory);
  cuda::lay_out(groups, left.data<std::byte>(), pairs, experts);
  return {{groups.begin, groups.begin + experts + 1},
          {groups.tile_begin, groups.tile_begin + experts + 1},
          {groups.pair, groups.pair + groups.begin[experts]}};
}

std::vector<int32_t> random_ids(int count, int experts, bool holes) {
  std::mt19937 generator(5);
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i)
    ids.push_back(holes && generator() % 4 == 0 ? -1 : static_cast<int32_t>(generator() % experts));
  return ids;
}

TEST(CudaGrouping, EqualsTheHostsSort) {
  for (auto [count, experts] : problems<std::array<int, 2>>(
           {{1, 1}, {7, 3}, {256, 8}, {1500, 64}, {2100, 5}, {40, 200}, {5000, 1}, {600, 1500}},
           {{32768, 64}, {131072, 8}}))
    for (bool holes : {false, true}) {
      const auto ids = random_ids(count, experts, holes);
      const Sorted got = sort(ids, experts, 64);
      const ExpertGroups want =
          group_by_expert({.tokens = count, .slots = 1, .ids = ids.data(), .experts = experts});
      EXPECT_EQ(got.pair, want.pair);
      int tiles = 0;
      for (int e = 0; e <= experts; ++e) {
        EXPECT_EQ(got.begin[size_t(e)], want.begin[size_t(e)]);
        EXPECT_EQ(got.tile_begin[size_t(e)], tiles);
        if (e < experts)
          tiles += static_cast<int>((want.begin[size_t(e) + 1] - want.begin[size_t(e)] + 63) / 64);
      }
      EXPECT_LE(tiles, cuda::most_tiles(count, experts, 64));
    }
}

TEST(CudaGrouping, DoesNotDependOnTheOrderOfThreads) {
  const auto ids = random_ids(1100, 17, true);
  EXPECT_EQ(again([&] { return sort(ids, 17, 64); }), sort(ids, 17, 64));
}

TEST(CudaGrouping, BusyExpertsGetLargeTilesAndAllPairsHaveRoom) {
  EXPECT_EQ(cuda::expert_tile_rows(96 * 8, 8), 128);
  EXPECT_EQ(cuda::expert_tile_rows(95 * 8, 8), 64);
  EXPECT_EQ(cuda::most_tiles(0, 8, 64), 0);
  EXPECT_EQ(cuda::most_tiles(5, 8, 64), 5);
  for (int pairs : {1, 63, 64, 65, 500})  // the worst case: a pair in all experts but the last
    for (int experts : {1, 3, 64}) {
      const int alone = std::min(pairs, experts) - 1;
      EXPECT_GE(cuda::most_tiles(pairs, experts, 64), alone + (pairs - alone + 63) / 64);
    }
}

}  // namespace
}  // namespace tessera::kernels
