#include "parallel/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>
#include <tuple>
#include <utility>

#include "comm/threads/launch.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using tensor::DType;
using tensor::Tensor;

double most_costly(const std::vector<double>& costs, const std::vector<int>& sizes) {
  double most = 0;
  auto at = costs.begin();
  for (const int size : sizes) {
    most = std::max(most, std::accumulate(at, at + size, 0.0));
    at += size;
  }
  EXPECT_EQ(at, costs.end());
  return most;
}

TEST(Stages, AreBalancedByCost) {
  using Sizes = std::vector<int>;
  const auto alike = [](const std::vector<double>& costs, int stages) {
    return balanced_stages(costs, costs, stages);
  };
  EXPECT_EQ(alike(std::vector<double>(8, 1.0), 4), (Sizes{2, 2, 2, 2}));
  EXPECT_EQ(alike({5, 1, 1, 1, 1, 1}, 2), (Sizes{1, 5}));
  EXPECT_EQ(alike({1, 2, 3}, 3), (Sizes{1, 1, 1}));
  EXPECT_EQ(alike({1, 2, 3}, 1), (Sizes{3}));
  EXPECT_THROW(alike({1, 2, 3}, 4), Error);
}

// The shape of FLUX: equal FLOPs in each block, and bytes of 36 to 15.
TEST(Stages, TakeALittleMoreTimeForFewerBytes) {
  std::vector<double> bytes(8, 36.0);
  bytes.insert(bytes.end(), 19, 15.0);
  const std::vector<double> flops(27, 1.0);
  const std::vector<int> four = balanced_stages(flops, bytes, 4);
  EXPECT_EQ(most_costly(flops, four), 8) << "7 by FLOPs alone";
  EXPECT_EQ(most_costly(bytes, four), 180) << "252 by FLOPs alone";
  const std::vector<double> few(bytes.begin() + 4, bytes.begin() + 16);
  EXPECT_EQ(balanced_stages(std::vector<double>(12, 1.0), few, 2), (std::vector<int>{6, 6}))
      << "7 would be 17 % more";
}

TEST(Stages, NoOtherCutIsBetter) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    std::vector<double> flops(4 + random() % 4), bytes(flops.size());
    for (double& c : flops) c = double(random() % 9);
    for (double& c : bytes) c = double(random() % 9);
    const auto blocks = static_cast<int>(flops.size());
    std::vector<std::pair<double, double>>
        cuts;  // FLOPs of the slowest stage, bytes of the largest
    for (int a = 1; a < blocks - 1; ++a)
      for (int b = 1; a + b < blocks; ++b) {
        const std::vector<int> sizes{a, b, blocks - a - b};
        cuts.emplace_back(most_costly(flops, sizes), most_costly(bytes, sizes));
      }
    const double slowest = 1.15 * std::min_element(cuts.begin(), cuts.end())->first * (1 + 1e-9);
    std::erase_if(cuts, [&](const auto& cut) { return cut.first > slowest; });
    const auto best = *std::min_element(cuts.begin(), cuts.end(), [](auto& a, auto& b) {
      return std::tie(a.second, a.first) < std::tie(b.second, b.first);
    });
    const auto sizes = balanced_stages(flops, bytes, 3);
    for (const int size : sizes) EXPECT_GE(size, 1);
    EXPECT_EQ(std::pair(most_costly(flops, sizes), most_costly(bytes, sizes)), best);
  }
}

TEST(Stages, HaveTheBlocksThatThePlanNames) {
  EXPECT_EQ(blocks_of_stages(parse_plan("pipefusion=2,stages=1+4"), 5),
            (std::vector<nn::Range>{{0, 1}, {1, 5}}));
  EXPECT_EQ(blocks_of_stages(parse_plan("pipefusion=2"), 5),
            (std::vector<nn::Range>{{0, 2}, {2, 5}}));
  EXPECT_EQ(blocks_of_stages({}, 5), (std::vector<nn::Range>{{0, 5}}));
}

Tensor filled(int64_t rows, float value) {
  Tensor x = Tensor::empty({rows, 3}, DType::f32);
  std::fill_n(x.data<float>(), x.elements(), value);
  return x;
}

nn::Geometry with_skips() {
  nn::Geometry g;
  g.blocks = 6;
  g.attention = {{.block = 0, .heads = 1, .kv_heads = 1, .head_dim = 3, .joint = true}};
  g.skip_from = {-1, -1, -1, 2, 1, 0};
  return g;
}

// Three stages of two blocks: 2 -> 3 stays, 1 -> 4 and 0 -> 5 go from the first to the last.
TEST(Stages, StreamsGoOnSkipsGoStraightAndLatentsComeBack) {
  const nn::Geometry g = with_skips();
  constexpr int kUnits = 7;
  comm::threads::run(3, std::chrono::seconds(20), [&](comm::Communicator& world) {
    Stages stages(g, blocks_of_stages(parse_plan("pipefusion=3"), 6), world.group({0, 1, 2}));
    EXPECT_EQ(stages.first(), world.rank() == 0);
    EXPECT_EQ(stages.last(), world.rank() == 2);
    const nn::TokenView view{0, {0}, {{0, {-2, 0}}}, {{0, {0, 4}}}, {}};
    for (int unit = 0; unit < kUnits; ++unit) {
      stages.begin(unit + 1 < kUnits);
      if (stages.first()) stages.expect_latent(unit, 0);
      nn::Hidden hidden = stages.first()
                              ? nn::Hidden{{filled(2, -1.0f), filled(4, float(unit))}, {}}
                              : stages.arrived(view);
      EXPECT_EQ(hidden.tokens.prefix.size(0), 2);
      for (int b = 2 * world.rank(); b < 2 * world.rank() + 2; ++b) {
        stages.bring(b, hidden);
        if (const int from = g.skip_from[size_t(b)]; from >= 0) {
          EXPECT_EQ(hidden.skips.at(from).to_floats()[0], float(100 * from + unit));
          hidden.skips.erase(from);
        }
        if (b < 3) hidden.skips[b] = filled(4, float(100 * b + unit));
        stages.leave(b, hidden);
      }
      EXPECT_EQ(hidden.skips.size(), 0u);
      if (!stages.last()) {
        stages.hand_on(hidden);
      } else {
        EXPECT_EQ(hidden.tokens.body.to_floats()[0], float(unit));
        EXPECT_EQ(hidden.tokens.prefix.to_floats()[0], -1.0f);
        stages.return_latent(filled(4, float(10 * unit)));
      }
      if (!stages.first()) continue;
      EXPECT_FALSE(stages.latent_before(unit, 0)) << "of this step";
      const auto back = stages.latent_before(unit + 1, 0);
      ASSERT_TRUE(back.has_value());
      EXPECT_EQ(back->rows.to_floats()[0], float(10 * unit));
    }
  });
}

// With an equal split, a patch needs only itself from the previous step; otherwise the whole step.
TEST(Stages, WaitForTheLatentThatAPatchNeeds) {
  comm::threads::run(2, std::chrono::seconds(20), [](comm::Communicator& world) {
    nn::Geometry g;
    g.blocks = 2;
    Stages stages(g, blocks_of_stages(parse_plan("pipefusion=2"), 2), world.group({0, 1}));
    if (stages.last()) {
      for (int i = 0; i < 4; ++i) stages.return_latent(filled(1, float(i)));
      return;
    }
    stages.expect_latent(0, -1);
    for (int p : {0, 1, 2}) stages.expect_latent(1, p);
    EXPECT_EQ(stages.latent_before(1, 0)->patch, -1);
    EXPECT_FALSE(stages.latent_before(1, 1));
    EXPECT_EQ(stages.latent_before(2, 0)->patch, 0);
    EXPECT_FALSE(stages.latent_before(2, 0));
    EXPECT_EQ(stages.latent_before(2, -1)->patch, 1);
    EXPECT_EQ(stages.latent_before(2, -1)->patch, 2);
    EXPECT_FALSE(stages.latent_before(2, -1));
  });
}

TEST(Stages, ARankThatIsHandedOtherTokensSaysSo) {
  EXPECT_THROW(
      comm::threads::run(
          2, std::chrono::seconds(20),
          [](comm::Communicator& world) {
            nn::Geometry g;
            g.blocks = 2;
            Stages stages(g, blocks_of_stages(parse_plan("pipefusion=2"), 2), world.group({0, 1}));
            stages.begin(false);
            if (stages.first())
              stages.hand_on({{{}, filled(3, 1)}, {}});
            else
              stages.arrived({0, {0}, {}, {{0, {0, 4}}}, {}});
          }),
      Error);
}

/// Runs the loop: steps of `patches` patches with `rows` rows each, through `ranks` stages with a
/// slow stage.
void run_stages(int ranks, int steps, int patches, int64_t rows, int slow) {
  const auto pipe = parse_plan("pipefusion=" + std::to_string(ranks));
  comm::threads::run(ranks, std::chrono::seconds(60), [&](comm::Communicator& world) {
    nn::Geometry g;
    g.blocks = ranks;
    std::vector<int> all(static_cast<size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    Stages stages(g, blocks_of_stages(pipe, ranks), world.group(all));
    const nn::TokenView view{0, {0}, {}, {{0, {0, rows}}}, {}};
    for (int unit = 0; unit < steps * patches; ++unit) {
      const int step = unit / patches, patch = unit % patches;
      stages.begin(unit + 1 < steps * patches);
      int back = 0;
      while (stages.first() && stages.latent_before(step, patch)) ++back;
      EXPECT_EQ(back, stages.first() && step > 0 ? 1 : 0);
      if (stages.first() && step + 1 < steps) stages.expect_latent(step, patch);
      const nn::Hidden hidden =
          stages.first() ? nn::Hidden{{{}, filled(rows, 1)}, {}} : stages.arrived(view);
      if (world.rank() == slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (!stages.last())
        stages.hand_on(hidden);
      else if (step + 1 < steps)
        stages.return_latent(filled(1, 1));
    }
  });
}

TEST(Stages, ManyPatchesAndASlowStageDoNotBlock) {
  for (const int slow : {-1, 0, 3, 7}) run_stages(8, 3, 64, 2, slow);
}

TEST(Stages, MoreThanARankMaySendAheadPasses) {
  run_stages(3, 1, 40, 1 << 20, 2);  // 12 MB a patch
}

}  // namespace
}  // namespace tessera::parallel
