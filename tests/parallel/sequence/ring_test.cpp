#include "parallel/sequence/ring.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <utility>

#include "ops/elementwise.h"
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

std::unique_ptr<nn::Attention> query_ring(const nn::Geometry& geometry, comm::Communicator& world,
                                          const Partition& partition) {
  std::vector<std::vector<int>> holders;
  for (int r = 0; r < world.size(); ++r) holders.push_back({r});
  return std::make_unique<QueryRing>(geometry, world, holders, partition);
}

Plan of(int ranks, int patches = 1) {
  Plan plan;
  plan.ring = ranks;
  plan.patches = patches;
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

// Late ranks change no bit, and neither does the order of queries.
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

// A query sees the same parts of the keys on any rank.
TEST(Ring, AQueryDoesNotDependOnItsHolder) {
  Problem problem{{.block = 0, .heads = 2, .kv_heads = 2, .head_dim = 8}, {1, {1, 1, 9}}};
  const nn::Geometry geometry = problem.geometry();
  const Partition partition(of(3), problem.work);
  std::vector<std::vector<float>> seen(3);
  comm::threads::run(3, std::chrono::seconds(20), [&](comm::Communicator& world) {
    const nn::TokenView mine = partition.view(world.rank());
    nn::Qkv heads = problem.heads(mine);
    heads.q = problem.heads(partition.view(0)).q;  // all ranks use the queries of rank 0
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

TEST(QueryRing, IsLocalAttentionWithinRounding) {
  for (Problem problem : over_ranks::uneven_problems())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const auto& [ranks, patches] : {std::pair{2, 1}, {2, 3}, {3, 2}, {4, 3}, {8, 2}}) {
        problem.dtype = dtype;
        for (const auto& rank : over_ranks::run(problem, of(ranks, patches), query_ring))
          EXPECT_LT(distance(rank.mine, rank.expected), dtype == DType::f32 ? 1e-6 : 4e-3)
              << ranks << " ranks, " << patches << " patches";
      }
}

/// Results patch by patch after a whole step; keys after the patch are then a step old.
std::vector<std::vector<float>> patch_by_patch(const Problem& problem, int ranks, int patches,
                                               const over_ranks::Make& make) {
  const Plan plan = of(ranks, patches);
  const Partition partition(plan, problem.work);
  const nn::Geometry geometry = problem.geometry();
  std::vector<std::vector<float>> seen(static_cast<size_t>(ranks * patches));
  comm::threads::run(ranks, std::chrono::seconds(20), [&](comm::Communicator& world) {
    const auto attention = make(geometry, world, partition);
    const nn::TokenView all = partition.view(world.rank());
    nn::Qkv old = problem.heads(all);
    old.k = ops::blend(old.k, 0.5f, old.k, 0);
    attention->begin_step({0, 2, true, false});
    attention->attend(0, all, old);
    attention->begin_step({1, 2, false, true});
    for (int p = 0; p < patches; ++p) {
      const nn::TokenView mine = partition.view(world.rank(), p);
      seen[static_cast<size_t>(world.rank() * patches + p)] =
          attention->attend(0, mine, problem.heads(mine)).to_floats();
    }
  });
  return seen;
}

// Patches on a single rank are the oracle: each query sees the same keys, new or old.
TEST(QueryRing, SeesWhatPatchesOfOneRankSee) {
  for (const Problem& problem : over_ranks::uneven_problems()) {
    const int patches = 3;
    const Partition whole(of(1, patches), problem.work);
    const auto one = patch_by_patch(
        problem, 1, patches,
        [&](const nn::Geometry& geometry, comm::Communicator&, const Partition&) {
          return std::make_unique<nn::KvAttention>(geometry, whole.whole_sequences(0));
        });
    for (const int ranks : {2, 3, 7}) {
      const Partition cut(of(ranks, patches), problem.work);
      const auto many = patch_by_patch(problem, ranks, patches, query_ring);
      const int64_t width = problem.channels();
      for (int r = 0; r < ranks; ++r)
        for (int p = 0; p < patches; ++p) {
          const nn::TokenView mine = cut.view(r, p), all = whole.view(0, p);
          const int64_t text = problem.site.prefix_queries ? nn::token_count(all.prefix) : 0;
          std::vector<nn::Range> rows;
          if (text > 0) rows = places_of(all.prefix, mine.prefix);
          for (const nn::Range& at : places_of(all.body, mine.body))
            rows.push_back({text + at.begin, text + at.end});
          std::vector<float> expected;
          const auto& from = one[static_cast<size_t>(p)];
          for (const nn::Range& row : rows)
            expected.insert(expected.end(), from.begin() + row.begin * width,
                            from.begin() + row.end * width);
          EXPECT_LT(distance(many[static_cast<size_t>(r * patches + p)], expected), 1e-6)
              << ranks << " ranks, patch " << p;
        }
    }
  }
}

TEST(QueryRing, AQueryDoesNotDependOnItsHolder) {
  const Problem problem{{.block = 0, .heads = 2, .kv_heads = 2, .head_dim = 8}, {1, {1, 1, 9}}};
  const nn::Geometry geometry = problem.geometry();
  const Partition partition(of(3), problem.work);
  std::vector<std::vector<float>> seen(3);
  comm::threads::run(3, std::chrono::seconds(20), [&](comm::Communicator& world) {
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const nn::TokenView mine = partition.view(world.rank());
    nn::Qkv heads = problem.heads(mine);
    heads.q = problem.heads(partition.view(0)).q;  // all ranks use the queries of rank 0
    const auto attention = query_ring(geometry, world, partition);
    seen[static_cast<size_t>(world.rank())] = attention->attend(0, mine, heads).to_floats();
  });
  EXPECT_EQ(seen[1], seen[0]);
  EXPECT_EQ(seen[2], seen[0]);
}

// (R - 1) t b d of queries, and 4 (p - t) (d + h) of results for other ranks' queries, h heads;
// twice.
TEST(QueryRing, SendsWhatItsFormulaSays) {
  for (Problem problem : over_ranks::uneven_problems())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int ranks : {2, 3, 5}) {
        problem.dtype = dtype;
        const Partition partition(of(ranks, 2), problem.work);
        int64_t all = 0;
        for (int r = 0; r < ranks; ++r) all += token_counts(problem, partition.view(r)).second;
        const auto sent = over_ranks::run(problem, of(ranks, 2), query_ring);
        for (int r = 0; r < ranks; ++r) {
          const int64_t mine = token_counts(problem, partition.view(r)).second;
          const auto& rank = sent[static_cast<size_t>(r)].sent;
          EXPECT_EQ(rank.at("ring queries").bytes,
                    2 * (ranks - 1) * mine * problem.channels() * int64_t(tensor::size_of(dtype)));
          EXPECT_EQ(rank.at("ring answers").bytes,
                    2 * 4 * (all - mine) * (problem.channels() + problem.site.heads));
          for (const char* tag : {"ring queries", "ring answers"})
            EXPECT_EQ(rank.at(tag).messages, 2 * (ranks - 1));
        }
      }
}

}  // namespace
}  // namespace tessera::parallel
