#include "cluster/gather_reports.h"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/threads/launch.h"

namespace tessera::cluster {
namespace {

using namespace std::chrono_literals;

TEST(GatherReports, RankZeroHasTheSums) {
  comm::threads::run(3, 10s, [](comm::Communicator& world) {
    Report report;
    const int rank = world.rank();
    Report::Layer layer;
    layer.block = 0;
    layer.mean_experts = 0.5;
    layer.tokens = 10 + rank;
    layer.assignments = 5;
    layer.ages = std::vector<int64_t>(static_cast<size_t>(rank), 2);
    layer.oldest = rank;
    report.layers = {layer};
    report.traffic[{"dispatch", 4}] = {1, 100, 0.25, 0.5, TrafficKind::decode};
    report.expert_load = {1, rank};
    report.kept_row_bytes = 10 * rank;
    report.launches = {{"fused experts", 2 + rank}};
    report.incast = {.most = 30 - rank, .bound = 40};
    report.per_rank = {{{.weights = 100 + rank, .kv = 3, .total = 200 + rank}, 1.5 * rank}};
    if (rank > 0) report.per_rank[0].streamed = {7, 6, 5, 4, int64_t{1} << 40};
    gather_reports(world, report);
    if (rank != 0) return;
    ASSERT_EQ(report.layers.size(), 1u);
    EXPECT_DOUBLE_EQ(report.layers[0].mean_experts, 1.5);
    EXPECT_EQ(report.layers[0].tokens, 33);
    EXPECT_EQ(report.layers[0].assignments, 15);
    EXPECT_EQ(report.layers[0].ages, (std::vector<int64_t>{4, 2}));
    EXPECT_EQ(report.layers[0].oldest, 2);
    EXPECT_EQ(report.traffic.at({"dispatch", 4}).bytes, 300);
    EXPECT_DOUBLE_EQ(report.traffic.at({"dispatch", 4}).wait_seconds, 0.75);
    EXPECT_EQ(report.traffic.at({"dispatch", 4}).kind, TrafficKind::decode);
    EXPECT_EQ(report.expert_load, (std::vector<int64_t>{3, 3}));
    EXPECT_EQ(report.kept_row_bytes, 20);
    EXPECT_EQ(report.launches, (std::map<std::string, int64_t>{{"fused experts", 9}}));
    EXPECT_EQ(report.incast.most, 30);
    EXPECT_EQ(report.incast.bound, 40);
    ASSERT_EQ(report.per_rank.size(), 3u);
    for (int r = 0; r < 3; ++r) {
      const Report::Rank& one = report.per_rank[static_cast<size_t>(r)];
      EXPECT_EQ(one.peak_bytes, (MemoryPeaks{.weights = 100 + r, .kv = 3, .total = 200 + r}));
      EXPECT_EQ(one.flops, 1.5 * r);
      EXPECT_EQ(one.streamed.has_value(), r > 0);
      if (r == 0) continue;
      EXPECT_EQ(one.streamed->all, 7);
      EXPECT_EQ(one.streamed->resident, 6);
      EXPECT_EQ(one.streamed->hits, 5);
      EXPECT_EQ(one.streamed->misses, 4);
      EXPECT_EQ(one.streamed->bytes, int64_t{1} << 40);
    }
  });
}

TEST(GatherReports, AnotherRankKnowsTheNegativeBranch) {
  comm::threads::run(2, 10s, [](comm::Communicator& world) {
    Report report;
    Report::Reused& reused = report.reused.emplace();
    reused.flops_saved = 2;
    reused.blocks_computed = 3 + world.rank();
    reused.blocks_reused = 1;
    (world.rank() == 0 ? reused.computed_blocks : reused.negative_computed_blocks) = {{0, 1}, {}};
    (world.rank() == 0 ? reused.changes : reused.negative_changes) = {std::nan(""), 0.25};
    gather_reports(world, report);
    if (world.rank() != 0) return;
    EXPECT_EQ(reused.negative_computed_blocks, reused.computed_blocks);
    ASSERT_EQ(reused.negative_changes.size(), 2u);
    EXPECT_TRUE(std::isnan(reused.negative_changes[0]));
    EXPECT_EQ(reused.negative_changes[1], 0.25);
    EXPECT_EQ(reused.flops_saved, 4);
    EXPECT_EQ(reused.blocks_computed, 7);
    EXPECT_EQ(reused.blocks_reused, 2);
  });
}

TEST(GatherReports, LayersOfStagesKeepTheirBlocks) {
  Report first, second, all;
  first.layers.resize(2);
  second.layers.resize(2);
  first.layers[1].block = 3;
  second.layers[0].block = 1;
  for (const Report* one : {&first, &second}) add_report(*one, all);
  EXPECT_EQ(all.layers[0].block, 1);
  EXPECT_EQ(all.layers[1].block, 3);
}

}  // namespace
}  // namespace tessera::cluster
