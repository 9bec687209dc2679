#include "diffusion/start.h"

#include <gtest/gtest.h>

#include "sample/linear_sampler.h"

namespace tessera::diffusion {
namespace {

using tensor::DType;
using tensor::Tensor;

// Two samples of a latent of two channels; the run begins at a noise level of 0.75.
Job small_job() {
  Job job;
  job.planned.layout = {2, {1, 2, 4}, {1, 1, 1}};
  job.planned.labels = {"a", "b"};
  sample::LinearStep step;
  step.before = {0.25, 0.75};
  job.planned.sampler =
      std::make_shared<sample::LinearSampler>(std::vector<sample::LinearStep>{step}, 3);
  return job;
}

Tensor filled(const tensor::Shape& shape, float value) {
  const Tensor x = Tensor::empty(shape, DType::f32);
  std::fill_n(x.data<float>(), x.elements(), value);
  return x;
}

nn::Geometry one_block() {
  nn::Geometry geometry;
  geometry.blocks = 1;
  return geometry;
}

std::vector<float> drawn(uint64_t seed, const std::vector<tensor::Shape>& shapes) {
  Noise noise(NoiseSource::torch, {seed});
  Tensor x;
  for (const tensor::Shape& shape : shapes) x = noise.draw(shape);
  return x.to_floats();
}

}  // namespace

TEST(Start, OfNoiseIsScaledAsTheSamplerSays) {
  const Job job = small_job();
  const parallel::Setup setup({}, one_block(), job.workload());
  GenerateRequest request;
  request.seed = 5;
  Start start(request, job, setup);
  EXPECT_EQ(start.kept_latent(), nullptr);
  const auto noise = drawn(5, {{2, 2, 2, 4}});
  const Tensor tokens =
      nn::to_tokens(Tensor::from(std::span<const float>(noise), {2, 2, 2, 4}), job.planned.layout);
  const std::vector<float> got = start.latents().to_floats(), unit = tokens.to_floats();
  for (size_t i = 0; i < got.size(); ++i) EXPECT_FLOAT_EQ(got[i], 3 * unit[i]);
}

TEST(Start, OfAnImageMixesOneLatentWithEachSamplesNoise) {
  Job job = small_job();
  job.asked.source.emplace();
  job.asked.source->mean = filled({1, 2, 2, 4}, 2);
  job.asked.source->logvar = filled({1, 2, 2, 4}, 0);  // a deviation of 1
  const parallel::Setup setup({}, one_block(), job.workload());
  GenerateRequest request;
  request.seed = 5;
  Start start(request, job, setup);
  EXPECT_EQ(start.kept_latent(), nullptr) << "without a mask all of it changes";
  const tensor::Shape one{1, 2, 2, 4}, both{2, 2, 2, 4};
  const auto image = drawn(5, {one}), noise = drawn(5, {one, both});
  std::vector<float> mixed;
  for (size_t i = 0; i < noise.size(); ++i)
    mixed.push_back(0.25f * (2 + image[i % image.size()]) + 0.75f * noise[i]);
  const Tensor tokens =
      nn::to_tokens(Tensor::from(std::span<const float>(mixed), both), job.planned.layout);
  const std::vector<float> got = start.latents().to_floats(), expected = tokens.to_floats();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6);
}

TEST(Start, OfAMaskKeepsTheImageAndItsNoise) {
  Job job = small_job();
  job.asked.source.emplace();
  job.asked.source->mean = filled({1, 2, 2, 4}, 2);
  job.asked.source->logvar = filled({1, 2, 2, 4}, -30);
  job.asked.source->mask = filled({1, 1, 2, 4}, 0.25f);
  const parallel::Setup setup({}, one_block(), job.workload());
  GenerateRequest request;
  Start start(request, job, setup);
  ASSERT_NE(start.kept_latent(), nullptr);
  EXPECT_EQ(start.kept_latent()->mask.shape(), start.latents().shape());
  EXPECT_EQ(start.kept_latent()->mask.to_floats(), std::vector<float>(32, 0.25f));
  EXPECT_EQ(start.kept_latent()->rest.to_floats(), std::vector<float>(32, 0.75f));
  for (const float value : start.kept_latent()->clean.to_floats()) EXPECT_NEAR(value, 2, 1e-5);
}

}  // namespace tessera::diffusion
