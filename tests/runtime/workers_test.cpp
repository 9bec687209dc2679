#include "runtime/workers.h"

#include <gtest/gtest.h>

namespace tessera::runtime {
namespace {

TEST(Workers, ThreadsAreDividedOverTheRanks) {
  RunOptions options{.threads = 5};
  options.plan = parse_plan("expert=2");
  Workers workers;
  workers.start(options);
  ASSERT_EQ(workers.ranks.size(), 2u);
  EXPECT_EQ(workers.scope().pool->threads(), 5);
  EXPECT_EQ(workers.scope(1).pool->threads(), 2);
  EXPECT_EQ(workers.scope(1).meter, nullptr) << "without a request nothing is counted";
  EXPECT_EQ(workers.scope(1).memory, nullptr);
  const RunMeters one(2), other(2);
  EXPECT_NE(workers.scope(0, &one).memory, workers.scope(1, &one).memory);
  EXPECT_NE(workers.scope(0, &one).memory, workers.scope(0, &other).memory);
}

TEST(Workers, OneRankIsTheProcess) {
  Workers workers;
  workers.start({.threads = 3});
  EXPECT_TRUE(workers.ranks.empty());
  const RunMeters meters(workers.ranks.size());
  const tensor::Scope rank = workers.scope(0, &meters), process = workers.scope(-1, &meters);
  EXPECT_EQ(rank.pool, process.pool);
  process.memory->add(tensor::MemoryClass::weights, 3);
  rank.memory->add(tensor::MemoryClass::kv, 5);
  EXPECT_EQ(rank.memory->peak(), 5);
  EXPECT_EQ(process.memory->peak(), 8);
}

TEST(RunMeters, OfARequestSumUpThoseOfItsRanks) {
  const RunMeters meters(2);
  meters.ranks[0].work->add("matmul", 3, 1);
  meters.ranks[1].work->add("matmul", 4, 1);
  EXPECT_EQ(meters.all->total().flops, 7);
  EXPECT_EQ(meters.ranks[1].work->total().flops, 4);
  EXPECT_EQ(RunMeters(2).all->total().flops, 0);
  meters.ranks[1].memory->add(tensor::MemoryClass::kv, 7);
  EXPECT_EQ(meters.memory->peak(), 7);
  EXPECT_EQ(meters.ranks[0].memory->peak(), 0);
}

TEST(RunMeters, AnewTheyCountInTheSameWhole) {
  const RunMeters meters(2);
  meters.ranks[1].work->add("matmul", 4, 1);
  meters.ranks[1].memory->add(tensor::MemoryClass::kv, 7);
  const RunMeters later = meters.anew();
  EXPECT_EQ(later.ranks[1].memory->peak(), 0);
  later.ranks[1].work->add("matmul", 2, 1);
  later.ranks[1].memory->add(tensor::MemoryClass::kv, 3);
  EXPECT_EQ(later.ranks[1].work->total().flops, 2);
  EXPECT_EQ(meters.all->total().flops, 6);
  EXPECT_EQ(meters.memory->peak(), 10);
}

}  // namespace
}  // namespace tessera::runtime
