#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tensor/scope.h"
#include "tensor/tensor.h"

namespace tessera::kernels::reference {
namespace {

template <class T>
void one_query(const AttentionArgs& a, const AttentionRange& span, int64_t query, int head) {
  const int64_t dim = a.head_dim, at = int64_t{head} * dim;
  const int64_t kv_at = int64_t{head / (a.heads / a.kv_heads)} * dim;
  const T* q = static_cast<const T*>(a.q) + query * a.q_stride + at;
  const int64_t to = query * a.out_stride + at;
  std::vector<double> p(static_cast<size_t>(span.k_end - span.k_begin));
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (size_t j = 0; j < p.size(); ++j) {
    const T* k = static_cast<const T*>(a.k) + (span.k_begin + int64_t(j)) * a.k_stride + kv_at;
    for (int64_t c = 0; c < dim; ++c)
      p[j] += double(tensor::to_float(q[c])) * double(tensor::to_float(k[c]));
    p[j] *= double(a.scale);
    top = std::max(top, p[j]);
  }
  for (double& e : p) sum += e = std::exp(e - top);
  std::vector<double> mixed(static_cast<size_t>(dim));
  for (size_t j = 0; j < p.size(); ++j) {
    const T* v = static_cast<const T*>(a.v) + (span.k_begin + int64_t(j)) * a.v_stride + kv_at;
    for (int64_t c = 0; c < dim; ++c)
      mixed[size_t(c)] += p[j] / sum * double(tensor::to_float(v[c]));
  }
  for (int64_t c = 0; c < dim; ++c) {
    const auto value = static_cast<float>(mixed[size_t(c)]);
    if (a.wide)
      static_cast<float*>(a.out)[to + c] = value;
    else
      static_cast<T*>(a.out)[to + c] = tensor::from_float<T>(value);
  }
  if (a.lse)
    a.lse[query * a.heads + head] = static_cast<float>(p.empty() ? top : top + std::log(sum));
}

}  // namespace

void attention(const AttentionArgs& a) {
  for (int64_t s = 0; s < a.span_count; ++s) {
    const AttentionRange& span = a.spans[s];
    tensor::parallel_for(span.q_end - span.q_begin, 8, [&](int64_t begin, int64_t end) {
      for (int64_t q = span.q_begin + begin; q < span.q_begin + end; ++q)
        for (int h = 0; h < a.heads; ++h)
          tensor::with_float_type(a.dtype, [&](auto t) { one_query<decltype(t)>(a, span, q, h); });
    });
  }
}

}  // namespace tessera::kernels::reference
