#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/sampling_problem.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/sampling.cu"
#endif

namespace tessera::kernels {
namespace {

// The same operands on the host and on the device; odd sizes, a single element, several blocks, and
// no rows.
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

std::vector<Peak> peaks_of(const Where& at, void (*kernel)(const PeaksArgs&),
                           const tensor::Tensor& wide, int64_t except) {
  const int64_t rows = wide.size(0);
  const tensor::Tensor x = at(wide);
  const tensor::Tensor found = at(std::vector<Peak>(size_t(rows), {-2, -2, -2}));
  kernel({.logits = {x.data<float>() + 3, wide.size(1)},
          .rows = rows,
          .count = wide.size(1) - 3,
          .except = except,
          .peaks = static_cast<Peak*>(found.raw())});
  const tensor::Tensor y = here(found);
  return {static_cast<Peak*>(y.raw()), static_cast<Peak*>(y.raw()) + rows};
}

void expect_same_peaks(const tensor::Tensor& wide, int64_t except) {
  const auto want = peaks_of(kHost, reference::peaks, wide, except);
  const auto got = again([&] { return peaks_of(kThere, cuda::peaks, wide, except); });
  for (size_t t = 0; t < want.size(); ++t) {
    EXPECT_EQ(got[t].index, want[t].index) << t << ", " << except;
    EXPECT_EQ(got[t].largest, want[t].largest);
    if (std::isnan(want[t].sum) || want[t].largest == -INFINITY)
      EXPECT_EQ(std::isnan(got[t].sum), want[t].largest != -INFINITY) << t;
    else
      EXPECT_NEAR(got[t].sum, want[t].sum, 1e-12 * want[t].sum);
  }
}

TEST(CudaSampling, PeaksEqualTheReference) {
  for (const StepSize size :
       problems<StepSize>({{1, 1}, {3, 40}, {2, 8192}, {2, 8193}, {5, 20000}}, {{32, 157184}}))
    for (const float spread : {1.0f, 50.0f}) {
      tensor::Tensor wide = random_tensor({size.rows, size.columns + 3}, tensor::DType::f32, 7);
      for (int64_t i = 0; i < wide.elements(); ++i) wide.data<float>()[i] *= spread;
      for (const int64_t except : {int64_t{-1}, int64_t{0}, size.columns / 2})
        if (size.columns > 1 || except < 0) expect_same_peaks(wide, except);
    }
}

TEST(CudaSampling, PeaksOfEqualsOfWhatIsNoNumberAndOfInfinities) {
  tensor::Tensor wide = tensor::Tensor::zeros({6, 9003}, tensor::DType::f32);
  for (int64_t t = 0; t < 6; ++t)
    for (int64_t i = 0; i < 9003; ++i) wide.row<float>(t)[i] = t == 4 ? -INFINITY : -1;
  for (const int64_t at : {40, 41, 8300}) wide.row<float>(0)[at] = 2;  // the first
  wide.row<float>(1)[8999] = INFINITY;
  wide.row<float>(2)[8999] = std::nanf("");
  wide.row<float>(2)[17] = 5;
  wide.row<float>(3)[8999] = -INFINITY;
  wide.row<float>(5)[8200] = 90;  // in another part than the values far below
  for (const int64_t except : {int64_t{-1}, int64_t{37}, int64_t{8996}})
    expect_same_peaks(wide, except);
}

}  // namespace
}  // namespace tessera::kernels
