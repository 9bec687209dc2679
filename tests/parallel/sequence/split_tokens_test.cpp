#include "parallel/sequence/split_tokens.h"

#include <gtest/gtest.h>

#include "comm/threads/launch.h"
#include "ops/elementwise.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using namespace std::chrono_literals;
using nn::Tensor;

const nn::TokenView kPass{-1, {0, 3}, {}, {{0, {4, 9}}, {3, {0, 2}}}, {12, 2}};

TEST(TokenRuns, CutAPassInPackedOrder) {
  for (int ranks : {1, 2, 3, 9})
    comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
      TokenRuns runs(world);
      runs.cut(kPass);
      EXPECT_EQ(runs.tokens(), 7);
      EXPECT_EQ(nn::token_count(runs.mine().body), runs.range().size());
      EXPECT_EQ(runs.mine().rows, kPass.rows);
      EXPECT_EQ(runs.mine().lengths.size(), runs.mine().body.size());
      if (ranks != 3 || world.rank() != 2) return;
      EXPECT_EQ(runs.mine().body, (nn::Segments{{0, {8, 9}}, {3, {0, 2}}}));
      EXPECT_EQ(runs.mine().lengths, (std::vector<int64_t>{12, 2}));
    });
}

TEST(TokenRuns, ArePassesOfTokenModels) {
  comm::threads::run(1, 20s, [](comm::Communicator& world) {
    TokenRuns runs(world);
    EXPECT_THROW(runs.cut({-1, {0}, {}, {{0, {0, 4}}}, {}}), Error);
  });
}

// Its stream is the ids; a block adds the number of tokens that it was given times zero, logits are
// ten times the stream.
class Echo : public nn::TokenModel {
 public:
  const nn::Geometry& geometry() const override { return geometry_; }
  nn::DType dtype() const override { return nn::DType::f32; }
  int64_t vocabulary() const override { return 1; }
  nn::PlacementPtr place(const nn::TokenView& view) const override {
    return std::make_shared<nn::Placement>(view);
  }
  nn::Hidden embed(std::span<const int32_t> ids, const nn::TokenView& view) const override {
    EXPECT_EQ(int64_t(ids.size()), nn::token_count(view.body));
    const std::vector<float> values(ids.begin(), ids.end());
    return {{{}, Tensor::from(std::span<const float>(values), {int64_t(ids.size()), 1})}, {}};
  }
  void block(int, const nn::StepContext&, const nn::Placement& placement, nn::Hidden& hidden,
             const nn::Seams&) const override {
    EXPECT_EQ(hidden.tokens.body.size(0), nn::token_count(placement.view.body));
  }
  Tensor logits(const nn::Hidden& hidden, const nn::TokenView& view,
                const nn::Segments& of) const override {
    EXPECT_EQ(view.body, of);
    return ops::blend(hidden.tokens.body, 10, hidden.tokens.body, 0);
  }

 private:
  nn::Geometry geometry_;
};

TEST(SplitTokenModel, GivesTheLogitsOfAllTokensToEveryRank) {
  const Echo echo;
  const std::vector<int32_t> ids{1, 2, 3, 4, 5, 6, 7};
  for (int ranks : {1, 2, 3, 9})
    comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
      const SplitTokenModel model(echo, std::make_shared<TokenRuns>(world));
      const auto placement = model.place(kPass);
      nn::Hidden hidden = model.embed(ids, kPass);
      EXPECT_EQ(model.logits(hidden, kPass, {{0, {5, 8}}, {3, {1, 2}}}).to_floats(),
                (std::vector<float>{20, 30, 40, 70}));
      EXPECT_EQ(model.logits(hidden, kPass, {}).elements(), 0);
      EXPECT_THROW(model.logits(hidden, kPass, {{3, {1, 3}}}), Error);
      EXPECT_THROW(model.embed(std::span(ids).subspan(1), kPass), Error);
    });
}

TEST(SplitKvAttention, KeepsTheSlotsOfOneRank) {
  nn::Geometry geometry;
  geometry.attention.push_back({.block = 0, .heads = 2, .kv_heads = 1, .head_dim = 8});
  const auto counting = [](int64_t rows, int64_t width, float by) {
    Tensor x = Tensor::empty({rows, width}, nn::DType::f32);
    for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = by * float(i % 13);
    return x;
  };
  // A pass over all of both rows, then one over a part.
  const nn::TokenView first{-1, {0, 3}, {}, {{0, {0, 12}}, {3, {0, 2}}}, {12, 2}};
  const nn::TokenView second{-1, {0, 3}, {}, {{0, {4, 9}}, {3, {0, 2}}}, {12, 2}};
  const auto run = [&](comm::Communicator* world) {
    std::shared_ptr<TokenRuns> runs;
    std::unique_ptr<nn::KvAttention> attention;
    if (world) {
      runs = std::make_shared<TokenRuns>(*world);
      attention = std::make_unique<SplitKvAttention>(geometry, nn::DType::f32, runs);
    } else {
      attention = std::make_unique<nn::KvAttention>(geometry, nn::DType::f32);
    }
    std::vector<float> all;
    for (const auto& [view, by] : {std::pair{first, 0.1f}, {second, -0.2f}}) {
      const int64_t n = nn::token_count(view.body);
      nn::Range mine{0, n};
      if (world) {
        runs->cut(view);
        mine = runs->range();
      }
      const auto of = [&](int64_t width, float scale) {
        return counting(n, width, scale).slice(0, mine.begin, mine.end);
      };
      const Tensor out =
          attention->attend(0, world ? runs->mine() : view, {of(16, by), of(8, 1), of(8, 3 * by)});
      const auto values = out.to_floats();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const auto expected = run(nullptr);
  for (int ranks : {2, 3, 16}) {
    std::vector<std::vector<float>> parts{size_t(ranks)};
    comm::threads::run(
        ranks, 20s, [&](comm::Communicator& world) { parts[size_t(world.rank())] = run(&world); });
    // Ranks hold runs of both passes: put them together pass by pass.
    std::vector<float> whole;
    std::vector<size_t> at(parts.size());
    for (int64_t n : {14, 7})
      for (int r = 0; r < ranks; ++r) {
        const auto count = size_t(nn::split({0, n}, ranks, r).size() * 16);
        auto& part = parts[size_t(r)];
        whole.insert(whole.end(), part.begin() + long(at[size_t(r)]),
                     part.begin() + long(at[size_t(r)] + count));
        at[size_t(r)] += count;
      }
    EXPECT_EQ(whole, expected) << ranks;
  }
}

}  // namespace
}  // namespace tessera::parallel
