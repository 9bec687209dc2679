#include "kernels/cuda/leg.h"
// The leg comes first: it is what the sources below are compiled with.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/sampling_problem.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/sampling.cu"
#endif

namespace tessera::kernels {
namespace {

// The same operands on the host and there; odd sizes, one element, several blocks, and no rows.
struct Pair {
  SamplingProblem here, there;
  explicit Pair(StepSize size) : here(kHost, size), there(kThere, size) {}
};
std::vector<Pair> pairs() {
  std::vector<Pair> all;
  for (const StepSize size : problems<StepSize>({{7, 37}, {1, 1}, {300, 5}, {0, 8}}, {{65536, 64}}))
    all.emplace_back(size);
  return all;
}

TEST(CudaSampling, LinearStepsEqualTheReference) {
  for (const Pair& p : pairs())
    for (const LinearStepCoefficients& by : linear_steps())
      EXPECT_LT(worst_difference(p.there.linear(cuda::linear_step, by),
                                 p.here.linear(reference::linear_step, by)),
                2e-7);
}

TEST(CudaSampling, LearnedRangesEqualTheReference) {
  for (const Pair& p : pairs())
    for (bool noise : {false, true})
      EXPECT_LT(worst_difference(
                    p.there.learned_range(cuda::learned_range_step, kLearnedRange, noise),
                    p.here.learned_range(reference::learned_range_step, kLearnedRange, noise)),
                1e-6);
}

TEST(CudaSampling, FlowsAndGuidanceEqualTheReference) {
  for (const Pair& p : pairs()) {
    EXPECT_LT(worst_difference(p.there.flow(cuda::flow_step, 0.3f),
                               p.here.flow(reference::flow_step, 0.3f)),
              1e-6);
    for (int64_t guided : {int64_t{0}, p.here.columns / 2, p.here.columns})
      EXPECT_LT(worst_difference(p.there.guide(cuda::guide, 4.5f, guided),
                                 p.here.guide(reference::guide, 4.5f, guided)),
                2e-6);
  }
}

}  // namespace
}  // namespace tessera::kernels
