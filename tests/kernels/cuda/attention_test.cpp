#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include "kernels/attention_problem.h"
#include "kernels/closeness.h"
#include "kernels/cuda/attention_plan.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/attention.cu"
#endif

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

const std::vector<Problem> kSmall = {
    {1, 1, 8, 1, DType::bf16},       {2, 1, 8, 3, DType::f32},
    {3, 3, 32, 64, DType::bf16},     {3, 1, 40, 65, DType::f32},
    {4, 2, 72, 131, DType::bf16, 2}, {2, 2, 72, 91, DType::f32, 2},
    {2, 1, 128, 77, DType::bf16, 2}, {1, 1, 256, 70, DType::bf16},
    {1, 1, 136, 40, DType::bf16},    {2, 1, 12, 50, DType::bf16},
    {1, 1, 512, 20, DType::f32},     {1, 1, 264, 20, DType::bf16},
    {2, 2, 56, 150, DType::bf16, 4}, {2, 2, 80, 70, DType::bf16},
    {2, 1, 64, 200, DType::f32, 2},  {2, 1, 10, 150, DType::bf16},
    {1, 1, 128, 130, DType::f32},    {1, 1, 200, 130, DType::f32},
    {1, 1, 512, 140, DType::f32, 2}, {2, 1, 90, 70, DType::f32},
    {1, 1, 300, 70, DType::bf16},
};
const std::vector<Problem> kLarge = {
    {2, 2, 64, 1030, DType::bf16},  {4, 2, 72, 700, DType::bf16, 2}, {2, 1, 128, 1111, DType::bf16},
    {1, 1, 256, 900, DType::bf16},  {2, 2, 88, 513, DType::bf16},    {2, 2, 64, 600, DType::f32},
    {4, 4, 64, 1100, DType::f32},   {4, 2, 128, 1100, DType::f32},   {1, 1, 512, 900, DType::f32},
    {1, 1, 512, 1030, DType::bf16}, {2, 1, 328, 700, DType::bf16},
};
const std::vector<Problem> kWide = {
    {1, 1, 512, 1, DType::bf16},      {1, 1, 512, 7, DType::bf16}, {1, 1, 512, 130, DType::bf16, 2},
    {2, 1, 320, 65, DType::bf16, 2},  {2, 2, 264, 7, DType::bf16}, {2, 2, 264, 130, DType::bf16},
    {1, 1, 512, 193, DType::bf16, 4}, {1, 1, 264, 50, DType::f32}, {1, 1, 508, 40, DType::bf16},
};

/// With blocks of 64 keys, of 32, and in f32; a GPU supports a single form.
template <class F>
void each_shared_memory(const F& f) {
#if defined(TESSERA_ON_GPU)
  f();
#else
  for (int kib : {227, 163, 99}) {
    SCOPED_TRACE(kib);
    emulation::most_shared = kib * 1024;
    f();
  }
  emulation::most_shared = 227 * 1024;
#endif
}

void expect_the_references(const Problem& p, const Ranges& spans) {
  const Answer want = run(kHost, reference::attention, p, spans);
  const Answer got = run(kThere, cuda::attention, p, spans);
  const bool exact = p.dtype == DType::f32;
  EXPECT_LT(worst_difference(got.out, want.out), exact ? 1e-5 : p.spread * 8e-3)
      << p.dim << " " << p.tokens;
  EXPECT_LT(worst_difference(got.lse, want.lse), exact ? 1e-5 : 2e-4) << p.dim << " " << p.tokens;
}

// A query's bits do not depend on other queries, nor on the order of threads.
void expect_own_bits(const Problem& p) {
  const int64_t n = p.tokens;
  const Answer together = run(kThere, cuda::attention, p, {{0, n, 0, n}});
  const Answer apart =
      run(kThere, cuda::attention, p, {{0, 5, 0, n}, {5, 30, 0, n}, {30, n, 0, n}});
  EXPECT_TRUE(same_bits(apart.out, together.out) && same_bits(apart.lse, together.lse));
  EXPECT_EQ(again([&] { return run(kThere, cuda::attention, p, {{0, n, 0, n}}); }), together);
}

TEST(CudaAttention, WideHeadsEqualTheReference) {
  each_shared_memory([] {
    for (const Problem& p : kWide) {
      const int64_t n = p.tokens;
      const Ranges spans = {{0, n / 3, 0, n}, {n / 3, n / 3, 0, n}, {n / 3, n, n / 5, n - n / 7}};
      expect_the_references(p, spans);
    }
  });
}

TEST(CudaAttention, AQueryOfAWideHeadDoesNotDependOnOthersOrOnTheOrderOfThreads) {
  each_shared_memory([] {
    for (const Problem& p :
         problems<Problem>({{2, 1, 512, 70, DType::bf16}, {1, 1, 328, 131, DType::bf16}},
                           {{1, 1, 512, 4096, DType::bf16}, {4, 2, 448, 1500, DType::bf16}})) {
      expect_own_bits(p);
    }
  });
}

// Three blocks of threads go from tile to tile; every place in shared memory is used again.
TEST(CudaAttention, WideHeadsInManyUnevenSpansSomeEmpty) {
  each_shared_memory([] {
    const Problem p{2, 1, 264, 200, DType::bf16};
    const Ranges spans = {{0, 1, 0, 1},     {1, 1, 0, 9},       {1, 40, 1, 40},
                          {40, 107, 0, 65}, {107, 190, 0, 200}, {190, 200, 7, 7}};
    const Answer want = run(kHost, reference::attention, p, spans);
    const Answer got = run(kThere, cuda::attention, p, spans);
    EXPECT_LT(worst_difference(got.out, want.out), tolerance(p.dtype));
    EXPECT_LT(worst_difference(got.lse, want.lse), 2e-4);
    EXPECT_EQ(got.lse.row<float>(195)[0], -INFINITY);
    EXPECT_EQ(again([&] { return run(kThere, cuda::attention, p, spans); }), got);
  });
}

TEST(CudaAttention, EqualsTheReference) {
  each_kind([] {
    for (const Problem& p : problems(kSmall, kLarge)) {
      const int64_t n = p.tokens;
      const Ranges spans = {{0, n / 3, 0, n}, {n / 3, n, n / 5, n - n / 7}};
      expect_the_references(p, spans);
    }
  });
}

TEST(CudaAttention, AWideResultIsTheSameBeforeItIsRounded) {
  each_kind([] {
    std::vector<Problem> all = problems(kSmall, kLarge);
    all.insert(all.end(), {{1, 1, 512, 65, DType::bf16}, {2, 1, 320, 7, DType::bf16}});
    for (const Problem& p : all) {
      Problem wide = p;
      wide.wide = true;
      const Ranges spans = {{0, p.tokens, 0, p.tokens}};
      const Answer got = run(kThere, cuda::attention, wide, spans),
                   rounded = run(kThere, cuda::attention, p, spans);
      ASSERT_EQ(got.out.dtype(), DType::f32);
      EXPECT_TRUE(same_bits(got.lse, rounded.lse));
      EXPECT_LT(worst_difference(got.out, rounded.out), p.dtype == DType::f32 ? 0x1p-60 : 0x1p-8)
          << p.dim;
    }
  });
}

TEST(CudaAttention, AQueryDoesNotDependOnOthersOrOnTheOrderOfThreads) {
  each_kind([] {
    for (const Problem& p : problems<Problem>({{1, 1, 40, 420, DType::bf16},
                                               {2, 1, 72, 131, DType::bf16},
                                               {2, 2, 24, 40, DType::f32},
                                               {1, 1, 64, 131, DType::f32},
                                               {1, 1, 200, 131, DType::f32},
                                               {1, 1, 100, 131, DType::bf16}},
                                              {{2, 2, 128, 1500, DType::f32},
                                               {4, 2, 128, 1500, DType::bf16},
                                               {8, 8, 64, 2000, DType::bf16}})) {
      expect_own_bits(p);
    }
  });
}

TEST(CudaAttention, ManyUnevenSpansSomeEmpty) {
  each_kind([] {
    for (DType dtype : {DType::bf16, DType::f32}) {
      const Problem p{4, 2, 32, 300, dtype};
      const Ranges spans = {{0, 1, 0, 1},      {1, 1, 0, 9},        {1, 40, 1, 40},
                            {40, 207, 0, 207}, {207, 290, 40, 300}, {290, 300, 7, 7}};
      const Answer want = run(kHost, reference::attention, p, spans);
      const Answer got = run(kThere, cuda::attention, p, spans);
      EXPECT_LT(worst_difference(got.out, want.out), tolerance(dtype));
      EXPECT_LT(worst_difference(got.lse, want.lse), 2e-4);
      EXPECT_EQ(got.lse.row<float>(295)[0], -INFINITY);
    }
  });
}

TEST(CudaAttention, TokensOfOtherSpansMayBeAnything) {
  each_kind([] {
    for (DType dtype : {DType::bf16, DType::f32})
      for (int64_t dim : {20, 24, 72, 80, 96, 128, 200, 320, 512}) {
        const Problem whole{1, 1, dim, 170, dtype};
        Problem broken = whole;
        broken.broken = 39;
        const Ranges spans = {{0, 131, 0, 131}};
        const Answer want = run(kThere, cuda::attention, whole, spans);
        EXPECT_EQ(run(kThere, cuda::attention, broken, spans), want) << dim;
      }
  });
}

TEST(CudaAttention, NoSpansTouchNothing) {
  each_kind([] {
    const Answer got = run(kThere, cuda::attention, {2, 2, 16, 5, DType::bf16}, {});
    for (float v : got.out.to_floats()) EXPECT_EQ(v, 0);
  });
}

TEST(CudaAttentionPlan, TakesTheNarrowestWidthThatHoldsTheHead) {
  using cuda::attention_plan;
  EXPECT_EQ(attention_plan(true, 64, true).width, 64);
  EXPECT_EQ(attention_plan(true, 72, true).width, 80);
  EXPECT_EQ(attention_plan(true, 96, true).width, 128);
  EXPECT_EQ(attention_plan(true, 256, true).keys, 16);
  EXPECT_EQ(attention_plan(true, 264, true).width, 0);
  EXPECT_EQ(attention_plan(true, 68, true).width, 0);
  EXPECT_EQ(attention_plan(false, 64, true).width, 0);
  EXPECT_EQ(attention_plan(true, 64, false).width, 0);
  EXPECT_EQ(cuda::wide_keys(227 * 1024), 64);  // Hopper
  EXPECT_EQ(cuda::wide_keys(163 * 1024), 32);  // A100
  EXPECT_EQ(cuda::wide_keys(99 * 1024), 0);
  for (int dim : {64, 80, 128, 256})  // two blocks fit on a multiprocessor of Hopper
    EXPECT_LE(attention_plan(true, dim, true).shared(), 227 * 1024 / 2);
}

}  // namespace
}  // namespace tessera::kernels
