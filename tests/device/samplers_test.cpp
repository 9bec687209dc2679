#include <gtest/gtest.h>

#include <memory>

#include "device/leg.h"
#include "device/on_gpu.h"
#include "sample/linear_sampler.h"

namespace tessera::device {
namespace {

Tensor noise(const std::string& name, int64_t columns) {
  return models::NamedNoise().get(name, {5, columns});
}

// Latents of every step, with all inputs on a device.
std::vector<std::vector<float>> latents(const sample::Sampler& sampler, int64_t predicted,
                                        Device device) {
  std::vector<std::vector<float>> all;
  sample::History history;
  Tensor x = noise("x", 6).to(device);
  for (int i = 0; i < sampler.steps(); ++i) {
    const std::string step = std::to_string(i);
    const Tensor drawn = sampler.needs_noise(i) ? noise("noise" + step, 6).to(device) : Tensor();
    x = sampler.step(i, noise("out" + step, predicted).to(device), x, drawn, history);
    EXPECT_EQ(x.device(), device);
    all.push_back(x.to_floats());
  }
  return all;
}

void expect_equal(const sample::Sampler& sampler, int64_t predicted) {
  const auto here = latents(sampler, predicted, Device::cpu);
  const Gpu gpu;
  const auto there = latents(sampler, predicted, Device::cuda);
  for (size_t i = 0; i < here.size(); ++i) expect_same(there[i], here[i], 1e-6);
  gpu.expect_kernels(sampler.steps() - 1);
}

TEST(SamplersOnGpu, StepsAreTheCpus) {
  expect_equal(*sample::rectified_flow(3), 12);
  expect_equal(*sample::ddpm_learned_range(4), 12);
  const sample::LinearStep first{.from_x = 1, .from_out = -0.7, .x = 0.5, .x0 = {0.5, 0, 0}};
  const sample::LinearStep third{.from_x = 0.9,
                                 .from_out = -0.5,
                                 .x = 0.4,
                                 .out = 0.1,
                                 .x0 = {1.2, -0.4, 0.2, 0.1},
                                 .noise = 0.3,
                                 .draws = 1};
  sample::LinearStep second = third;
  second.x0[2] = second.x0[3] = 0;
  expect_equal(sample::LinearSampler({first, second, second, third, third}, 1, {.bound = 1.5}), 6);
}

TEST(SamplersOnGpu, RescaledGuidanceGoesOverTheHost) {
  const Tensor guided = noise("guided", 6), cond = noise("cond", 6);
  const auto here = sample::rescale_guided(guided, cond, 0.7f, 5, 4).to_floats();
  const Gpu gpu;
  const Tensor there =
      sample::rescale_guided(guided.to(Device::cuda), cond.to(Device::cuda), 0.7f, 5, 4);
  EXPECT_EQ(there.device(), Device::cuda);
  EXPECT_EQ(there.to_floats(), here);
}

}  // namespace
}  // namespace tessera::device
