#include "runtime/sharded_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "load/held_weights.h"
#include "load/meta_weights.h"
#include "models/named_noise.h"
#include "models/tiny_networks.h"
#include "tessera/error.h"
#include "whole/plans/every_network.h"

// shard=N in every image and video network: the latents of a single rank after every step with any
// other axis, and a rank's memory and traffic.
namespace tessera::pipeline {
namespace {

// Bytes of each block in bf16.
std::vector<int64_t> block_bytes(const Subject& run) {
  const auto meta = std::make_shared<load::MetaWeights>(DType::f32);
  std::vector<int64_t> bytes;
  for (int64_t b = 0; b < run.spec().blocks; ++b)
    bytes.push_back(runtime::BlockLayout(run.spec(), meta, DType::bf16,
                                         runtime::one_block(run.spec().whole(), b))
                        .bytes());
  return bytes;
}

class FsdpNetwork : public testing::TestWithParam<size_t> {
 protected:
  Subject subject(DType dtype) const { return Subject(kNetworks[GetParam()], dtype); }
  bool has_experts() const { return GetParam() == 0; }
};
INSTANTIATE_TEST_SUITE_P(Shard, FsdpNetwork, testing::Range<size_t>(0, 6));

TEST_P(FsdpNetwork, GivesTheBitsOfOneRank) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run = subject(dtype);
    const auto one = run({}).steps;
    for (const char* plan :
         {"shard=2", "shard=3", "shard=8", "cfg=2,shard=2", "ulysses=2,shard=2",
          "ulysses=3,shard=3", "data=2,shard=2", "cfg=2,ulysses=2,shard=2,order=shard+cfg",
          "pipefusion=2,patches=1,shard=2"})
      EXPECT_EQ(run({plan}).steps, one) << run.name << ", " << plan;
    EXPECT_EQ(run({"shard=4", false}).steps, run({.guided = false}).steps) << run.name;
  }
}

TEST_P(FsdpNetwork, GoesWithWhatIsStaleOrRounded) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run = subject(dtype);
    const auto same = [&](const char* plan, const char* as) {
      EXPECT_EQ(run({plan}).steps, run({as}).steps) << run.name << ", " << plan;
    };
    same("patches=3,shard=2", "patches=3");
    same("pipefusion=2,patches=2,shard=2", "patches=2");
    same("ring=2,shard=2", "ring=2");
    same("tensor=2,shard=2", "tensor=2");
    same("distrifusion=2,shard=2", "shards=2");
    same("shards=3,shard=3", "shards=3");
    if (!has_experts()) continue;
    same("data=2,expert=2,shard=2", "");
    same("ulysses=2,expert=2,shard=2,moe=fused", "");
    same("data=2,expert=2,shard=2,schedule=interweaved", "schedule=interweaved");
  }
}

// Each block's other runs come once in each call of the network; nothing is sent in vain.
TEST_P(FsdpNetwork, SendsEachBlockOnceACall) {
  const Subject run = subject(DType::bf16);
  const std::vector<int64_t> blocks = block_bytes(run);
  const int64_t bytes = std::accumulate(blocks.begin(), blocks.end(), int64_t{0});
  for (const auto& [plan, ranks, calls] : {std::tuple{"shard=2", 2, kSteps},
                                           {"shard=3", 3, kSteps},
                                           {"shard=2,patches=3", 2, 1 + 3 * (kSteps - 1)},
                                           {"cfg=2,shard=2", 2, kSteps}}) {
    int64_t sent = 0, messages = 0;
    for (const comm::Ledger& ledger : run({plan}).sent)
      for (const auto& [key, entry] : ledger.entries())
        if (key.first == "weights" && key.second >= 0)
          sent += entry.bytes, messages += entry.messages;
    const int groups = parse_plan(plan).world() / ranks;
    EXPECT_EQ(sent, groups * calls * (ranks - 1) * bytes) << run.name << ", " << plan;
    EXPECT_EQ(messages, groups * calls * ranks * (ranks - 1) * run.spec().blocks)
        << run.name << ", " << plan;
  }
}

// Besides the weights around the blocks, most of these small networks: an Nth of the blocks, and
// two whole blocks in passing. For published sizes see spread_denoiser_test.cpp.
TEST_P(FsdpNetwork, HoldsAPartOfTheBlocksAndTwoOfThem) {
  const Subject run = subject(DType::bf16);
  const std::vector<int64_t> blocks = block_bytes(run);
  const int64_t all = std::accumulate(blocks.begin(), blocks.end(), int64_t{0});
  const int64_t largest = *std::max_element(blocks.begin(), blocks.end());
  // Tables in stored form are f32 here, but predicted as bf16.
  const int64_t fixed = 2 * runtime::part_weights(run.spec(), DType::bf16).fixed;
  for (const int ranks : {2, 4}) {
    const Plan plan = parse_plan("shard=" + std::to_string(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      tensor::Scope scope = tensor::current_scope();
      scope.memory = std::make_shared<tensor::MemoryTracker>();
      const tensor::BindScope bind(scope);
      const auto network = shard_network(run.spec(), plan, run.geometry(), rank, DType::bf16);
      EXPECT_LE(scope.memory->current(tensor::MemoryClass::weights),
                fixed + all / ranks + 64 * std::ssize(blocks))
          << run.name << ", rank " << rank << " of " << ranks;
    }
    for (const int64_t buffers : run({to_string(plan)}).buffers)
      EXPECT_LE(buffers, 2 * largest + fixed) << run.name << " on " << ranks;
  }
}

// The runs of a layout together are the whole block, and its weights equal those from files.
TEST_P(FsdpNetwork, RunsOfABlockPutTogetherAreAllOfIt) {
  const Subject run = subject(DType::bf16);
  const auto meta = std::make_shared<load::MetaWeights>(DType::f32);
  const models::NamedNoise weights;
  const nn::Portion first = runtime::one_block(run.spec().whole(), 0);
  const runtime::BlockLayout layout(run.spec(), meta, DType::bf16, first);
  const auto packed = [&](nn::Range run_of) {
    return layout.packed(weights, run_of, tensor::Device::cpu);
  };
  const Tensor all = packed({0, layout.bytes()});
  EXPECT_EQ(layout.bytes() % 64, 0);
  for (const int count : {2, 3, 7}) {
    int64_t at = 0;
    for (int r = 0; r < count; ++r) {
      const nn::Range mine = layout.run_of({r, count});
      const Tensor part = packed(mine);
      EXPECT_EQ(mine.begin, at);
      EXPECT_LE(part.bytes(), layout.bytes() / count + 64);
      EXPECT_EQ(
          std::memcmp(part.raw(), all.data<std::byte>() + at, static_cast<size_t>(part.bytes())),
          0);
      at += part.bytes();
    }
    EXPECT_EQ(at, layout.bytes());
  }
  EXPECT_NO_THROW(run.spec().make(*layout.over(all), first, DType::bf16));
  EXPECT_THROW(
      run.spec().make(*layout.over(all), runtime::one_block(run.spec().whole(), 1), DType::bf16),
      Error);
}

TEST(ShardedSource, WithoutSomebodyWhoGathersSaysSo) {
  const Subject run(kNetworks[1], DType::f32);
  const models::NamedNoise weights;
  const runtime::ShardedSource source(run.spec(), std::make_shared<load::MetaWeights>(DType::f32),
                                      weights, DType::f32, run.spec().whole(), {0, 2},
                                      tensor::Device::cpu);
  nn::LocalAttention attention(run.geometry());
  nn::MoeLayers experts;
  try {
    (void)source.weights(0, {attention, experts});
    FAIL() << "a block came from nowhere";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
  }
}

// Another rank of the process may pack from the same weight, and end later.
TEST(BlockLayout, CountsAWeightWhileItTakesItsRunWhoeverElseUsesIt) {
  const Subject run(kNetworks[1], DType::f32);
  const auto meta = std::make_shared<load::MetaWeights>(DType::f32);
  const runtime::BlockLayout layout(run.spec(), meta, DType::f32,
                                    runtime::one_block(run.spec().whole(), 0));
  const auto held_after = [&](const nn::Weights& weights, int64_t& peak) {
    tensor::Scope scope = tensor::current_scope();
    scope.memory = std::make_shared<tensor::MemoryTracker>();
    const tensor::BindScope bound(scope);
    const Tensor mine = layout.packed(weights, layout.run_of({0, 2}), tensor::Device::cpu);
    EXPECT_EQ(scope.memory->current(), mine.bytes());
    peak = scope.memory->peak();
  };
  int64_t alone = 0, shared = 0;
  held_after(models::NamedNoise(), alone);
  held_after(load::HeldWeights(std::make_shared<models::NamedNoise>()), shared);
  EXPECT_EQ(shared, alone);
  EXPECT_LT(alone, layout.bytes()) << "one weight at a time";
}

TEST(BlockLayout, RefusesWeightsThatAreNotWhatWasPredicted) {
  const Subject run(kNetworks[1], DType::f32);
  const models::NamedNoise weights;
  const nn::Portion first = runtime::one_block(run.spec().whole(), 0);
  // Tables in stored form are f32 here, but predicted as bf16.
  const runtime::BlockLayout layout(run.spec(), std::make_shared<load::MetaWeights>(DType::bf16),
                                    DType::f32, first);
  try {
    (void)layout.packed(weights, {0, layout.bytes()}, tensor::Device::cpu);
    FAIL() << "other weights than predicted were taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model) << error.what();
  }
}

}  // namespace
}  // namespace tessera::pipeline
