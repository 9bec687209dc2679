#include "parallel/denoise.h"

#include <gtest/gtest.h>

#include <limits>

#include "comm/threads/launch.h"
#include "nn/random_bank.h"
#include "ops/elementwise.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using tensor::DType;
using tensor::Tensor;

struct NoContext : nn::Context {};
struct NoStep : nn::StepContext {};

// Predicts the input for conditional rows and zero for the others, after a pass-through block.
class Echo : public nn::Denoiser {
 public:
  explicit Echo(int conditional_rows) : conditional_(conditional_rows) {
    geometry_.blocks = 1;
    geometry_.channels_in = geometry_.channels_out = 2;
  }
  const nn::Geometry& geometry() const override { return geometry_; }
  DType dtype() const override { return DType::f32; }
  nn::ContextPtr prepare(const nn::Conditioning&, const nn::TokenShape&) const override {
    return std::make_shared<NoContext>();
  }
  nn::PlacementPtr place(const nn::Context&, const nn::TokenView& view) const override {
    return std::make_shared<nn::Placement>(view);
  }
  nn::StepContextPtr at(const nn::Context&, const Tensor&) const override {
    return std::make_shared<NoStep>();
  }
  nn::Hidden embed(const nn::Placement&, const Tensor& x) const override {
    return {.tokens = {.prefix = {}, .body = x}, .skips = {}};
  }
  void block(int, const nn::StepContext&, const nn::Placement&, nn::Hidden&,
             const nn::Seams&) const override {}
  Tensor head(const nn::StepContext&, const nn::Placement& placement,
              const nn::Hidden& hidden) const override {
    const auto rows = nn::sequences_of(placement.view.body);
    Tensor out = Tensor::zeros(hidden.tokens.body.shape(), DType::f32);
    for (int64_t t = 0; t < out.size(0); ++t)
      if (rows[static_cast<size_t>(t)] < conditional_)
        std::copy_n(hidden.tokens.body.row<float>(t), out.size(1), out.row<float>(t));
    return out;
  }

 private:
  nn::Geometry geometry_;
  int conditional_;
};

Tensor ones(int64_t tokens) {
  const std::vector<float> values(static_cast<size_t>(tokens * 2), 1.0f);
  return Tensor::from(std::span<const float>(values), {tokens, 2});
}

Tensor no_noise(int) { return {}; }

TEST(Denoise, StepsFollowTheSampler) {
  const Echo model(1);
  parallel::Setup setup({}, model.geometry(), {1, {1, 1, 3}, 1, 1});
  const auto flow = sample::rectified_flow(2);
  const Tensor out = denoise(model, {}, *flow, {1, 2}, ones(3), no_noise, setup, {});
  EXPECT_EQ(out.to_floats(), std::vector<float>(6, 0.25f));  // z <- z - z/2, twice
}

TEST(Denoise, GuidanceReadsBothBranches) {
  const Echo model(1);
  parallel::Setup setup({}, model.geometry(), {1, {1, 1, 3}, 2, 1});
  const auto flow = sample::rectified_flow(1);
  const Tensor out = denoise(model, {}, *flow, {3, 2}, ones(3), no_noise, setup, {});
  EXPECT_EQ(out.to_floats(), std::vector<float>(6, -2.0f));  // 1 - 3 * (1 - 0)
}

// Two blocks; from a given call on the second returns an infinite number.
class Broken : public Echo {
 public:
  explicit Broken(int from_call = 3) : Echo(1), from_(from_call) {
    two_.blocks = 2, two_.channels_in = two_.channels_out = 2;
  }
  const nn::Geometry& geometry() const override { return two_; }
  void block(int index, const nn::StepContext&, const nn::Placement&, nn::Hidden& hidden,
             const nn::Seams&) const override {
    if (index != 1 || ++calls_ < from_) return;
    hidden.tokens.body = ops::cast(hidden.tokens.body, DType::f32);
    hidden.tokens.body.data<float>()[3] = std::numeric_limits<float>::infinity();
  }

 private:
  nn::Geometry two_;
  int from_;
  mutable int calls_ = 0;
};

TEST(Denoise, TheBlockThatMakesTheFirstInfinityIsNamed) {
  const Broken model;
  parallel::Setup setup({}, model.geometry(), {1, {1, 1, 3}, 1, 5});
  const auto flow = sample::rectified_flow(5);
  int steps = 0;
  DenoiseControl control;
  control.on_step = [&](int, int, const auto&) { ++steps; };
  try {
    denoise(model, {}, *flow, {1, 2}, ones(3), no_noise, setup, control);
    FAIL() << "infinity passed";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    EXPECT_EQ(std::string(e.what()).find("step 3 of 5: 'block.1' of the model"), 0u) << e.what();
  }
  EXPECT_EQ(steps, 3);
}

// In the first patch of the second step.
TEST(Denoise, AStageThatMakesTheFirstInfinityIsNamedWithItsRankAndStep) {
  const Plan plan = parse_plan("pipefusion=2,patches=2");
  try {
    comm::threads::run(2, std::chrono::seconds(20), [&](comm::Communicator& world) {
      const Broken model(2);
      parallel::Setup setup(plan, model.geometry(), {1, {1, 1, 6}, 1, 4}, &world);
      denoise(model, {}, *sample::rectified_flow(4), {1, 2}, ones(6), no_noise, setup, {});
    });
    FAIL() << "infinity passed";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    EXPECT_EQ(std::string(e.what()).find("step 2 of 4, rank 1: 'block.1' of the model"), 0u)
        << e.what();
  }
}

TEST(Denoise, ASamplerThatLeavesNoNumbersIsNotTheModelsFault) {
  struct Wild : sample::Sampler {
    int steps() const override { return 3; }
    float timestep(int) const override { return 1; }
    bool needs_noise(int) const override { return false; }
    Tensor step(int i, const Tensor&, const Tensor& x, const Tensor&,
                sample::History&) const override {
      return ops::blend(x, i == 1 ? std::numeric_limits<float>::infinity() : 1, x, 0);
    }
  } const wild;
  const Echo model(1);
  parallel::Setup setup({}, model.geometry(), {1, {1, 1, 3}, 1, 3});
  try {
    denoise(model, {}, wild, {1, 2}, ones(3), no_noise, setup, {});
    FAIL() << "infinity passed";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("step 2 of 3 leaves no numbers"), std::string::npos)
        << e.what();
  }
}

TEST(Denoise, TracesEveryStepAndStopsWhenAsked) {
  const Echo model(1);
  parallel::Setup setup({}, model.geometry(), {1, {1, 1, 3}, 1, 1});
  const auto flow = sample::rectified_flow(5);
  std::stop_source source;
  std::vector<std::string> names;
  DenoiseControl control;
  control.stop = source.get_token();
  control.on_step = [&](int step, int, const auto&) {
    if (step == 1) source.request_stop();
  };
  control.trace = [&](const std::string& name, const Tensor&) { names.push_back(name); };
  try {
    denoise(model, {}, *flow, {1, 2}, ones(3), no_noise, setup, control);
    FAIL() << "the stop request was ignored";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled);
  }
  // The step reported at the time of the request does not begin.
  EXPECT_EQ(names, (std::vector<std::string>{"model_output.0", "latents.1"}));
}

// Three layers of experts; block `bad` of a rank throws at row `bad_sequence`.
class Layers : public nn::Denoiser {
 public:
  explicit Layers(const std::vector<bool>& mine, int bad = -1, int bad_sequence = 0)
      : bad_(bad), bad_sequence_(bad_sequence) {
    geometry_.blocks = 3;
    geometry_.hidden = geometry_.channels_in = geometry_.channels_out = 32;
    for (int b = 0; b < 3; ++b) {
      geometry_.experts.push_back({b, 4, 2, 16});
      banks_.push_back(nn::random_bank::bank(4, uint32_t(100 * b + 1), DType::f32, mine));
      routers_.push_back(nn::random_bank::router(4, 2, uint32_t(b + 1)));
    }
  }
  const nn::Geometry& geometry() const override { return geometry_; }
  DType dtype() const override { return DType::f32; }
  nn::ContextPtr prepare(const nn::Conditioning&, const nn::TokenShape&) const override {
    return std::make_shared<NoContext>();
  }
  nn::PlacementPtr place(const nn::Context&, const nn::TokenView& view) const override {
    return std::make_shared<nn::Placement>(view);
  }
  nn::StepContextPtr at(const nn::Context&, const Tensor&) const override {
    return std::make_shared<NoStep>();
  }
  nn::Hidden embed(const nn::Placement&, const Tensor& x) const override {
    return {.tokens = {.prefix = {}, .body = x}, .skips = {}};
  }
  void block(int index, const nn::StepContext&, const nn::Placement& placement, nn::Hidden& hidden,
             const nn::Seams& seams) const override {
    const nn::TokenView& view = placement.view;
    const auto at = static_cast<size_t>(index);
    if (index == bad_ &&
        std::count(view.sequences.begin(), view.sequences.end(), bad_sequence_) > 0)
      throw Error(ErrorCode::memory, "no memory for a half");
    Tensor& x = hidden.tokens.body;
    x = ops::blend(x, 0.5f, seams.experts.apply(index, view, x, routers_[at], banks_[at]), 0.5f);
  }
  Tensor head(const nn::StepContext&, const nn::Placement&,
              const nn::Hidden& hidden) const override {
    return hidden.tokens.body;
  }

 private:
  nn::Geometry geometry_;
  std::vector<nn::ExpertWeights> banks_;
  std::vector<nn::Router> routers_;
  int bad_, bad_sequence_;
};

// Latents of all samples, by rank; rank `culprit`, if any, throws in a block.
std::vector<float> on_ranks(const std::string& text, int samples, int culprit = -1,
                            int bad_sequence = 0) {
  constexpr int64_t kTokens = 5;
  const Plan plan = parse_plan(text);
  std::vector<Tensor> parts(static_cast<size_t>(plan.world()));
  const auto owners = expert_owners(plan, 4);
  const auto flow = sample::rectified_flow(3);
  const Tensor noise = nn::random_bank::normal({samples * kTokens, 32}, 5);
  comm::threads::run(plan.world(), std::chrono::seconds(20), [&](comm::Communicator& world) {
    std::vector<bool> mine;
    for (int owner : owners) mine.push_back(owner == expert_place(plan, world.rank()));
    const Layers model(mine, world.rank() == culprit ? 1 : -1, bad_sequence);
    parallel::Setup setup(plan, model.geometry(), {samples, {1, 1, kTokens}, 1, 3}, &world);
    parts[static_cast<size_t>(world.rank())] = denoise(
        model, {}, *flow, {1, 32}, setup.partition.cut(noise, world.rank()), no_noise, setup, {});
  });
  return Partition(plan, {samples, {1, 1, kTokens}}).join(parts).to_floats();
}

TEST(Denoise, TheOrderOfAxesChangesNoNumber) {
  const std::string plan = "data=2,distrifusion=2,expert=2,schedule=interweaved";
  EXPECT_EQ(on_ranks(plan + ",order=distrifusion+data", 3), on_ranks(plan, 3));
}

TEST(Denoise, FusedExpertsAreBulkOnesUnderEverySchedule) {
  for (const char* schedule : {"", ",schedule=interweaved", ",schedule=displaced,conditional=low",
                               ",schedule=interweaved,sync=deep"})
    for (const char* ranks :
         {"expert=2", "expert=3", "data=2,distrifusion=2,expert=4,placement=strided",
          "data=2,pipefusion=2,patches=2,expert=2"}) {
      const std::string plan = std::string(ranks) + schedule;
      EXPECT_EQ(on_ranks(plan + ",moe=fused", 3), on_ranks(plan, 3)) << plan;
    }
}

TEST(StaggeredBatch, IsTheWholeBatchBitForBit) {
  for (int samples : {1, 2, 7}) {
    const auto whole = on_ranks("", samples);
    for (const char* ranks : {"", "expert=2,", "expert=3,", "expert=4,placement=strided,"})
      EXPECT_EQ(on_ranks(std::string(ranks) + "schedule=staggered-batch", samples), whole)
          << ranks << samples;
  }
}

TEST(StaggeredBatch, AHalfThatThrowsEndsTheOtherAndAllRanks) {
  for (const char* plan : {"schedule=staggered-batch", "expert=2,schedule=staggered-batch"})
    for (int bad_sequence : {0, plan[0] == 's' ? 7 : 3})  // in the first half, and in the second
      try {
        on_ranks(plan, 8, 0, bad_sequence);
        ADD_FAILURE() << "the error was lost";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::memory) << error.what();
      }
}

}  // namespace
}  // namespace tessera::parallel
