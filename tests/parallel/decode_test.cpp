#include "parallel/decode.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "comm/threads/launch.h"
#include "ops/elementwise.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using namespace std::chrono_literals;
using nn::Tensor;

const sample::TokenPass kPass{0,
                              {-1, {0, 3}, {}, {{0, {4, 9}}, {3, {0, 2}}}, {12, 2}},
                              {{0, {5, 8}}, {3, {1, 2}}},
                              {1, 2, 3, 4, 5, 6, 7}};

// The stream is the ids; logits are ten times the stream. Block `spoilt` (after the last block: the
// head) returns NaN.
class Echo : public nn::TokenModel {
 public:
  explicit Echo(int spoilt = -1) : spoilt_(spoilt) {
    geometry_.blocks = 3;
    geometry_.experts = {{.block = 0, .experts = 16, .top_k = 1, .inner = 8}};
  }
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
  void block(int index, const nn::StepContext&, const nn::Placement& placement, nn::Hidden& hidden,
             const nn::Seams&) const override {
    EXPECT_EQ(hidden.tokens.body.size(0), nn::token_count(placement.view.body));
    if (index == spoilt_ && hidden.tokens.body.size(0) > 0)
      hidden.tokens.body.data<float>()[0] = NAN;
  }
  Tensor logits(const nn::Hidden& hidden, const nn::TokenView& view,
                const nn::Segments& of) const override {
    std::vector<Tensor> rows;
    for (const nn::Range& place : places_of(view.body, of))
      rows.push_back(hidden.tokens.body.slice(0, place.begin, place.end));
    if (rows.empty()) return Tensor::zeros({0, 1}, nn::DType::f32);
    const Tensor x = ops::concat_rows(rows);
    return ops::blend(x, spoilt_ == geometry_.blocks ? NAN : 10, x, 0);
  }

 private:
  nn::Geometry geometry_;
  int spoilt_;
};

void on_ranks(int ranks, const std::function<void(comm::Communicator*, const Plan&)>& body) {
  Plan plan;
  plan.data = plan.expert = ranks;
  if (ranks == 1) return body(nullptr, plan);
  comm::threads::run(ranks, 20s, [&](comm::Communicator& world) { body(&world, plan); });
}

const Workload kText{.text = Workload::Sequences{{12, 0, 0, 2}}};

TEST(Decode, GivesTheLogitsOfAllTokensToEveryRank) {
  const Echo echo;
  for (int ranks : {1, 2, 3, 9})
    on_ranks(ranks, [&](comm::Communicator* world, const Plan& plan) {
      parallel::Setup setup(plan, echo.geometry(), kText, world);
      EXPECT_EQ(forward(echo, kPass, setup, {}).to_floats(), (std::vector<float>{20, 30, 40, 70}));
      EXPECT_EQ(setup.peers != nullptr, ranks > 1);
      sample::TokenPass pass = kPass;
      pass.decide = {};
      EXPECT_EQ(forward(echo, pass, setup, {}).elements(), 0);
      pass.decide = {{3, {1, 3}}};
      EXPECT_THROW(forward(echo, pass, setup, {}), Error);
      pass = kPass;
      pass.ids.pop_back();
      EXPECT_THROW(forward(echo, pass, setup, {}), Error);
    });
}

TEST(Decode, NamesTheBlockThatSpoilsThePass) {
  const auto said = [](int block) {
    const Echo model(block);
    parallel::Setup setup({}, model.geometry(), {.text = Workload::Sequences{{4}}});
    try {
      decode(model, {{{1, 1}, 2}}, {.threshold = 2, .block = 8}, {7, {}}, setup);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::model);
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_TRUE(said(0).starts_with("block 0 of the model")) << said(0);
  EXPECT_TRUE(said(2).starts_with("block 2 of the model")) << said(2);
  EXPECT_TRUE(said(3).starts_with("the head of the model")) << said(3);
  EXPECT_EQ(said(-1), "");
}

// Only the first rank receives the stop; all stop before the same pass.
TEST(Decode, RanksStopTogether) {
  const Echo model;
  std::array<int, 3> passes{};
  try {
    on_ranks(3, [&](comm::Communicator* world, const Plan& plan) {
      parallel::Setup setup(plan, model.geometry(), {.text = Workload::Sequences{{6}}}, world);
      std::stop_source source;
      sample::DecodeControl control;
      if (world->rank() == 0) control.stop = source.get_token();
      control.before = [&](const auto&) {
        if (++passes[size_t(world->rank())] == 2) source.request_stop();
      };
      decode(model, {{{1}, 5}}, {.threshold = 2, .block = 8}, {7, {}}, setup, control);
    });
    FAIL() << "ran on";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled);
  }
  EXPECT_EQ(passes, (std::array{2, 2, 2}));
}

}  // namespace
}  // namespace tessera::parallel
