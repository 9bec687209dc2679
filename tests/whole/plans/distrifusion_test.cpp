#include <gtest/gtest.h>

#include <cmath>

#include "whole/plans/every_network.h"

// distrifusion=N and shards=M in every image and video network: after every step, ranks are
// bit-identical to a single rank with as many shards.
namespace tessera {
namespace {

constexpr int kStale = 5;  // steps

using Asked = Subject::Asked;

Asked asked(const std::string& plan, bool guided = true) {
  return {plan, guided, 0, sample::rectified_flow(kStale)};
}

std::string on(int ranks, const std::string& shards) {
  return ranks == 1 ? shards : "distrifusion=" + std::to_string(ranks) + "," + shards;
}

class ShardedNetwork : public testing::TestWithParam<size_t> {
 protected:
  Subject subject(DType dtype) const { return Subject(kNetworks[GetParam()], dtype); }
};
INSTANTIATE_TEST_SUITE_P(DistriFusion, ShardedNetwork, testing::Range<size_t>(0, 6));

TEST_P(ShardedNetwork, RanksGiveTheBitsOfShardsOnOneRank) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run = subject(dtype);
    for (const auto& [shards, ranks] : {std::pair{2, 2}, {3, 3}, {4, 4}, {4, 2}, {6, 3}, {8, 8}})
      for (const char* warmup : {",warmup=1", ",warmup=2,sync-every=3", ",cooldown=1"}) {
        const std::string text = "shards=" + std::to_string(shards) + warmup;
        const auto one = run(asked(text)), many = run(asked(on(ranks, text)));
        EXPECT_EQ(many.steps, one.steps) << run.name << ", " << ranks << " ranks, " << text;
        EXPECT_EQ(many.predictions, one.predictions) << run.name << ", " << ranks << ", " << text;
      }
    EXPECT_EQ(run(asked("distrifusion=3")).steps, run(asked("shards=3")).steps)
        << run.name << ": as many shards as ranks";
  }
}

TEST_P(ShardedNetwork, ShardsAreStaleAfterTheWarmUp) {
  const Subject run = subject(DType::f32);
  const auto one = run(asked("")).steps;
  EXPECT_EQ(run(asked("shards=1")).steps, one) << run.name;
  for (const char* plan : {"shards=2", "shards=3,warmup=2", "distrifusion=2"}) {
    const auto stale = run(asked(plan)).steps;
    const auto fresh = static_cast<size_t>(parse_plan(plan).warmup);
    for (size_t s = 0; s < fresh; ++s) EXPECT_EQ(stale[s], one[s]) << run.name << ", " << plan;
    double most = 0;
    for (size_t s = 0; s < one.size(); ++s)
      for (size_t i = 0; i < one[s].size(); ++i)
        most = std::max(most, std::abs(double(stale[s][i]) - double(one[s][i])));
    EXPECT_GT(most, 1e-4) << run.name << ", " << plan;
  }
  for (const char* plan :
       {"shards=3,warmup=5", "distrifusion=2,sync-every=1", "shards=2,cooldown=5"})
    EXPECT_EQ(run(asked(plan)).steps, one) << run.name << ", nothing is stale under " << plan;
}

/// A run without movement: old keys and values equal those of the step.
class Still : public sample::Sampler {
 public:
  int steps() const override { return kStale; }
  float timestep(int) const override { return 400; }
  bool needs_noise(int) const override { return false; }
  Tensor step(int, const Tensor&, const Tensor& x, const Tensor&, sample::History&) const override {
    return x;
  }
};

TEST_P(ShardedNetwork, ShardsOfALatentThatDoesNotMoveAreFresh) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run = subject(dtype);
    const auto still = std::make_shared<Still>();
    const auto one = run({"", true, 0, still}).predictions;
    for (const char* plan : {"shards=3", "distrifusion=2,shards=4"})
      EXPECT_EQ(run({plan, true, 0, still}).predictions, one) << run.name << ", " << plan;
  }
}

TEST_P(ShardedNetwork, GoesWithDataAndCfg) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run = subject(dtype);
    const auto one = run(asked("shards=4")).steps;
    for (const char* plan :
         {"cfg=2,shards=4", "data=2,shards=4", "cfg=2,distrifusion=2,shards=4",
          "data=2,cfg=2,distrifusion=4", "cfg=2,distrifusion=4,order=distrifusion+cfg"})
      EXPECT_EQ(run(asked(plan)).steps, one) << run.name << ", " << plan;
    EXPECT_EQ(run(asked("distrifusion=4", false)).steps, run(asked("shards=4", false)).steps)
        << run.name << ", without guidance";
  }
}

// 2 S (T + text) keys of d channels for each attention, in bf16, on each rank: no more and no less.
TEST_P(ShardedNetwork, KeepsKeysAndValuesAsTheFormulaSays) {
  const Subject run = subject(DType::bf16);
  for (const char* text : {"shards=3", "distrifusion=3", "distrifusion=2,shards=4", "shards=1",
                           "cfg=2,distrifusion=2", "distrifusion=2,warmup=5"}) {
    const Plan plan = parse_plan(text);
    const parallel::Workload work = run.workload(asked(text));
    int64_t expected = 0;
    for (const nn::AttentionSite& site : run.geometry().attention)
      expected += 2 * (2 * kSamples / plan.cfg) * (work.tokens() + (site.joint ? work.prefix : 0)) *
                  int64_t{site.kv_heads} * site.head_dim * 2;
    if (plan.shard_count() == 1) expected = 0;
    for (const int64_t kept : run(asked(text)).kept)
      EXPECT_EQ(kept, expected) << run.name << ", " << text;
  }
}

// In a stale step each shard reads its own tokens, and the others' of the previous step.
TEST_P(ShardedNetwork, SaysHowOldTheKeysAreThatItReads) {
  const Subject run = subject(DType::f32);
  for (const auto& [shards, ranks] : {std::pair{3, 1}, {3, 3}, {4, 2}}) {
    const std::string text = on(ranks, "shards=" + std::to_string(shards) + ",warmup=2");
    const parallel::Workload work = run.workload(asked(text));
    int64_t all = 0;
    for (const nn::AttentionSite& site : run.geometry().attention)
      all += 2 * kSamples * (work.tokens() + (site.joint ? work.prefix : 0));
    std::vector<int64_t> found(2);
    for (const auto& ages : run(asked(text)).ages)
      for (size_t age = 0; age < ages.size(); ++age) found.at(age) += ages[age];
    // A fresh step is a call per rank, a later step a call per shard.
    const int64_t stale = kStale - 2;
    EXPECT_EQ(found,
              (std::vector<int64_t>{2 * ranks * all + stale * all, stale * (shards - 1) * all}))
        << run.name << ", " << text;
  }
}

// Each rank sends its keys and values, including text, to all others after every step with a later
// read; bytes and messages do not depend on the number of shards.
TEST_P(ShardedNetwork, SendsWhatTheFormulaSays) {
  const Subject run = subject(DType::bf16);
  for (const char* text :
       {"distrifusion=2", "distrifusion=3,warmup=2", "distrifusion=2,shards=6"}) {
    const Plan plan = parse_plan(text);
    const parallel::Workload work = run.workload(asked(text));
    const parallel::Partition partition(plan, work);
    const auto ran = run(asked(text));
    for (int r = 0; r < plan.world(); ++r) {
      const nn::TokenView mine = partition.view(r);
      std::map<int, std::pair<int64_t, int64_t>> expected, found;
      const int64_t others = plan.world() - 1, sends = kStale - 1;
      for (const nn::AttentionSite& site : run.geometry().attention) {
        const int64_t t = nn::token_count(nn::tokens_of(mine, site.joint));
        expected[site.block].first += sends * others;
        expected[site.block].second +=
            sends * others * 2 * t * int64_t{site.kv_heads} * site.head_dim * 2;
      }
      for (const auto& [key, entry] : ran.sent[static_cast<size_t>(r)].entries()) {
        if (key.first == "keys and values") found[key.second] = {entry.messages, entry.bytes};
        EXPECT_TRUE(key.first == "keys and values" || key.first == "go") << key.first;
      }
      EXPECT_EQ(found, expected) << run.name << ", " << text << ", rank " << r;
    }
  }
}

TEST(DistriFusion, ExpertsAreSpreadOverTheSameRanks) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run(kNetworks[0], dtype);
    for (const char* schedule :
         {"", ",schedule=interweaved", ",schedule=displaced,warmup=2", ",conditional=random",
          ",schedule=interweaved,conditional=low,sync=deep"}) {
      const auto one = run(asked(std::string("shards=4") + schedule)).steps;
      for (const char* plan : {"distrifusion=4,expert=2", "distrifusion=2,shards=4,expert=2",
                               "cfg=2,shards=4,expert=2", "cfg=2,distrifusion=2,shards=4,expert=4",
                               "data=2,distrifusion=4,expert=4"})
        EXPECT_EQ(run(asked(std::string(plan) + schedule)).steps, one) << plan << schedule;
    }
  }
}

// 128 tokens in shards of 64.
TEST(DistriFusion, AnAdaptiveScheduleChoosesTheSameBetweenItsBlocks) {
  const Subject run(kNetworks[0], DType::bf16, 16, 32);
  const std::string adaptive = "shards=2,schedule=adaptive,budget=40";
  const auto one = run(asked(adaptive)).steps;
  EXPECT_NE(one, run(asked("shards=2")).steps) << "old results are used";
  for (const char* plan : {",distrifusion=2", ",distrifusion=2,expert=2", ",cfg=2,distrifusion=2"})
    EXPECT_EQ(run(asked(adaptive + plan)).steps, one) << plan;
}

}  // namespace
}  // namespace tessera
