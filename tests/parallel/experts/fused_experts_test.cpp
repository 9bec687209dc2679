#include "parallel/experts/fused_experts.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/simulated/launch.h"
#include "comm/threads/launch.h"
#include "nn/moe/moe_layers.h"
#include "nn/random_bank.h"
#include "ops/elementwise.h"
#include "parallel/experts/measured_ranks.h"
#include "parallel/experts/scheduled.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using namespace std::chrono_literals;
using namespace nn::random_bank;

constexpr int kExperts = 6, kTokens = 150, kSites = 2;

// A rank's work in a layer of each site.
struct Did {
  std::vector<std::vector<float>> made;
  std::vector<nn::MoeEvent> events;
  std::map<std::pair<std::string, int>, comm::Ledger::Entry> sent;
};

nn::ExpertWeights small_bank(const std::vector<bool>& held) {
  auto routed = std::make_shared<std::vector<ops::Expert>>();
  for (uint32_t e = 0; e < kExperts; ++e)
    routed->push_back(held[e]
                          ? ops::Expert{ops::pack_paired_weight(normal({16, 32}, e),
                                                                normal({16, 32}, e + 9), DType::i8),
                                        ops::pack_weight(normal({32, 16}, e + 20), DType::i8)}
                          : ops::Expert{});
  return {std::move(routed), {}};
}

std::vector<Did> layers(int ranks, bool fused, DType dtype, bool int8, int blocks = 0) {
  std::vector<Did> all(static_cast<size_t>(ranks));
  comm::threads::run(ranks, 60s, [&](comm::Communicator& world) {
    const std::vector<int> owner = experts_in_blocks(kExperts, ranks);
    std::vector<bool> held;
    for (const int o : owner) held.push_back(o == world.rank());
    const nn::Range run = nn::split({0, kTokens}, ranks, world.rank());
    std::unique_ptr<nn::ExpertBackend> backend;
    if (fused)
      backend =
          std::make_unique<FusedExperts>(world, FusedExperts::Size{owner, kTokens, 3}, blocks);
    else
      backend = std::make_unique<ScheduledExchange>(Plan{}, Timetable({}, kSites, 1),
                                                    ExpertExchange(&world, owner));
    nn::MoeLayers experts(std::make_shared<nn::VanillaPolicy>(), std::move(backend));
    experts.begin_step({0, 1, true, true});
    Did& did = all[static_cast<size_t>(world.rank())];
    for (int site = 0; site < kSites; ++site) {
      const nn::TokenView view{-1, {0}, {}, {{0, run}}, {}};
      const Tensor x = ops::cast(normal({kTokens, 32}, uint32_t(site)), dtype);
      did.made.push_back(
          experts
              .apply(site, view, x.slice(0, run.begin, run.end),
                     router(kExperts, 3, uint32_t(site)),
                     int8 ? small_bank(held) : bank(kExperts, uint32_t(site), dtype, held))
              .to_floats());
    }
    experts.finish();
    did.events = experts.log().events();
    for (const auto& [key, entry] : world.ledger().entries())
      if (key.second >= 0) did.sent[key] = entry;
  });
  return all;
}

void expect_exchange() {
  for (const bool int8 : {false, true})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int ranks : {1, 2, 3, 4}) {
        const std::vector<Did> bulk = layers(ranks, false, dtype, int8),
                               fused = layers(ranks, true, dtype, int8, ranks == 3 ? 3 : 0);
        for (size_t r = 0; r < bulk.size(); ++r) {
          EXPECT_EQ(fused[r].made, bulk[r].made) << ranks << " ranks";
          ASSERT_EQ(fused[r].events.size(), bulk[r].events.size());
          for (size_t i = 0; i < bulk[r].events.size(); ++i) {
            EXPECT_EQ(fused[r].events[i].assignments, bulk[r].events[i].assignments);
            EXPECT_EQ(fused[r].events[i].distinct, bulk[r].events[i].distinct);
            EXPECT_EQ(fused[r].events[i].tokens, bulk[r].events[i].tokens);
          }
          const int64_t row = 32 * size_of(dtype);
          ASSERT_EQ(fused[r].sent.size(), bulk[r].sent.size());
          for (const auto& [key, entry] : bulk[r].sent) {
            const int64_t rows = entry.bytes / (key.first == "dispatch" ? row + 4 : row);
            EXPECT_EQ(fused[r].sent.at(key).bytes, rows * row) << key.first;
            EXPECT_GE(fused[r].sent.at(key).messages, (rows + 63) / 64) << key.first;
          }
        }
      }
}

TEST(FusedExperts, AreTheExchangeBitByBitAndSendNothingButItsRows) { expect_exchange(); }

TEST(FusedExperts, AndSoWhereRowsTravelAsMessages) {
  ::setenv("TESSERA_HEAP", "messages", 1);
  expect_exchange();
  ::unsetenv("TESSERA_HEAP");
}

// Bytes of a layer in both directions, limited by the places of a run.
TEST(FusedExperts, SayHowMuchMayComeAtOnce) {
  class AllToTheFirst final : public nn::ExpertPolicy {
    ops::Routing choose(const nn::MoeCall&, const Tensor& tokens, const Tensor&,
                        const ops::RoutingOptions&) const override {
      const Tensor weights = Tensor::empty({tokens.size(0), 1}, DType::f32);
      std::fill_n(weights.data<float>(), weights.elements(), 1.0f);
      return {Tensor::zeros({tokens.size(0), 1}, DType::i32), weights};
    }
  };
  constexpr int64_t kMany = 20000, kRow = 32 * 4, kRun = (int64_t{2} << 20) / kRow;
  comm::threads::run(2, 60s, [&](comm::Communicator& world) {
    const nn::ExpertWeights weights = bank(kExperts, 1, DType::f32);
    const nn::Router gate_of = router(kExperts, 1, 1);
    FusedExperts experts(world, {experts_in_blocks(kExperts, 2), kMany, 1});
    const AllToTheFirst policy;
    const nn::TokenView view;
    nn::MoeLog log;
    int64_t most = 0;
    for (const int64_t tokens : {int64_t{10}, int64_t{3000}, int64_t{5}, kMany}) {
      const nn::MoeCall call{0, {0, 1, true, true}, view};
      (void)experts.run(call, Tensor::zeros({tokens, 32}, DType::f32),
                        nn::Gate(gate_of, policy, call), weights, log);
      // Rank 1 sends all its rows to rank 0, and receives as many results.
      most = std::max(most, std::min(tokens, kRun));
      EXPECT_EQ(log.most_coming(), most * kRow);
      EXPECT_EQ(log.coming_bound(), 2 * kRun * kRow);
    }
  });
}

// A rank's memory, independent of speed.
TEST(FusedExperts, BetweenLayersOnlyTheHeapStays) {
  int64_t peaks[2] = {0, 0};
  comm::threads::run(2, 60s, [&](comm::Communicator& world) {
    tensor::Scope scope = tensor::current_scope();
    scope.memory = std::make_shared<tensor::MemoryTracker>();
    const std::vector<int> owner = experts_in_blocks(kExperts, 2);
    const nn::ExpertWeights weights = bank(kExperts, 1, DType::f32);
    const nn::Router gate_of = router(kExperts, 2, 1);
    const Tensor x = normal({kTokens, 32}, 1);
    const tensor::BindScope bound(scope);
    FusedExperts experts(world, {owner, kTokens, 2});
    const nn::VanillaPolicy policy;
    const nn::TokenView view;
    nn::MoeLog log;
    int64_t heap = 0;
    for (int layer = 0; layer < 20; ++layer) {
      const nn::MoeCall call{0, {layer, 20, true, true}, view};
      (void)experts.run(call, x, nn::Gate(gate_of, policy, call), weights, log);
      const int64_t now = scope.memory->current(tensor::MemoryClass::buffers);
      EXPECT_TRUE(layer == 0 || now == heap);
      heap = now;
      EXPECT_EQ(scope.memory->current(), heap);
    }
    EXPECT_EQ(heap, fused::Layout::dropless(2, kExperts / 2, kTokens * 2, 32 * 4, {64}).bytes());
    peaks[world.rank()] = scope.memory->peak();
  });
  EXPECT_EQ(peaks[0], peaks[1]) << "the same tokens";
}

struct Peaks {
  int64_t activations, buffers, total;
  double flops;
  bool operator==(const Peaks&) const = default;
};

// Two layers on ranks with different numbers of tokens; their routers choose experts evenly.
std::vector<Peaks> peaks_on(tensor::Device where, int blocks) {
  constexpr int64_t kOf[] = {70, 0, 129};
  std::vector<tensor::Scope> scopes = measured_scopes();
  std::vector<nn::ExpertWeights> weights(3, bank_on(kExperts, where));
  const nn::Router same = even_router(kExperts, where);
  comm::simulated::run(scopes, 60s, [&](comm::Communicator& world) {
    const auto r = static_cast<size_t>(world.rank());
    const Tensor x = normal({kOf[r], 32}, 1).to(where);
    FusedExperts experts(world, {experts_in_blocks(kExperts, 3), 129, 2}, blocks);
    const nn::VanillaPolicy policy;
    const nn::TokenView view;
    nn::MoeLog log;
    for (int layer = 0; layer < 2; ++layer) {
      const nn::MoeCall call{0, {layer, 2, true, true}, view};
      (void)experts.run(call, x, nn::Gate(same, policy, call), weights[r], log);
    }
  });
  std::vector<Peaks> peaks;
  for (const tensor::Scope& scope : scopes)
    peaks.push_back({scope.memory->peak(tensor::MemoryClass::activations),
                     scope.memory->peak(tensor::MemoryClass::buffers), scope.memory->peak(),
                     scope.meter->total().flops});
  return peaks;
}

TEST(FusedExperts, ADryRunIsTheRun) {
  for (const int blocks : {1, 3}) {
    const auto did = peaks_on(tensor::Device::cpu, blocks),
               predicted = peaks_on(tensor::Device::meta, blocks);
    for (size_t r = 0; r < did.size(); ++r) {
      EXPECT_EQ(predicted[r].activations, did[r].activations) << r;
      EXPECT_EQ(predicted[r].buffers, did[r].buffers) << r;
      EXPECT_EQ(predicted[r].total, did[r].total) << r;
      EXPECT_EQ(predicted[r].flops, did[r].flops) << r;
    }
  }
}

// The heap does not grow with the rows that routing may send to a single rank.
TEST(FusedExperts, WhatIsOnItsWayToOneRankIsBounded) {
  constexpr int64_t kMany = 40000, kWide = 512;
  std::vector<tensor::Scope> scopes(2);
  for (tensor::Scope& scope : scopes) {
    scope.memory = std::make_shared<tensor::MemoryTracker>();
    scope.assumptions.expert_load = {1, 0, 0, 0, 0, 0};
  }
  const auto weight = [](int64_t n, int64_t k, bool paired) {
    const Tensor w = Tensor::empty({n, k}, DType::f32, tensor::Device::meta);
    return paired ? ops::pack_paired_weight(w, w, DType::f32) : ops::pack_weight(w, DType::f32);
  };
  const ops::Expert one{weight(16, kWide, true), weight(kWide, 16, false)};
  const nn::ExpertWeights weights{std::make_shared<std::vector<ops::Expert>>(kExperts, one), one};
  nn::Router same{weight(kExperts, kWide, false), {}};
  same.options.top_k = 2;
  comm::simulated::run(scopes, 60s, [&](comm::Communicator& world) {
    FusedExperts experts(world, {experts_in_blocks(kExperts, 2), kMany, 2});
    const nn::VanillaPolicy policy;
    const nn::TokenView view;
    nn::MoeLog log;
    const nn::MoeCall call{0, {0, 1, true, true}, view};
    (void)experts.run(call, Tensor::empty({kMany, kWide}, DType::f32, tensor::Device::meta),
                      nn::Gate(same, policy, call), weights, log);
    // Runs of 2 MiB, four for each of the ranks; a word or three for each of their tiles.
    const int64_t heap = tensor::current_scope().memory->current(tensor::MemoryClass::buffers);
    EXPECT_GE(heap, 4 * 2 * (int64_t{2} << 20));
    EXPECT_LE(heap, 4 * 2 * (int64_t{2} << 20) + 4096);
  });
}

TEST(FusedExperts, MoreTokensThanWereAgreedOnAreRefused) {
  comm::threads::run(1, 60s, [&](comm::Communicator& world) {
    FusedExperts experts(world, {std::vector<int>(kExperts), 4, 2});
    const nn::VanillaPolicy policy;
    const nn::TokenView view;
    const nn::Router gate_of = router(kExperts, 2, 1);
    const nn::MoeCall call{0, {}, view};
    nn::MoeLog log;
    try {
      (void)experts.run(call, normal({5, 32}, 1), nn::Gate(gate_of, policy, call),
                        bank(kExperts, 1, DType::f32), log);
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      EXPECT_NE(std::string(e.what()).find("at most 4 rows"), std::string::npos) << e.what();
    }
  });
}

}  // namespace
}  // namespace tessera::parallel
