#include "parallel/denoise.h"

#include <gtest/gtest.h>

#include "ops/elementwise.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using tensor::DType;
using tensor::Tensor;

struct NoContext : nn::Context {};
struct NoStep : nn::StepContext {};

// Predicts its input for conditional rows and zero for the others, after one pass-through block.
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
  nn::StepContextPtr at(const nn::Context&, const Tensor&) const override {
    return std::make_shared<NoStep>();
  }
  nn::Hidden embed(const nn::StepContext&, const Tensor& x, const nn::TokenView&) const override {
    return {.tokens = {.prefix = {}, .body = x}, .skips = {}};
  }
  void block(int, const nn::StepContext&, const nn::TokenView&, nn::Hidden&,
             const nn::Seams&) const override {}
  Tensor head(const nn::StepContext&, const nn::TokenView& view,
              const nn::Hidden& hidden) const override {
    const auto rows = nn::rows_of(view.body);
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
  Assembly assembly = assemble(model.geometry(), {}, {1, 3, 1, 1});
  const auto flow = sample::rectified_flow(2);
  const Tensor out = denoise(model, {}, {.rows = 1, .grid = {1, 1, 3}}, *flow, {1, 2}, ones(3),
                             no_noise, assembly, {});
  EXPECT_EQ(out.to_floats(), std::vector<float>(6, 0.25f));  // z <- z - z/2, twice
}

TEST(Denoise, GuidanceReadsBothBranches) {
  const Echo model(1);
  Assembly assembly = assemble(model.geometry(), {}, {1, 3, 2, 1});
  const auto flow = sample::rectified_flow(1);
  const Tensor out = denoise(model, {}, {.rows = 2, .grid = {1, 1, 3}}, *flow, {3, 2}, ones(3),
                             no_noise, assembly, {});
  EXPECT_EQ(out.to_floats(), std::vector<float>(6, -2.0f));  // 1 - 3 * (1 - 0)
}

TEST(Denoise, TracesEveryStepAndStopsWhenAsked) {
  const Echo model(1);
  Assembly assembly = assemble(model.geometry(), {}, {1, 3, 1, 1});
  const auto flow = sample::rectified_flow(5);
  std::stop_source source;
  std::vector<std::string> names;
  DenoiseControl control;
  control.stop = source.get_token();
  control.on_step = [&](int step, int) {
    if (step == 1) source.request_stop();
  };
  control.trace = [&](const std::string& name, const Tensor&) { names.push_back(name); };
  try {
    denoise(model, {}, {.rows = 1, .grid = {1, 1, 3}}, *flow, {1, 2}, ones(3), no_noise, assembly,
            control);
    FAIL() << "the stop request was ignored";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled);
  }
  // The step in which the request came ends before its next block.
  EXPECT_EQ(names, (std::vector<std::string>{"model_output.0", "latents.1"}));
}

}  // namespace
}  // namespace tessera::parallel
