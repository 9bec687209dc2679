#include "parallel/sequence/ulysses.h"

#include <gtest/gtest.h>

#include "parallel/sequence/attention_over_ranks.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using over_ranks::Problem;
using tensor::DType;

std::unique_ptr<nn::Attention> ulysses(const nn::Geometry& geometry, comm::Communicator& world,
                                       const Partition& partition) {
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  return std::make_unique<Ulysses>(geometry, world, all, partition, [](const nn::Geometry& of) {
    return std::make_unique<nn::LocalAttention>(of);
  });
}

Plan of(int ranks) {
  Plan plan;
  plan.ulysses = ranks;
  return plan;
}

TEST(Ulysses, IsLocalAttentionBitForBit) {
  for (Problem problem : over_ranks::uneven_problems())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int ranks : {2, 3, 4, 8, 10}) {
        problem.dtype = dtype;
        for (const auto& rank : over_ranks::run(problem, of(ranks), ulysses))
          EXPECT_EQ(rank.mine, rank.expected) << ranks << " ranks";
      }
}

// b (2 t (kv - kv_r) + t (d - d_r)) of queries, keys and values to other heads, and b d_r (q - q_r)
// of results back, for t tokens of a rank and d channels of heads: of a block, twice.
TEST(Ulysses, SendsWhatItsFormulaSays) {
  for (const Problem& problem : over_ranks::uneven_problems())
    for (const int ranks : {2, 3, 4}) {
      const Partition partition(of(ranks), problem.work);
      const auto sent = over_ranks::run(problem, of(ranks), ulysses);
      const auto counts = [&](int r) { return token_counts(problem, partition.view(r)); };
      int64_t asking = 0;
      for (int r = 0; r < ranks; ++r) asking += counts(r).second;
      for (int r = 0; r < ranks; ++r) {
        const auto [keys, queries] = counts(r);
        const int64_t heads = nn::split({0, problem.site.kv_heads}, ranks, r).size(),
                      dim = problem.site.head_dim,
                      group = problem.site.heads / problem.site.kv_heads;
        const int64_t others = problem.site.kv_heads - heads;
        const auto& mine = sent[static_cast<size_t>(r)].sent;
        EXPECT_EQ(mine.at("to heads").bytes, 2 * 4 * others * dim * (2 * keys + group * queries));
        EXPECT_EQ(mine.at("to tokens").bytes, 2 * 4 * heads * group * dim * (asking - queries));
        EXPECT_EQ(mine.at("to heads").messages, 2 * (ranks - 1));
        EXPECT_EQ(mine.at("to tokens").messages, 2 * (ranks - 1));
      }
    }
}

// 4 (N - 1) / N^2 p d b: FLUX at 1024 x 1024 on four ranks, without elements.
TEST(Ulysses, SendsThePublishedVolume) {
  const Problem problem{{.block = 0, .heads = 24, .kv_heads = 24, .head_dim = 128},
                        {1, {1, 64, 64}},
                        DType::bf16,
                        tensor::Device::meta};
  for (const auto& rank : over_ranks::run(problem, of(4), ulysses))
    EXPECT_EQ(rank.sent.at("to heads").bytes + rank.sent.at("to tokens").bytes, 2 * 18874368);
}

TEST(Ulysses, EveryRankNeedsAHead) {
  const Problem problem{{.block = 0, .heads = 6, .kv_heads = 2, .head_dim = 8}, {1, {1, 4, 4}}};
  EXPECT_THROW(over_ranks::run(problem, of(3), ulysses), Error);
}

}  // namespace
}  // namespace tessera::parallel
