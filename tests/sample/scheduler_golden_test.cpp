#include <cmath>
#include <map>

#include "sample/scheduler_walk.h"
#include "test_paths.h"

namespace tessera::sample {
namespace {

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
    // Timesteps between two training steps differ by the last bits of numpy's logarithm.
    const auto found = times_of(*sampler);
    ASSERT_EQ(found.size(), times.size());
    for (size_t i = 0; i < times.size(); ++i)
      EXPECT_NEAR(found[i], times[i], times[i] == std::floor(times[i]) ? 0 : 2e-4);
    const auto latents = walk_latents(*sampler);
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
