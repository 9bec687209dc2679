#include "pipeline/smoothing.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <span>

#include "load/safetensors.h"
#include "test_paths.h"
#include "whole/golden.h"
#include "whole/text_model.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using golden::l2_error;
using golden::Scratch;
using tensor::DType;
using tensor::Tensor;

Tensor noise(int64_t rows, int64_t columns, uint64_t seed) {
  std::mt19937_64 draws(seed);
  std::normal_distribution<float> normal;
  Tensor x = Tensor::empty({rows, columns}, DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = normal(draws);
  return x;
}

TEST(Smoothing, OutliersOfTheInputsHaveLargeFactors) {
  const Tensor w = noise(32, 64, 1);
  Tensor x = noise(100, 64, 2);
  for (int64_t r = 0; r < 100; ++r) x.row<float>(r)[5] *= 100;
  for (int64_t r = 0; r < 32; ++r) w.row<float>(r)[5] /= 100;
  nn::InputRecord record;
  for (int64_t r = 0; r < 100; r += 5) record.see(x.slice(0, r, r + 5));
  for (const bool int4 : {false, true}) {
    const Tensor factors = pipeline::smoothing_factors(w, record, int4);
    ASSERT_TRUE(factors.defined());
    const std::vector<float> s = factors.to_floats(),
                             inverse = pipeline::inverse_of(factors).to_floats();
    for (size_t i = 0; i < s.size(); ++i) {
      EXPECT_TRUE(i == 5 ? s[i] > 20 : s[i] < 5) << i << ' ' << s[i];
      EXPECT_FLOAT_EQ(s[i] * inverse[i], 1);
    }
  }
}

TEST(Smoothing, WithoutOutliersInt8NeedsNoFactors) {
  nn::InputRecord record;
  record.see(noise(64, 64, 2));
  // Rows of ones have no better scale.
  const std::vector<float> ones(size_t{32} * 64, 1.0f);
  const Tensor w = Tensor::from(std::span<const float>(ones), {32, 64});
  EXPECT_FALSE(pipeline::smoothing_factors(w, record, false).defined());
}

RunOptions with(Precision precision, const std::string& plan = "") {
  RunOptions run = golden::options(precision);
  run.plan = parse_plan(plan);
  return run;
}

GenerateRequest scene() {
  GenerateRequest q;
  q.prompts = {"a red circle left of a blue square"};
  q.steps = 2;
  q.decode = false;
  return q;
}

// `scenes` with outliers in the inputs of the projections behind attention: values times 64, and
// weights over 64, which changes no number of bf16.
void write_outliers(const std::string& to) {
  fs::copy(TESSERA_MODELS_DIR "/scenes", to, fs::copy_options::recursive);
  const std::string file = to + "/transformer/diffusion_pytorch_model.safetensors";
  const load::SafetensorsFile from(TESSERA_MODELS_DIR
                                   "/scenes/transformer/diffusion_pytorch_model.safetensors");
  std::map<std::string, Tensor> tensors;
  const auto ends = [](const std::string& name, const char* end) {
    return name.find("transformer_blocks.") == 0 && name.ends_with(end);
  };
  for (const auto& [name, entry] : from.entries()) {
    Tensor x = from.get(name);
    const bool rows = ends(name, ".attn.to_v.weight") || ends(name, ".attn.to_v.bias"),
               columns = ends(name, ".attn.to_out.0.weight");
    if (rows || columns) {
      std::vector<float> values = x.to_floats();
      const int64_t width = rows ? x.elements() / x.size(0) : 1;
      const int64_t k = rows ? x.size(0) : x.size(1);
      for (size_t i = 0; i < values.size(); ++i)
        if (const int64_t channel = static_cast<int64_t>(i) / width % k; channel % 40 == 3)
          values[i] *= rows ? 64.0f : 1 / 64.0f;
      x = Tensor::from(std::span<const float>(values), x.shape());
    }
    tensors[name] = x;
  }
  load::write_safetensors(file, tensors);
}

QuantiseRequest smoothed(const std::string& output, Precision precision) {
  QuantiseRequest request{.output = output};
  request.dtype = precision;
  GenerateRequest run = scene();
  run.prompts = {"a green triangle above a yellow circle"};
  request.calibration = {run};
  return request;
}

TEST(Smoothing, LowersTheErrorOfAModelWithOutliers) {
  const Scratch scratch;
  const std::string model = scratch / "outliers";
  write_outliers(model);
  const auto bf16 = Model::open(model, with(Precision::bf16)).generate(scene()).latents;
  for (const Precision precision : {Precision::int8, Precision::int4}) {
    const std::string out = scratch / (precision == Precision::int8 ? "q8" : "q4");
    (void)Model::open(model, with(Precision::bf16)).quantise(smoothed(out, precision));
    const auto plain = Model::open(model, with(precision)).generate(scene()).latents;
    const Model stored = Model::open(out, with(Precision::bf16));
    const GenerateResult result = stored.generate(scene());
    // int4 weights have most of the error without outliers, too.
    EXPECT_LT(l2_error(result.latents, bf16),
              (precision == Precision::int8 ? 0.6 : 0.85) * l2_error(plain, bf16));
    EXPECT_EQ(stored.inspect(scene()).memory.at("weights"), result.report.peak_bytes.weights);
    EXPECT_EQ(stored.inspect().components[0].parameters,
              Model::open(model, with(Precision::bf16)).inspect().components[0].parameters);
    if (precision == Precision::int4) continue;
    for (const char* plan : {"cfg=2", "ulysses=2", "pipefusion=2,warmup=2", "shard=2"})
      EXPECT_EQ(Model::open(out, with(Precision::bf16, plan)).generate(scene()).latents,
                result.latents)
          << plan;
    EXPECT_LT(
        l2_error(Model::open(out, with(Precision::bf16, "tensor=2")).generate(scene()).latents,
                 bf16),
        0.6 * l2_error(plain, bf16));
    GenerateRequest adapted = scene();
    adapted.loras = {{TESSERA_TEST_DATA "/features/lora/adapters/scenes.safetensors", 1}};
    const auto want = Model::open(model, with(Precision::bf16)).generate(adapted).latents;
    EXPECT_LT(l2_error(stored.generate(adapted).latents, want),
              0.6 * l2_error(Model::open(model, with(precision)).generate(adapted).latents, want));
    EXPECT_EQ(Model::open(out, with(Precision::bf16, "shard=2")).generate(adapted).latents,
              stored.generate(adapted).latents);
  }
}

TEST(Smoothing, WhatHasNoProductsIsRefused) {
  const Scratch scratch;
  const auto said = [&](const std::string& model, QuantiseRequest request) {
    return golden::error_of([&] { Model::open(model, with(Precision::bf16)).quantise(request); });
  };
  QuantiseRequest request = smoothed(scratch / "q", Precision::int8);
  request.dtype.reset();
  EXPECT_NE(said(TESSERA_MODELS_DIR "/scenes", request).find("`calibration`"), std::string::npos);
  request.rules = "text=int8";
  EXPECT_NE(said(TESSERA_MODELS_DIR "/scenes", request).find("`calibration`"), std::string::npos);
  EXPECT_FALSE(fs::exists(scratch / "q"));
}

}  // namespace
}  // namespace tessera
