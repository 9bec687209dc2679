#include "parallel/sequence/displaced_kv.h"

#include <gtest/gtest.h>

#include "comm/threads/launch.h"
#include "nn/local.h"
#include "nn/random_bank.h"
#include "ops/elementwise.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using namespace std::chrono_literals;
using nn::random_bank::normal;

nn::Geometry geometry() {
  nn::Geometry g;
  g.blocks = 1;
  g.attention.push_back({.block = 0, .heads = 2, .kv_heads = 2, .head_dim = 8});
  return g;
}

nn::Heads heads(int step, const Share& share) {
  const auto mine = [&](uint32_t seed) {
    const tensor::Tensor whole =
        normal({share.all_pictures * share.all_tokens, 16}, seed + uint32_t(step) * 10);
    return cut(whole, share);
  };
  return {mine(1), mine(2), mine(3)};
}

// Output of the whole request at each step, under a plan with these fresh steps.
std::vector<std::vector<float>> run(int shards, int fresh, int steps) {
  const nn::Geometry g = geometry();
  Plan plan;
  plan.distrifusion = shards;
  std::vector<std::vector<float>> outputs;
  comm::threads::run(shards, 20s, [&](comm::Communicator& world) {
    const Share share = share_of(plan, world.rank(), 2, 7, 1);
    DisplacedKv attention(g, world, share);
    for (int s = 0; s < steps; ++s) {
      attention.begin_step({s, steps, s < fresh, s + 1 == steps || s + 1 < fresh});
      const auto out = attention.attend(0, share.view(0), heads(s, share));
      const auto parts = comm::gather(world, 0, out.contiguous(), {"test", s});
      if (world.rank() == 0) outputs.push_back(join(parts, plan, 2, 7).to_floats());
    }
  });
  return outputs;
}

TEST(DisplacedKv, FreshStepsAreLocalBitForBit) {
  for (int shards : {1, 2, 3, 8}) EXPECT_EQ(run(shards, 3, 3), run(1, 3, 3)) << shards << " shards";
}

TEST(DisplacedKv, LaterStepsSeeOtherShardsOneStepOld) {
  const auto got = run(2, 1, 3);
  const Share whole = share_of({}, 0, 2, 7, 1);
  const nn::Geometry g = geometry();
  for (int s = 1; s < 3; ++s) {
    const nn::Heads now = heads(s, whole), before = heads(s - 1, whole);
    nn::LocalAttention local(g);
    for (int shard = 0; shard < 2; ++shard) {
      const nn::Range own = nn::split({0, 7}, 2, shard);
      const auto mixed = [&](const tensor::Tensor& fresh, const tensor::Tensor& stale) {
        std::vector<tensor::Tensor> parts;
        for (int64_t t = 0; t < 14; ++t) {
          const bool mine = t % 7 >= own.begin && t % 7 < own.end;
          parts.push_back((mine ? fresh : stale).slice(0, t, t + 1));
        }
        return ops::concat_rows(parts);
      };
      const auto out =
          local.attend(0, whole.view(0), {now.q, mixed(now.k, before.k), mixed(now.v, before.v)});
      for (int64_t t = 0; t < 14; ++t) {
        if (t % 7 < own.begin || t % 7 >= own.end) continue;
        for (int64_t c = 0; c < 16; ++c)
          EXPECT_EQ(got[size_t(s)][size_t(t * 16 + c)], out.row<float>(t)[c])
              << "step " << s << ", token " << t;
      }
    }
  }
}

TEST(DisplacedKv, RefusesTextTokens) {
  comm::threads::run(1, 20s, [](comm::Communicator& world) {
    nn::Geometry g = geometry();
    g.attention[0].joint = true;
    EXPECT_THROW(DisplacedKv(g, world, share_of({}, 0, 1, 4, 1)), Error);
  });
}

}  // namespace
}  // namespace tessera::parallel
