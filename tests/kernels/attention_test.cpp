#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "base/stop.h"
#include "kernels/attention_problem.h"
#include "kernels/bf16_path.h"
#include "kernels/forms.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

std::vector<Form<AttentionArgs>> forms() {
  return forms_of<AttentionArgs>(
      &KernelTable::attention,
      {[](const AttentionArgs& a) { avx512::attention(Bf16Path::fma, a); },
       [](const AttentionArgs& a) { avx512::attention(Bf16Path::dot, a); }});
}

double worst_difference(const Tensor& a, const Tensor& b) {
  const std::vector<float> x = a.to_floats(), y = b.to_floats();
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = std::abs(double{x[i]} - y[i]) / (1 + std::abs(double{y[i]}));
    worst = d <= worst ? worst : std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
  }
  return worst;
}

std::vector<float> rounded_to(DType dtype, const Tensor& x) {
  std::vector<float> values = x.to_floats();
  if (dtype == DType::bf16)
    for (float& v : values) v = tensor::to_float(tensor::from_float<tensor::BFloat16>(v));
  return values;
}

const std::vector<Problem> kProblems = {
    {1, 1, 8, 1, DType::f32},
    {2, 1, 8, 3, DType::bf16},
    {3, 3, 32, 64, DType::bf16},
    {3, 1, 40, 65, DType::f32},
    {4, 2, 72, 131, DType::bf16, 9},
    {2, 2, 72, 131, DType::f32, 9},
    {2, 1, 128, 77, DType::bf16, 3},
    {1, 1, 512, 70, DType::bf16},
    {1, 1, 264, 70, DType::f32},
    {2, 2, 56, 300, DType::bf16, 20},
    {2, 1, 256, 129, DType::bf16},
    {1, 1, 24, 1, DType::bf16},
    {.heads = 4,
     .kv_heads = 2,
     .dim = 72,
     .tokens = 131,
     .dtype = DType::bf16,
     .int8_scores = true},
    {.heads = 1,
     .kv_heads = 1,
     .dim = 512,
     .tokens = 70,
     .dtype = DType::bf16,
     .int8_scores = true},
    {.heads = 2,
     .kv_heads = 1,
     .dim = 40,
     .tokens = 65,
     .dtype = DType::bf16,
     .spread = 9,
     .int8_scores = true,
     .offset = 3},
    {.heads = 2, .kv_heads = 1, .dim = 8, .tokens = 3, .dtype = DType::bf16, .int8_scores = true},
};

TEST(Attention, EqualsTheReferenceOnEveryInstructionSet) {
  for (const Problem& p : kProblems) {
    const int64_t n = p.tokens;
    const Ranges spans = {{0, n / 3, 0, n}, {n / 3, n, n / 5, n - n / 7}};
    const Answer want = run(reference::attention, p, spans);
    for (const auto& form : forms()) {
      const Answer got = run(form.kernel, p, spans);
      const bool exact = p.dtype == DType::f32;
      EXPECT_LT(worst_difference(got.out, want.out), exact ? 1e-5 : 8e-3)
          << form.name << " " << p.dim << " " << n;
      EXPECT_LT(worst_difference(got.lse, want.lse), exact ? 1e-5 : 2e-4)
          << form.name << " " << p.dim << " " << n;
    }
  }
}

TEST(Attention, AWideResultIsTheSameBeforeItIsRounded) {
  for (const Problem& p : kProblems)
    for (const auto& form : forms()) {
      Problem wide = p;
      wide.wide = true;
      const Ranges spans = {{0, p.tokens, 0, p.tokens}};
      const Answer got = run(form.kernel, wide, spans), rounded = run(form.kernel, p, spans);
      ASSERT_EQ(got.out.dtype(), DType::f32);
      EXPECT_EQ(rounded_to(p.dtype, got.out), rounded.out.to_floats()) << form.name << p.dim;
    }
}

TEST(Attention, AQueryDoesNotDependOnOthersOrOnThreads) {
  for (const Problem& p : kProblems)
    for (const auto& form : forms()) {
      const auto kernel = form.kernel;
      const int64_t n = p.tokens;
      const Answer together = run(kernel, p, {{0, n, 0, n}});
      Ranges apart;
      for (int64_t q = 0; q < n; q += 1 + q % 37)
        apart.push_back({q, std::min(n, q + 1 + q % 37), 0, n});
      std::reverse(apart.begin(), apart.end());  // neighbours would merge again
      EXPECT_EQ(run(kernel, p, apart), together) << form.name << " " << p.dim << " " << n;
      for (int threads : {2, 3}) {
        base::ThreadPool pool(threads);
        tensor::Scope scope;
        scope.pool = &pool;
        const tensor::BindScope bind(scope);
        EXPECT_EQ(run(kernel, p, {{0, n, 0, n}}), together) << form.name << " " << p.dim;
      }
    }
}

// Spans of a causal mask, token by token or in blocks, after spans over all keys: in order they
// share packed keys and tiles, in reverse order each is alone.
TEST(Attention, SpansThatSeeMoreAndMoreHaveTheBitsOfEachAlone) {
  for (const Problem& p : kProblems)
    for (const int64_t block : {1, 7, 32})
      for (const int64_t from : {int64_t{0}, p.tokens / 5}) {
        Ranges spans;
        if (from > 0) spans.push_back({0, from, 0, p.tokens});
        for (int64_t q = from, end; q < p.tokens; q = end) {
          end = std::min(p.tokens, q + block);
          spans.push_back({q, end, from, end});
        }
        const Ranges alone(spans.rbegin(), spans.rend());
        for (const auto& form : forms()) {
          const Answer want = run(form.kernel, p, alone);
          for (int threads : {1, 3}) {
            base::ThreadPool pool(threads);
            tensor::Scope scope;
            scope.pool = &pool;
            const tensor::BindScope bind(scope);
            EXPECT_EQ(run(form.kernel, p, spans), want)
                << form.name << " " << p.dim << " " << p.tokens << " " << block << " " << threads;
          }
        }
      }
}

// A head alone is a single task, of 15 s in a VAE at 1536 x 1536 on one thread.
TEST(Attention, ALongHeadEndsWhenItIsStopped) {
  if (detected_isa() < Isa::avx2) GTEST_SKIP() << "the reference gives a thread no whole heads";
  std::stop_source source;
  source.request_stop();
  const base::BindStop stopped(source.get_token());
  const Problem p{1, 1, 64, 65, DType::bf16};
  for (const Isa isa : available_isas()) {
    if (isa < Isa::avx2) continue;
    EXPECT_THROW(run(cpu_table(isa).attention, p, {{0, 65, 0, 65}}), Error) << name_of(isa);
  }
}

TEST(Attention, ManyUnevenSpansOverThreads) {
  const Problem p{6, 2, 32, 400, DType::bf16};
  const Ranges spans = {{0, 1, 0, 1}, {1, 40, 1, 40}, {40, 297, 0, 297}, {297, 400, 40, 400}};
  const Answer want = run(reference::attention, p, spans);
  for (int threads : {1, 2, 5})
    for (const auto& form : forms()) {
      base::ThreadPool pool(threads);
      tensor::Scope scope;
      scope.pool = &pool;
      const tensor::BindScope bind(scope);
      EXPECT_LT(worst_difference(run(form.kernel, p, spans).out, want.out), 8e-3);
    }
}

TEST(Attention, ScoresFarApartStayFinite) {
  const Problem p{1, 1, 16, 150, DType::f32, 4000};
  const Ranges spans = {{0, 150, 0, 150}};
  const Answer want = run(reference::attention, p, spans);
  for (const auto& form : forms()) {
    const Answer got = run(form.kernel, p, spans);
    EXPECT_LT(worst_difference(got.out, want.out), 1e-2) << form.name;
    EXPECT_LT(worst_difference(got.lse, want.lse), 1e-5) << form.name;
  }
}

TEST(Attention, TheUnitDoesNotMatterToF32) {
  if (!has_dot_products()) GTEST_SKIP() << "this CPU has one unit for products";
  const Problem p{3, 1, 40, 65, DType::f32};
  const Ranges spans = {{0, 65, 0, 65}};
  EXPECT_EQ(run([](const AttentionArgs& a) { avx512::attention(Bf16Path::dot, a); }, p, spans),
            run([](const AttentionArgs& a) { avx512::attention(Bf16Path::fma, a); }, p, spans));
}

// Sums of many keys stay in f32: rounding each probability to bf16 averages out.
TEST(Attention, RoundedProbabilitiesAddNoErrorThatGrowsWithTheKeys) {
  for (int64_t tokens : {64, 1500}) {
    Problem p{1, 1, 64, tokens, DType::bf16};
    p.wide = true;
    const Ranges spans = {{0, 8, 0, tokens}};
    const Answer want = run(reference::attention, p, spans);
    for (const auto& form : forms())
      EXPECT_LT(worst_difference(run(form.kernel, p, spans).out, want.out), 2e-3)
          << form.name << " " << tokens;
  }
}

double l2_error(const Tensor& got, const Tensor& want) {
  const std::vector<float> x = got.to_floats(), y = want.to_floats();
  double error = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
    size += double{y[i]} * y[i];
  }
  return std::sqrt(error / size);
}

// Without the mean's subtraction the offset of the keys would take most of their 127 steps.
TEST(Attention, Int8ScoresAreNearTheExactScores) {
  for (const int64_t dim : {64, 72, 128})
    for (const float offset : {0.0f, 8.0f}) {
      Problem p{2, 1, dim, 300, DType::bf16, 2};
      p.wide = true;
      p.offset = offset;
      const Ranges spans = {{0, 300, 0, 300}};
      const Answer want = run(reference::attention, p, spans);
      p.int8_scores = true;
      for (const auto& form : forms()) {
        const Answer got = run(form.kernel, p, spans);
        EXPECT_LT(l2_error(got.out, want.out), 0.03) << form.name << dim << ' ' << offset;
        EXPECT_GT(l2_error(got.out, want.out), 1e-4) << form.name << dim << ' ' << offset;
        EXPECT_LT(l2_error(got.lse, want.lse), 1e-2) << form.name << dim << ' ' << offset;
      }
    }
}

TEST(Attention, Int8ScoresOfZerosAreTheMeanOfTheValues) {
  Problem p{1, 1, 16, 70, DType::bf16, 0};
  p.int8_scores = p.wide = true;
  const Ranges spans = {{0, 70, 0, 70}};
  const Answer want = run(reference::attention, p, spans);
  for (const auto& form : forms())
    EXPECT_LT(worst_difference(run(form.kernel, p, spans).out, want.out), 3e-3) << form.name;
}

TEST(Attention, Int8ScoresOfNaNAreNaN) {
  Problem p{1, 1, 16, 70, DType::bf16};
  p.int8_scores = true;
  p.broken = 1;  // a key: the mean is NaN, too
  for (const auto& form : forms())
    for (const float v : run(form.kernel, p, {{0, 60, 0, 70}}).out.slice(0, 0, 60).to_floats())
      ASSERT_TRUE(std::isnan(v)) << form.name;
  for (const auto& form : forms())  // a query
    for (const float v : run(form.kernel, p, {{0, 70, 0, 60}}).out.slice(0, 69, 70).to_floats())
      ASSERT_TRUE(std::isnan(v)) << form.name;
}

TEST(Attention, NoSpansTouchNothing) {
  const Problem p{2, 2, 16, 5, DType::f32};
  for (const auto& form : forms()) {
    const Answer got = run(form.kernel, p, {});
    for (float v : got.out.to_floats()) EXPECT_EQ(v, 0);
  }
}

}  // namespace
}  // namespace tessera::kernels
