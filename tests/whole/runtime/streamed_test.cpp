#include "runtime/streamed.h"

#include <gtest/gtest.h>

#include <numeric>

#include "load/meta_weights.h"
#include "parallel/denoise.h"
#include "runtime/model_state.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera::pipeline {
namespace {

using tensor::DType;
using tensor::Tensor;

struct Case {
  const char *type, *folder;
  int64_t height, width, frames;
};
constexpr Case kCases[] = {
    {"PixArtTransformer2DModel", "diffusers/pixart_alpha/model/transformer", 4, 6, 0},
    {"SD3Transformer2DModel", "diffusers/sd35/model/transformer", 4, 6, 0},
    {"FluxTransformer2DModel", "diffusers/flux_dev/model/transformer", 4, 6, 0},
    {"HunyuanDiT2DModel", "diffusers/hunyuandit_v11/model/transformer", 4, 6, 0},
    {"CogVideoXTransformer3DModel", "diffusers/cogvideox_2b/model/transformer", 4, 6, 2},
    {"ZImageTransformer2DModel", "diffusers/z_image_turbo/model/transformer", 8, 16, 0},
    {"Flux2Transformer2DModel", "diffusers/flux2_klein_base/model/transformer", 4, 6, 0},
    {"dit_moe", "moe/dit_moe_flash/model", 0, 0, 0},
};

// Numbers with a long period; integers are zero.
Tensor filled(const tensor::Shape& shape, DType dtype) {
  Tensor x = Tensor::zeros(shape, dtype);
  if (dtype == DType::f32)
    for (int64_t i = 0; i < x.elements(); ++i)
      x.data<float>()[i] = static_cast<float>(i * 37 % 101 - 50) / 50;
  return x;
}

/// A family with weights and a request of two rows.
struct Family {
  models::PipelineSpec spec;
  std::shared_ptr<const nn::Weights> weights;
  nn::TokenLayout layout;
  nn::Conditioning conditioning;

  explicit Family(const Case& c) {
    const std::string folder = std::string(TESSERA_TEST_DATA "/") + c.folder;
    spec = models::pipeline_of(c.type, {base::read_json(folder + "/config.json"), folder});
    weights = runtime::weight_store().open(load::open_component(folder));
    layout = spec.layout(c.height, c.width, c.frames);
    for (const auto& [name, x] : spec.example(2).tensors)
      conditioning.tensors[name] = filled(x.shape(), x.dtype());
  }
  std::vector<float> run(const nn::Denoiser& model) const {
    parallel::Setup setup({}, model.geometry(),
                          {2, layout.grid(), 1, 1, spec.prefix(conditioning)});
    const float times[] = {500, 20};
    return parallel::forward(model, conditioning, Tensor::from(std::span<const float>(times), {2}),
                             filled({2 * layout.tokens(), layout.token_channels()}, DType::f32),
                             setup, {})
        .to_floats();
  }
};

TEST(Streamed, ComputesWhatTheWholeTransformerComputesBitByBit) {
  for (const Case& c : kCases) {
    const Family family(c);
    const int64_t blocks = family.spec.blocks;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto whole =
          family.run(*family.spec.make(*family.weights, {{0, blocks}, true, true}, dtype));
      for (const int64_t resident : {int64_t{0}, blocks - 1})
        EXPECT_EQ(
            family.run(runtime::StreamedDenoiser(family.spec, family.weights, dtype, resident)),
            whole)
            << c.type << ", " << resident << " of " << blocks << " blocks stay";
    }
  }
}

/// A transformer in portions of a number of blocks; the first portion has the modules around the
/// blocks.
class Portions : public nn::Denoiser {
 public:
  Portions(const Family& family, int64_t each, DType dtype) : each_(each) {
    const int64_t blocks = family.spec.blocks;
    for (int64_t b = 0; b < blocks; b += each) {
      nn::Portion portion{{b, std::min(b + each, blocks)}, b == 0, b == 0};
      portion.conditioning = b == 0;
      parts_.push_back(family.spec.make(*family.weights, portion, dtype));
    }
  }
  const nn::Geometry& geometry() const override { return parts_[0]->geometry(); }
  DType dtype() const override { return parts_[0]->dtype(); }
  nn::ContextPtr prepare(const nn::Conditioning& c, const nn::TokenShape& shape) const override {
    return parts_[0]->prepare(c, shape);
  }
  nn::PlacementPtr place(const nn::Context& context, const nn::TokenView& view) const override {
    return parts_[0]->place(context, view);
  }
  nn::StepContextPtr at(const nn::Context& context, const Tensor& timestep) const override {
    return parts_[0]->at(context, timestep);
  }
  nn::Hidden embed(const nn::Placement& placement, const Tensor& latent) const override {
    return parts_[0]->embed(placement, latent);
  }
  void block(int index, const nn::StepContext& step, const nn::Placement& placement,
             nn::Hidden& hidden, const nn::Seams& seams) const override {
    parts_[static_cast<size_t>(index / each_)]->block(index, step, placement, hidden, seams);
  }
  Tensor head(const nn::StepContext& step, const nn::Placement& placement,
              const nn::Hidden& hidden) const override {
    return parts_[0]->head(step, placement, hidden);
  }

 private:
  int64_t each_;
  std::vector<std::unique_ptr<nn::Denoiser>> parts_;
};

/// A request of three steps: its latent, with the calls and FLOPs of each op.
struct Work {
  std::vector<float> latent;
  std::map<std::string, std::pair<int64_t, double>> ops;
};

Work three_steps(const Family& family, const nn::Denoiser& model) {
  tensor::Scope scope;
  scope.meter = std::make_shared<tensor::Meter>();
  const tensor::BindScope bind(scope);
  parallel::Setup setup({}, model.geometry(),
                        {2, family.layout.grid(), 1, 3, family.spec.prefix(family.conditioning)});
  parallel::Guidance guidance;
  guidance.prediction_channels = model.geometry().channels_in;
  const Tensor noise =
      filled({2 * family.layout.tokens(), family.layout.token_channels()}, DType::f32);
  Work work;
  work.latent = parallel::denoise(model, family.conditioning, *sample::rectified_flow(3), guidance,
                                  noise, {}, setup, {})
                    .to_floats();
  for (const auto& [op, entry] : scope.meter->entries()) work.ops[op] = {entry.calls, entry.flops};
  return work;
}

TEST(Streamed, WhatBlocksShareIsComputedOnceHoweverTheyAreCut) {
  for (const Case& c : kCases) {
    const Family family(c);
    const int64_t blocks = family.spec.blocks;
    const auto whole = family.spec.make(*family.weights, {{0, blocks}, true, true}, DType::f32);
    const Work expected = three_steps(family, *whole);
    EXPECT_GT(expected.ops.at("matmul").first, 3 * blocks);
    for (const int64_t each : {1, 2}) {
      const Work cut = three_steps(family, Portions(family, each, DType::f32));
      EXPECT_EQ(cut.latent, expected.latent) << c.type;
      EXPECT_EQ(cut.ops, expected.ops) << c.type << " in portions of " << each;
    }
    const Work streamed =
        three_steps(family, runtime::StreamedDenoiser(family.spec, family.weights, DType::f32, 0));
    EXPECT_EQ(streamed.latent, expected.latent) << c.type;
    EXPECT_EQ(streamed.ops, expected.ops) << c.type << " streamed";
  }
}

TEST(Streamed, HoldsOneBlockAtATime) {
  const Family family(kCases[0]);
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  const runtime::PartWeights parts = runtime::part_weights(family.spec, DType::f32);
  const runtime::StreamedDenoiser streamed(family.spec, family.weights, DType::f32, 1);
  family.run(streamed);
  const int64_t peak = scope.memory->peak(tensor::MemoryClass::weights);
  // Tables in stored form are f32 here but predicted as bf16: less than 1 % of the total.
  const int64_t predicted = parts.fixed + parts.blocks[0] + parts.largest(1);
  EXPECT_LE(double(peak), 1.01 * double(predicted));
  EXPECT_LT(peak, parts.whole());
}

TEST(Streamed, PartsAddUpToTheWhole) {
  for (const Case& c : kCases) {
    const Family family(c);
    const runtime::PartWeights parts = runtime::part_weights(family.spec, DType::bf16);
    tensor::Scope scope;
    scope.memory = std::make_shared<tensor::MemoryTracker>();
    const tensor::BindScope bind(scope);
    const load::MetaWeights weights;
    const auto network = family.spec.make(weights, family.spec.whole(), DType::bf16);
    const auto whole = double(scope.memory->current(tensor::MemoryClass::weights));
    EXPECT_NEAR(double(parts.whole()), whole, 0.01 * whole) << c.type;
  }
}

TEST(ResidentBlocks, AsManyAsFitBesideTheOneThatPasses) {
  const runtime::PartWeights parts{10, {5, 5, 20, 5}};
  EXPECT_EQ(runtime::resident_blocks(parts, 45), 4);
  EXPECT_EQ(runtime::resident_blocks(parts, 44), 2);  // 10 + 5 + 5 + 20 at once
  EXPECT_EQ(runtime::resident_blocks(parts, 40), 2);
  EXPECT_EQ(runtime::resident_blocks(parts, 39), 1);
  EXPECT_EQ(runtime::resident_blocks(parts, 30), 0);
  EXPECT_EQ(runtime::resident_blocks(parts, 29), -1);
}

}  // namespace
}  // namespace tessera::pipeline
