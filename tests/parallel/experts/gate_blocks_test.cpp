// The gate of a fused layer in blocks of tokens.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "comm/collectives.h"
#include "comm/threads/launch.h"
#include "nn/moe/backend.h"
#include "nn/random_bank.h"
#include "parallel/experts/exchange.h"
#include "parallel/experts/fused_experts.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using namespace std::chrono_literals;
using namespace nn::random_bank;

constexpr int kExperts = 4;

std::vector<bool> held_by(comm::Communicator& world) {
  std::vector<bool> held;
  for (const int owner : experts_in_blocks(kExperts, world.size()))
    held.push_back(owner == world.rank());
  return held;
}

nn::Tensor layer(FusedExperts& experts, const Tensor& x, const nn::Router& router_of,
                 const nn::ExpertPolicy& policy, const nn::ExpertWeights& weights) {
  const nn::TokenView view;
  const nn::MoeCall call{0, {0, 1, true, true}, view};
  nn::MoeLog log;
  return experts.run(call, x, nn::Gate(router_of, policy, call), weights, log);
}

std::vector<float> alone(const Tensor& x, const nn::Router& router_of) {
  const nn::TokenView view;
  const nn::MoeCall call{0, {0, 1, true, true}, view};
  const nn::VanillaPolicy policy;
  nn::MoeLog log;
  return nn::LocalBackend()
      .run(call, x, nn::Gate(router_of, policy, call), bank(kExperts, 1, DType::f32), log)
      .to_floats();
}

// The order of the begins of tasks of a kind, in all lanes.
class Order final : public fused::TaskWatch {
 public:
  Order(std::vector<std::pair<int, fused::TaskKind>>& all, int lane) : all_(all), lane_(lane) {}
  void begins(int, const fused::Task& task) override { all_.emplace_back(lane_, task.kind); }
  void ends(int, const fused::Task&) override {}
  void polled(const fused::Coordinator&) override {}

 private:
  std::vector<std::pair<int, fused::TaskKind>>& all_;
  const int lane_;
};

TEST(GateBlocks, RowsOfABlockLeaveBeforeTheNextBlockIsRouted) {
  constexpr int kBlocks = 4;
  comm::threads::run(2, 60s, [&](comm::Communicator& world) {
    const nn::ExpertWeights weights = bank(kExperts, 1, DType::f32, held_by(world));
    const nn::VanillaPolicy policy;
    const nn::Router router_of = router(kExperts, 2, 3);
    const Tensor x = normal({200, 32}, uint32_t(world.rank()));
    FusedExperts experts(world, {experts_in_blocks(kExperts, 2), 200, 2}, kBlocks);
    (void)layer(experts, x, router_of, policy, weights);
    std::vector<std::pair<int, fused::TaskKind>> began;  // by a single thread
    std::vector<Order> watches;
    watches.reserve(kBlocks);
    for (int lane = 0; lane < kBlocks; ++lane) {
      watches.emplace_back(began, lane);
      experts.lanes()->at(lane).watch(&watches.back());
    }
    const auto made = layer(experts, x, router_of, policy, weights).to_floats();
    EXPECT_EQ(made, alone(x, router_of));
    for (int lane = 0; lane + 1 < kBlocks; ++lane) {
      const auto at = [&](int of, fused::TaskKind kind) {
        return std::find(began.begin(), began.end(), std::pair(of, kind));
      };
      ASSERT_NE(at(lane, fused::TaskKind::dispatch), began.end()) << lane;
      EXPECT_LT(at(lane, fused::TaskKind::dispatch), at(lane + 1, fused::TaskKind::gate)) << lane;
    }
    comm::barrier(world);
  });
}

// Each choice waits for another choice on another thread.
class TwoAtOnce final : public nn::ExpertPolicy {
 public:
  ops::Routing choose(const nn::MoeCall&, const Tensor&, const Tensor& logits,
                      const ops::RoutingOptions& options) const override {
    std::unique_lock lock(mutex_);
    ++inside_;
    most_ = std::max(most_, inside_);
    came_.notify_all();
    (void)came_.wait_for(lock, 20s, [&] { return most_ > 1; });
    --inside_;
    lock.unlock();
    return ops::route(logits, options);
  }
  bool by_token() const override { return true; }
  int most() const { return most_; }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable came_;
  mutable int inside_ = 0, most_ = 0;
};

TEST(GateBlocks, ThreadsShareTheGate) {
  comm::threads::run(1, 60s, [&](comm::Communicator& world) {
    base::ThreadPool pool(3);
    tensor::Scope scope;
    scope.pool = &pool;
    const tensor::BindScope bound(scope);
    const TwoAtOnce policy;
    const nn::Router router_of = router(kExperts, 2, 3);
    const Tensor x = normal({120, 32}, 5);
    FusedExperts experts(world, {std::vector<int>(kExperts), 120, 2}, 3);
    EXPECT_EQ(layer(experts, x, router_of, policy, bank(kExperts, 1, DType::f32)).to_floats(),
              alone(x, router_of));
    EXPECT_GT(policy.most(), 1);
  });
}

// A router may have a separate input: each block takes a part of both.
TEST(GateBlocks, AnInputOfTheRouterIsCutAlike) {
  comm::threads::run(2, 60s, [&](comm::Communicator& world) {
    nn::Router router_of = router(kExperts, 2, 3);
    const int64_t tokens = world.rank() == 0 ? 90 : 7;  // fewer than blocks have rows
    router_of.features = normal({tokens, 32}, 17);
    const Tensor x = normal({tokens, 32}, uint32_t(world.rank()));
    const nn::VanillaPolicy policy;
    FusedExperts experts(world, {experts_in_blocks(kExperts, 2), 90, 2}, 4);
    EXPECT_EQ(layer(experts, x, router_of, policy, bank(kExperts, 1, DType::f32, held_by(world)))
                  .to_floats(),
              alone(x, router_of));
  });
}

TEST(GateBlocks, ManyRowsAreRoutedInBlocksAndAPolicyOverAllTokensIsNot) {
  class Whole final : public nn::ExpertPolicy {
    ops::Routing choose(const nn::MoeCall&, const Tensor&, const Tensor& logits,
                        const ops::RoutingOptions& options) const override {
      return ops::route(logits, options);
    }
  };
  comm::threads::run(1, 60s, [&](comm::Communicator& world) {
    const nn::Router router_of = router(kExperts, 2, 3);
    const nn::ExpertWeights weights = bank(kExperts, 1, DType::f32);
    const nn::VanillaPolicy vanilla;
    const Whole whole;
    for (const auto& [tokens, blocks] : {std::pair{200, 1}, {600, 2}, {5000, 4}}) {
      FusedExperts experts(world, {std::vector<int>(kExperts), tokens, 2});
      const Tensor x = normal({tokens, 32}, 5);
      EXPECT_EQ(layer(experts, x, router_of, vanilla, weights).to_floats(), alone(x, router_of));
      EXPECT_EQ(experts.lanes()->count(), blocks) << tokens;
      if (blocks > 1) {
        EXPECT_THROW(layer(experts, x, router_of, whole, weights), Error);
      }
      FusedExperts other(world, {std::vector<int>(kExperts), tokens, 2});
      EXPECT_EQ(layer(other, x, router_of, whole, weights).to_floats(), alone(x, router_of));
      EXPECT_EQ(other.lanes()->count(), 1) << tokens;
    }
  });
}

}  // namespace
}  // namespace tessera::parallel
