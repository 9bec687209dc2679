#include <cmath>
#include <map>

#include "sample/scheduler_settings.h"
#include "test_paths.h"

namespace tessera::sample {
namespace {

constexpr int kNumbers = 12, kSamples = 2;

// The formulas of tools/make_scheduler_golden.py.
std::vector<float> numbers(int run) {
  std::vector<float> result;
  for (int i = 0; i < kNumbers; ++i)
    result.push_back(static_cast<float>(std::sin(12.9 * (i + 1) + 7.3 * run)));
  return result;
}

Tensor latent_of(const std::vector<float>& values) {
  return Tensor::from(std::span<const float>(values), {2 * kSamples, kNumbers / 2 / kSamples});
}

Tensor prediction(const Sampler& sampler, int i, const Tensor& x) {
  const std::vector<float> bias = numbers(1 + i), values = x.to_floats();
  std::vector<float> out;
  for (size_t j = 0; j < values.size(); ++j)
    out.push_back(std::tanh(values[j] * sampler.input_scale(i)) * 0.8f + 0.3f * bias[j]);
  return latent_of(out);
}

// Every latent of a run, as the generator's `walk`.
std::vector<std::vector<float>> run(const Sampler& sampler) {
  std::vector<float> start = numbers(0);
  for (float& v : start) v *= 1.5f * sampler.initial_scale();
  Tensor x = latent_of(start);
  History history;
  std::vector<std::vector<float>> latents;
  for (int i = 0; i < sampler.steps(); ++i) {
    const Tensor noise = sampler.needs_noise(i) ? latent_of(numbers(100 + i)) : Tensor();
    x = sampler.step(i, prediction(sampler, i, x), x, noise, history);
    latents.push_back(x.to_floats());
  }
  return latents;
}

double error_of(const std::vector<float>& a, const std::vector<double>& b) {
  double worst = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    worst = std::max(worst, std::abs(double(a.at(i)) - b[i]));
    size = std::max(size, std::abs(b[i]));
  }
  return worst / size;
}

TEST(SchedulerGolden, TimestepsAndLatentsAreThoseOfDiffusers) {
  std::map<std::string, int> runs;
  for (const base::Json& golden : base::read_json(TESSERA_TEST_DATA "/schedulers.json")) {
    const std::string name = golden["class"];
    const int steps = golden["steps"];
    SCOPED_TRACE(name + " " + golden["config"].dump() + " " + std::to_string(steps));
    const auto sampler = make_sampler(name, golden["config"], "scheduler_config.json",
                                      {.steps = steps, .tokens = golden["tokens"]});
    std::vector<float> times;
    for (const base::Json& t : golden["timesteps"]) times.push_back(t);
    ++runs[name];
    // Those that fall between two of training differ by the last bits of numpy's logarithm.
    const auto found = times_of(*sampler);
    ASSERT_EQ(found.size(), times.size());
    for (size_t i = 0; i < times.size(); ++i)
      EXPECT_NEAR(found[i], times[i], times[i] == std::floor(times[i]) ? 0 : 2e-4);
    const auto latents = run(*sampler);
    const base::Json& x = golden["x"];
    ASSERT_TRUE(x.size() == 1 || x.size() == latents.size());
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_LT(error_of(latents[latents.size() - x.size() + i], x[i]), 3e-5) << "pass " << i;
  }
  EXPECT_EQ(runs.size(), schedulers().size());
  for (const auto& [name, count] : runs) EXPECT_GE(count, 6) << name;
}

}  // namespace
}  // namespace tessera::sample
