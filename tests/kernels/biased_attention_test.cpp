#include "kernels/biased_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/forms.h"
#include "kernels/random_values.h"
#include "tensor/scope.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

// q, k and v are column slices of a fused projection.
struct BiasedProblem {
  int64_t tokens, heads, dim, visible;
  DType dtype;
  float spread = 0.5f;

  int64_t wide() const { return heads * dim; }
  Tensor fused() const { return random_tensor({tokens, 3 * wide()}, dtype, 1, spread); }
  Tensor bias() const { return random_tensor({heads, 2 * tokens - 1}, DType::f32, 2, 4 * spread); }
};
const std::vector<BiasedProblem> kProblems = {
    {7, 2, 6, 5, DType::f32},       {7, 2, 6, 5, DType::bf16},      {150, 3, 64, 131, DType::f32},
    {150, 3, 64, 131, DType::bf16}, {200, 1, 40, 200, DType::bf16}, {65, 2, 64, 1, DType::bf16},
    {90, 2, 24, 77, DType::bf16, 3}};

using AnyForm = Form<BiasedAttentionArgs>;
std::vector<AnyForm> forms() {
  return forms_of<BiasedAttentionArgs>(
      &KernelTable::biased_attention,
      {[](const BiasedAttentionArgs& a) { avx512::biased_attention(Bf16Path::fma, a); },
       [](const BiasedAttentionArgs& a) { avx512::biased_attention(Bf16Path::dot, a); }});
}

std::vector<float> run(const AnyForm& form, const BiasedProblem& p) {
  const Tensor all = p.fused(), bias = p.bias();
  const Tensor out = Tensor::empty({p.tokens, p.wide()}, p.dtype);
  form.kernel({.q = all.raw(),
               .k = all.slice(1, p.wide(), 2 * p.wide()).raw(),
               .v = all.slice(1, 2 * p.wide(), 3 * p.wide()).raw(),
               .q_stride = 3 * p.wide(),
               .k_stride = 3 * p.wide(),
               .v_stride = 3 * p.wide(),
               .dtype = p.dtype,
               .tokens = p.tokens,
               .heads = p.heads,
               .head_dim = p.dim,
               .visible = p.visible,
               .bias = bias.data<float>(),
               .bias_stride = bias.stride(0),
               .out = out.raw(),
               .out_stride = out.stride(0)});
  return out.to_floats();
}

// The formula, in doubles.
std::vector<double> expected(const BiasedProblem& p) {
  const std::vector<float> x = p.fused().to_floats(), bias = p.bias().to_floats();
  const auto at = [&](int64_t t, int64_t which, int64_t h, int64_t c) {
    return double(x[size_t((t * 3 + which) * p.wide() + h * p.dim + c)]);
  };
  std::vector<double> out(size_t(p.tokens * p.wide()));
  for (int64_t h = 0; h < p.heads; ++h)
    for (int64_t t = 0; t < p.tokens; ++t) {
      std::vector<double> e;
      double sum = 0, top = -1e30;
      for (int64_t j = 0; j < p.visible; ++j) {
        double score = bias[size_t(h * (2 * p.tokens - 1) + j - t + p.tokens - 1)];
        for (int64_t c = 0; c < p.dim; ++c) score += at(t, 0, h, c) * at(j, 1, h, c);
        top = std::max(top, e.emplace_back(score));
      }
      for (double& score : e) sum += score = std::exp(score - top);
      for (int64_t c = 0; c < p.dim; ++c)
        for (size_t j = 0; j < e.size(); ++j)
          out[size_t(t * p.wide() + h * p.dim + c)] += e[j] / sum * at(int64_t(j), 2, h, c);
    }
  return out;
}

TEST(BiasedAttention, IsASoftmaxOfProductsAndBiasesByDistance) {
  for (const BiasedProblem& p : kProblems) {
    const std::vector<double> want = expected(p);
    for (const AnyForm& form : forms()) {
      const std::vector<float> got = run(form, p);
      double worst = 0;
      for (size_t i = 0; i < got.size(); ++i)
        worst = std::max(worst, std::isfinite(got[i])
                                    ? std::abs(got[i] - want[i]) / (1 + std::abs(want[i]))
                                    : INFINITY);
      EXPECT_LT(worst, p.dtype == DType::f32 ? 1e-5 : 8e-3)
          << form.name << " " << p.tokens << " " << p.visible;
    }
  }
}

TEST(BiasedAttention, ThreadsDoNotMatter) {
  for (const BiasedProblem& p : kProblems)
    for (const AnyForm& form : forms()) {
      const std::vector<float> alone = run(form, p);
      base::ThreadPool pool(3);
      tensor::Scope scope;
      scope.pool = &pool;
      const tensor::BindScope bind(scope);
      EXPECT_EQ(run(form, p), alone) << form.name << " " << p.tokens << " " << p.visible;
    }
}

}  // namespace
}  // namespace tessera::kernels
