#include "parallel/sequence/displaced_kv.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <mutex>

#include "comm/threads/launch.h"
#include "nn/local.h"
#include "nn/random_bank.h"
#include "ops/elementwise.h"

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

const Workload kWork{2, {1, 1, 7}};

nn::Qkv heads(int step, const Partition& partition, int rank) {
  const auto mine = [&](uint32_t seed) {
    return partition.cut(normal({14, 16}, seed + uint32_t(step) * 10), rank);
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
    const Partition partition(plan, kWork);
    const std::string_view axes[] = {"distrifusion"};
    DisplacedKv attention(g, partition.whole_sequences(0), &world, partition.mesh().group(0, axes),
                          partition);
    for (int s = 0; s < steps; ++s) {
      attention.begin_step({s, steps, s < fresh, s + 1 == steps || s + 1 < fresh});
      const auto out =
          attention.attend(0, partition.view(world.rank()), heads(s, partition, world.rank()));
      const auto parts = comm::gather(world, 0, out.contiguous(), {"test", s});
      if (world.rank() == 0) outputs.push_back(partition.join(parts).to_floats());
    }
  });
  return outputs;
}

TEST(DisplacedKv, FreshStepsAreLocalBitForBit) {
  for (int shards : {1, 2, 3, 8}) EXPECT_EQ(run(shards, 3, 3), run(1, 3, 3)) << shards << " shards";
}

TEST(DisplacedKv, LaterStepsSeeOtherShardsOneStepOld) {
  const auto got = run(2, 1, 3);
  const Partition whole(Plan{}, kWork);
  const nn::Geometry g = geometry();
  for (int s = 1; s < 3; ++s) {
    const nn::Qkv now = heads(s, whole, 0), before = heads(s - 1, whole, 0);
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

TEST(DisplacedKv, SlotsKnowTheStepThatWroteThem) {
  const nn::Geometry g = geometry();
  const Plan plan = parse_plan("distrifusion=2");
  comm::threads::run(2, 20s, [&](comm::Communicator& world) {
    const Partition partition(plan, kWork);
    DisplacedKv attention(g, partition.whole_sequences(0), &world, {0, 1}, partition);
    for (int s = 0; s < 4; ++s) {
      attention.begin_step({s, 4, s == 0, s == 3});
      attention.attend(0, partition.view(world.rank()), heads(s, partition, world.rank()));
      const int64_t mine = world.rank() == 0 ? 0 : 6, theirs = 6 - mine;
      EXPECT_EQ(attention.slots().written(0, 1, mine), s);
      EXPECT_EQ(attention.slots().written(0, 1, theirs), s == 0 ? 0 : s - 1);
    }
    attention.finish();
    EXPECT_EQ(attention.slots().bytes(), 2 * 14 * 16 * 4) << "no more than the tokens need";
  });
}

// As in a language model's ranks: another split in each pass, and slots skipped by a pass.
TEST(DisplacedKv, KeepsTheSlotsOfOneRankFromPassToPass) {
  nn::Geometry g;
  g.attention.push_back({.block = 0, .heads = 2, .kv_heads = 1, .head_dim = 8});
  const std::vector<nn::Range> sequences{{0, 12}, {0, 0}, {0, 0}, {0, 2}};
  const nn::TokenView first{-1, {0, 3}, {}, {{0, {0, 12}}, {3, {0, 2}}}, {12, 2}};
  const nn::TokenView second{-1, {0, 3}, {}, {{0, {4, 9}}, {3, {0, 2}}}, {12, 2}};
  const auto pass = [&](nn::KvAttention& attention, const Partition& cut, int rank, float by) {
    const nn::Range run = cut.run(rank);
    const auto of = [&](int64_t width, float scale) {
      const tensor::Tensor all = normal({nn::token_count(cut.pass().body), width}, uint32_t(width));
      return ops::blend(all, scale, all, 0).slice(0, run.begin, run.end).contiguous();
    };
    const nn::Qkv mine{of(16, by), of(8, 1), of(8, 3 * by)};
    return attention.attend(0, cut.view(rank), mine).to_floats();
  };
  std::vector<std::vector<float>> expected;
  nn::KvAttention alone(g, sequences);
  expected.push_back(pass(alone, Partition::of_pass({}, first), 0, 0.1f));
  expected.push_back(pass(alone, Partition::of_pass({}, second), 0, -0.2f));
  for (int ranks : {2, 3, 16}) {
    Plan plan;
    plan.data = plan.expert = ranks;
    std::vector<std::vector<std::vector<float>>> parts(2);
    for (auto& one : parts) one.resize(size_t(ranks));
    comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
      std::vector<int> all;
      for (int r = 0; r < ranks; ++r) all.push_back(r);
      Partition cut = Partition::of_pass(plan, first);
      DisplacedKv attention(g, sequences, &world, all, cut);
      parts[0][size_t(world.rank())] = pass(attention, cut, world.rank(), 0.1f);
      cut = Partition::of_pass(plan, second);
      parts[1][size_t(world.rank())] = pass(attention, cut, world.rank(), -0.2f);
    });
    for (size_t p = 0; p < 2; ++p) {
      std::vector<float> whole;
      for (const auto& part : parts[p]) whole.insert(whole.end(), part.begin(), part.end());
      EXPECT_EQ(whole, expected[p]) << ranks << " ranks, pass " << p;
    }
  }
}

// Two samples of 5 tokens with 3 of text, at a joint site with queries for text, at a site without
// queries for text, and at a site without text.
nn::Geometry joint_geometry() {
  nn::Geometry g;
  const nn::AttentionSite plain{.block = 0, .heads = 2, .kv_heads = 2, .head_dim = 8};
  g.attention.assign(3, plain);
  g.attention[0].joint = g.attention[0].prefix_queries = g.attention[1].joint = true;
  return g;
}

const Workload kTexts{.samples = 2, .grid = {1, 1, 5}, .prefix = 3};
constexpr int64_t kEach = 8;  // tokens of a sequence

// The same numbers for a token, whatever the view.
tensor::Tensor rows_of(const nn::TokenView& view, bool text, uint32_t seed) {
  const tensor::Tensor all = normal({2 * kEach, 16}, seed);
  std::vector<tensor::Tensor> rows{all.slice(0, 0, 0)};
  for (const nn::Segment& s : nn::tokens_of(view, text)) {
    const int64_t first = s.sequence * kEach + 3;
    rows.push_back(all.slice(0, first + s.ids.begin, first + s.ids.end));
  }
  return ops::concat_rows(rows);
}

// The result of each token (site, sequence, id) at each step, for any number of ranks with the
// shards.
using Outputs = std::map<std::array<int64_t, 4>, std::vector<float>>;
Outputs of_shards(int shards, int ranks, int fresh, int steps) {
  Outputs outputs;
  std::mutex mutex;
  const nn::Geometry g = joint_geometry();
  Plan plan;
  plan.distrifusion = ranks;
  comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
    const Partition partition(plan, kTexts);
    const std::string_view axes[] = {"distrifusion"};
    DisplacedKv attention(g, partition.whole_sequences(0), ranks > 1 ? &world : nullptr,
                          partition.mesh().group(0, axes), partition,
                          partition.shards(world.rank(), shards));
    const nn::TokenView view = partition.view(world.rank());
    for (int s = 0; s < steps; ++s) {
      attention.begin_step({s, steps, s < fresh, s + 1 == steps || s + 1 < fresh});
      for (int site = 0; site < 3; ++site) {
        const auto& of = g.attention[size_t(site)];
        const auto seed = uint32_t(100 * s + 10 * site);
        const auto out = attention.attend(
            site, view,
            {rows_of(view, of.prefix_queries, seed + 1), rows_of(view, of.joint, seed + 2),
             rows_of(view, of.joint, seed + 3)});
        const std::lock_guard lock(mutex);
        int64_t row = 0;
        for (const nn::Segment& t : nn::tokens_of(view, of.prefix_queries))
          for (int64_t id = t.ids.begin; id < t.ids.end; ++id, ++row)
            outputs[{s, site, t.sequence, id}] = out.slice(0, row, row + 1).to_floats();
      }
    }
    attention.finish();
  });
  return outputs;
}

TEST(DisplacedKv, AsManyShardsGiveTheSameOnAnyNumberOfRanks) {
  for (const auto& [shards, ranks] : {std::pair{2, 2}, {4, 2}, {4, 4}, {3, 3}, {5, 5}}) {
    const Outputs one = of_shards(shards, 1, 1, 4);
    EXPECT_EQ(one.size(), size_t(4 * 2 * (8 + 5 + 5)));
    EXPECT_EQ(of_shards(shards, ranks, 1, 4), one) << shards << " shards on " << ranks;
    EXPECT_NE(one, of_shards(1, 1, 1, 4)) << "they see old keys";
    EXPECT_EQ(of_shards(shards, 1, 4, 4), of_shards(1, 1, 4, 4)) << "but not in fresh steps";
    EXPECT_EQ(of_shards(shards, ranks, 4, 4), of_shards(1, 1, 4, 4));
  }
}

// A shard's own text and latent are of this step, all others of the previous step.
TEST(DisplacedKv, TextOfOtherShardsIsOneStepOldToo) {
  const Outputs got = of_shards(2, 1, 1, 3);
  const nn::Geometry g = joint_geometry();
  const Partition whole(Plan{}, kTexts);
  const nn::TokenView all = whole.view(0);
  for (int s = 1; s < 3; ++s)
    for (int shard = 0; shard < 2; ++shard) {
      const nn::Range text = nn::split({-3, 0}, 2, shard), body = nn::split({0, 5}, 2, shard);
      const auto own = [&](int64_t id) {
        const nn::Range& mine = id < 0 ? text : body;
        return id >= mine.begin && id < mine.end;
      };
      const auto mixed = [&](uint32_t seed) {
        const auto now = rows_of(all, true, uint32_t(100 * s) + seed),
                   before = rows_of(all, true, uint32_t(100 * (s - 1)) + seed);
        std::vector<tensor::Tensor> rows;
        int64_t row = 0;
        for (const nn::Segment& t : nn::tokens_of(all, true))
          for (int64_t id = t.ids.begin; id < t.ids.end; ++id, ++row)
            rows.push_back((own(id) ? now : before).slice(0, row, row + 1));
        return ops::concat_rows(rows);
      };
      nn::LocalAttention local(g);
      const auto out =
          local.attend(0, all, {rows_of(all, true, uint32_t(100 * s + 1)), mixed(2), mixed(3)});
      int64_t row = 0;
      for (const nn::Segment& t : nn::tokens_of(all, true))
        for (int64_t id = t.ids.begin; id < t.ids.end; ++id, ++row)
          if (own(id)) {
            EXPECT_EQ(got.at({s, 0, t.sequence, id}), out.slice(0, row, row + 1).to_floats())
                << "step " << s << ", token " << id;
          }
    }
}

}  // namespace
}  // namespace tessera::parallel
