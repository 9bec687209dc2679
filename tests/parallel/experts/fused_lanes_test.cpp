#include "parallel/experts/fused_lanes.h"

#include <gtest/gtest.h>

#include "comm/threads/launch.h"
#include "nn/moe/backend.h"
#include "nn/random_bank.h"
#include "parallel/experts/exchange.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using namespace std::chrono_literals;
using namespace nn::random_bank;

constexpr int kExperts = 4;

std::vector<float> alone(const Tensor& x, const nn::Gate& gate, const nn::MoeCall& call) {
  nn::MoeLog log;
  return nn::LocalBackend().run(call, x, gate, bank(kExperts, 1, DType::f32), log).to_floats();
}

TEST(FusedLanes, LayersBesideEachOtherEndInEitherOrder) {
  for (const bool first : {true, false})
    comm::threads::run(2, 60s, [&](comm::Communicator& world) {
      const std::vector<int> owner = experts_in_blocks(kExperts, 2);
      const nn::ExpertWeights weights =
          bank(kExperts, 1, DType::f32,
               {world.rank() == 0, world.rank() == 0, world.rank() == 1, world.rank() == 1});
      const nn::Router router_of = router(kExperts, 2, 3);
      const nn::VanillaPolicy policy;
      const nn::TokenView view;
      const nn::MoeCall call{0, {0, 1, true, true}, view};
      const nn::Gate gate(router_of, policy, call);
      const Tensor x[] = {normal({90, 32}, uint32_t(world.rank())),
                          normal({70, 32}, uint32_t(5 + world.rank()))};
      FusedLanes lanes(world, {owner, 90, 2}, x[0], 2, 90, 1);
      ASSERT_EQ(lanes.count(), 2);
      for (int lane = 0; lane < 2; ++lane) lanes.at(lane).begin(x[lane], gate, weights);
      for (const int lane : {first ? 0 : 1, first ? 1 : 0}) {
        lanes.drive([&] { return lanes.at(lane).done(); });
        EXPECT_EQ(lanes.at(lane).result().to_floats(), alone(x[lane], gate, call));
        int64_t sent = 0;
        for (int p = 0; p < 2; ++p) sent += lanes.load(lane, fused::TaskKind::dispatch, p).rows;
        EXPECT_EQ(sent, x[lane].size(0) * 2);
        EXPECT_EQ(lanes.touched(lane, lane + 1), 2);
        EXPECT_LE(2 * lanes.coming(lane), lanes.coming_bound());
      }
      // Two lanes, rows and results, one other rank, four tiles of 64 rows at least: all of a
      // layer.
      EXPECT_EQ(lanes.coming_bound(), 2 * 2 * 4 * 64 * 128);
    });
}

TEST(FusedLanes, AnExpertOfARankThatIsNotThereIsRefused) {
  comm::threads::run(1, 60s, [&](comm::Communicator& world) {
    const Tensor x = normal({4, 32}, 1);
    EXPECT_NO_THROW(FusedLanes(world, {std::vector<int>(kExperts), 4, 2}, x, 1, 4, 1));
    EXPECT_THROW(FusedLanes(world, {std::vector<int>(kExperts, 3), 4, 2}, x, 1, 4, 1), Error);
  });
}

}  // namespace
}  // namespace tessera::parallel
