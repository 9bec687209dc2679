#include "parallel/sequence/ring.h"

#include <gtest/gtest.h>

#include <thread>

#include "parallel/sequence/attention_over_ranks.h"
#include "parallel/sequence/ulysses.h"

namespace tessera::parallel {
namespace {

using over_ranks::Problem;
using tensor::DType;

std::unique_ptr<nn::Attention> ring(const nn::Geometry& geometry, comm::Communicator& world,
                                    const Partition& partition) {
  std::vector<std::vector<int>> holders;
  for (int r = 0; r < world.size(); ++r) holders.push_back({r});
  return std::make_unique<Ring>(geometry, world, holders, partition);
}

Plan of(int ranks) {
  Plan plan;
  plan.ring = ranks;
  return plan;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double error = 0, length = 1e-30;
  for (size_t i = 0; i < b.size(); ++i) {
    error += std::pow(double(a[i]) - double(b[i]), 2);
    length += std::pow(double(b[i]), 2);
  }
  return std::sqrt(error / length);
}

TEST(Ring, IsLocalAttentionWithinRounding) {
  for (Problem problem : over_ranks::uneven_problems())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int ranks : {2, 3, 4, 8}) {
        problem.dtype = dtype;
        for (const auto& rank : over_ranks::run(problem, of(ranks), ring))
          EXPECT_LT(distance(rank.mine, rank.expected), dtype == DType::f32 ? 1e-6 : 4e-3)
              << ranks << " ranks";
      }
}

// Ranks that are late change no bit; nor does it matter which of them asks.
TEST(Ring, DoesNotDependOnTime) {
  const Problem problem = over_ranks::uneven_problems()[1];
  const auto late = [](int who) {
    return
        [who](const nn::Geometry& geometry, comm::Communicator& world, const Partition& partition) {
          if (world.rank() == who) std::this_thread::sleep_for(std::chrono::milliseconds(20));
          return ring(geometry, world, partition);
        };
  };
  const auto first = over_ranks::run(problem, of(3), late(-1));
  for (int who = 0; who < 3; ++who) {
    const auto again = over_ranks::run(problem, of(3), late(who));
    for (size_t r = 0; r < 3; ++r) EXPECT_EQ(again[r].mine, first[r].mine);
  }
}

// A query sees the same parts of the keys whoever holds it.
TEST(Ring, AQueryDoesNotDependOnItsHolder) {
  Problem problem{{.block = 0, .heads = 2, .kv_heads = 2, .head_dim = 8}, {1, {1, 1, 9}}};
  const nn::Geometry geometry = problem.geometry();
  const Partition partition(of(3), problem.work);
  std::vector<std::vector<float>> seen(3);
  comm::threads::run(3, std::chrono::seconds(20), [&](comm::Communicator& world) {
    const nn::TokenView mine = partition.view(world.rank());
    nn::Qkv heads = problem.heads(mine);
    heads.q = problem.heads(partition.view(0)).q;  // all ask as the tokens of rank 0 do
    const auto attention = ring(geometry, world, partition);
    seen[static_cast<size_t>(world.rank())] = attention->attend(0, mine, heads).to_floats();
  });
  EXPECT_EQ(seen[1], seen[0]);
  EXPECT_EQ(seen[2], seen[0]);
}

// 2 b d (p - t) a block, t the tokens of the next rank: a rank hands on all keys but those; twice.
TEST(Ring, SendsWhatItsFormulaSays) {
  for (const Problem& problem : over_ranks::uneven_problems())
    for (const int ranks : {2, 3, 4}) {
      const Partition partition(of(ranks), problem.work);
      int64_t all = 0;
      for (int r = 0; r < ranks; ++r) all += token_counts(problem, partition.view(r)).first;
      const auto sent = over_ranks::run(problem, of(ranks), ring);
      for (int r = 0; r < ranks; ++r) {
        const int64_t next = token_counts(problem, partition.view((r + 1) % ranks)).first;
        const auto& mine = sent[static_cast<size_t>(r)].sent.at("ring");
        EXPECT_EQ(mine.bytes, 2 * 2 * 4 * problem.channels(true) * (all - next));
        EXPECT_EQ(mine.messages, 2 * (ranks - 1));
      }
    }
}

}  // namespace
}  // namespace tessera::parallel
