#include "parallel/pass.h"

#include <gtest/gtest.h>

#include <cmath>

#include "comm/threads/launch.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using tensor::DType;
using tensor::Tensor;

struct NoStep : nn::StepContext {};

/// Embeds by adding 1, each block b adds 10^(b + 1), the head doubles: the result shows the blocks
/// that ran.
class Adding : public nn::Denoiser {
 public:
  Adding() {
    geometry_.blocks = 3;
    geometry_.experts = {{.block = 0, .experts = 2, .top_k = 1, .inner = 8}};
  }
  const nn::Geometry& geometry() const override { return geometry_; }
  DType dtype() const override { return DType::f32; }
  nn::ContextPtr prepare(const nn::Conditioning&, const nn::TokenShape&) const override {
    return {};
  }
  nn::PlacementPtr place(const nn::Context&, const nn::TokenView& view) const override {
    return std::make_shared<nn::Placement>(view);
  }
  nn::StepContextPtr at(const nn::Context&, const Tensor&) const override {
    return std::make_shared<NoStep>();
  }
  nn::Hidden embed(const nn::Placement&, const Tensor& x) const override {
    return {{{}, plus(x, 1)}, {}};
  }
  void block(int index, const nn::StepContext&, const nn::Placement&, nn::Hidden& hidden,
             const nn::Seams&) const override {
    hidden.tokens.body = plus(hidden.tokens.body, float(std::pow(10, index + 1)));
  }
  Tensor head(const nn::StepContext&, const nn::Placement&,
              const nn::Hidden& hidden) const override {
    return plus(hidden.tokens.body, hidden.tokens.body.data<float>()[0]);
  }

 private:
  static Tensor plus(const Tensor& x, float value) {
    std::vector<float> values = x.to_floats();
    for (float& v : values) v += value;
    return Tensor::from(std::span<const float>(values), x.shape());
  }
  nn::Geometry geometry_;
};

TEST(Pass, TheStagesTogetherRunTheNetwork) {
  const Adding model;
  const Workload work{1, {1, 1, 2}};
  const Tensor x = Tensor::zeros({2, 1}, DType::f32);
  parallel::Setup one({}, model.geometry(), work);
  std::vector<std::string> names;
  DenoiseControl control;
  control.trace = [&](const std::string& name, const Tensor&) { names.push_back(name); };
  const nn::Placement placement(one.view());
  const Tensor whole = run_rows(model, NoStep(), placement, x, one, control, Watch::blocks);
  EXPECT_EQ(whole.to_floats(), std::vector<float>(2, 2222));
  EXPECT_EQ(names, (std::vector<std::string>{"embedding", "block.0", "block.1", "block.2"}));
  const Plan plan = parse_plan("pipefusion=3,patches=1");
  comm::threads::run(3, std::chrono::seconds(20), [&](comm::Communicator& world) {
    parallel::Setup setup(plan, model.geometry(), work, &world);
    setup.stages.begin(false);
    const Tensor input = setup.stages.first() ? x : Tensor();
    const Tensor out = run_rows(model, NoStep(), placement, input, setup, {}, Watch::numbers);
    EXPECT_EQ(out.defined(), world.rank() == 2);
    if (out.defined()) {
      EXPECT_EQ(out.to_floats(), whole.to_floats());
    }
  });
}

TEST(Pass, HalvesOfABatchStandApart) {
  const Adding model;
  const Workload work{3, {1, 1, 2}};
  const struct : nn::Context {
  } context;
  parallel::Setup halves(parse_plan("schedule=staggered-batch"), model.geometry(), work);
  const Places places = places_of(model, context, halves.view(), halves);
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[0]->view.sequences, (std::vector<int>{0, 1}));
  EXPECT_EQ(places[1]->view.sequences, (std::vector<int>{2}));
  EXPECT_EQ(
      run_blocks(model, NoStep(), places, Tensor::zeros({6, 1}, DType::f32), halves, {}).size(0),
      6);
}

}  // namespace
}  // namespace tessera::parallel
