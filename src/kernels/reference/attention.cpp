#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/packed_weight.h"
#include "tensor/scope.h"
#include "tensor/tensor.h"

namespace tessera::kernels::reference {
namespace {

/// A row of a head as integers with a scale.
struct WholeRow {
  std::vector<float> values;
  double scale = 1;
};

// Quantises a row of `dim` channels minus `mean`, empty for none. A row with NaN gets a NaN scale.
template <class T>
WholeRow whole_row(const T* row, int64_t dim, const std::vector<float>& mean) {
  WholeRow whole{std::vector<float>(static_cast<size_t>(dim))};
  float largest = 0, nan_sum = 0;
  for (size_t c = 0; c < whole.values.size(); ++c) {
    const float x = tensor::to_float(row[c]) - (mean.empty() ? 0 : mean[c]);
    whole.values[c] = x;
    largest = std::max(largest, std::fabs(x));
    nan_sum += x * 0;  // NaN stays NaN
  }
  largest += nan_sum;
  const bool has_scale = largest > kInt8Least;
  const float inverse = has_scale ? kInt8Largest / largest : 0;
  for (float& x : whole.values) x = nearest_whole(x * inverse);
  whole.scale = double(has_scale ? largest / kInt8Largest : largest * 0 + 1);
  return whole;
}

/// Keys of a head and span as integers, without their mean.
struct WholeKeys {
  std::vector<float> mean;
  std::vector<WholeRow> rows;

  template <class T>
  WholeKeys(const AttentionArgs& a, const AttentionRange& span, int kv_head, T) {
    const auto row = [&](int64_t i) {
      return static_cast<const T*>(a.k) + (span.k_begin + i) * a.k_stride +
             int64_t{kv_head} * a.head_dim;
    };
    const int64_t keys = span.k_end - span.k_begin;
    mean.resize(static_cast<size_t>(a.head_dim));
    for (int64_t i = 0; i < keys; ++i)
      for (size_t c = 0; c < mean.size(); ++c) mean[c] += tensor::to_float(row(i)[c]);
    for (float& m : mean) m /= static_cast<float>(keys);
    for (int64_t i = 0; i < keys; ++i) rows.push_back(whole_row(row(i), a.head_dim, mean));
  }
};

// Replaces scores by products of integers. Returns the score of the mean.
template <class T>
double whole_scores(const AttentionArgs& a, const T* q, const WholeKeys& keys,
                    std::vector<double>& scores) {
  const WholeRow query = whole_row(q, a.head_dim, {});
  for (size_t j = 0; j < scores.size(); ++j) {
    double sum = 0;
    for (size_t c = 0; c < query.values.size(); ++c)
      sum += double(query.values[c]) * double(keys.rows[j].values[c]);
    scores[j] = sum * query.scale * keys.rows[j].scale * double(a.scale);
  }
  double mean = 0;
  for (size_t c = 0; c < query.values.size(); ++c)
    mean += double(tensor::to_float(q[c])) * double(keys.mean[c]);
  return mean * double(a.scale);
}

template <class T>
void one_query(const AttentionArgs& a, const AttentionRange& span, int64_t query, int head,
               const std::vector<WholeKeys>& whole) {
  const int64_t dim = a.head_dim, at = int64_t{head} * dim;
  const int64_t kv_at = int64_t{head / (a.heads / a.kv_heads)} * dim;
  const T* q = static_cast<const T*>(a.q) + query * a.q_stride + at;
  const int64_t to = query * a.out_stride + at;
  std::vector<double> p(static_cast<size_t>(span.k_end - span.k_begin));
  double top = -std::numeric_limits<double>::infinity(), sum = 0, mean = 0;
  for (size_t j = 0; j < p.size(); ++j) {
    const T* k = static_cast<const T*>(a.k) + (span.k_begin + int64_t(j)) * a.k_stride + kv_at;
    for (int64_t c = 0; c < dim; ++c)
      p[j] += double(tensor::to_float(q[c])) * double(tensor::to_float(k[c]));
    p[j] *= double(a.scale);
  }
  if (!whole.empty())
    mean = whole_scores(a, q, whole[static_cast<size_t>(head / (a.heads / a.kv_heads))], p);
  for (const double score : p) top = std::max(top, score);
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
    a.lse[query * a.heads + head] =
        static_cast<float>(p.empty() ? top : top + std::log(sum) + mean);
}

}  // namespace

void attention(const AttentionArgs& a) {
  for (int64_t s = 0; s < a.span_count; ++s) {
    const AttentionRange& span = a.spans[s];
    std::vector<WholeKeys> whole;
    for (int h = 0; a.int8_scores && h < a.kv_heads; ++h)
      tensor::with_float_type(a.dtype, [&](auto t) { whole.emplace_back(a, span, h, t); });
    tensor::parallel_for(span.q_end - span.q_begin, 8, [&](int64_t begin, int64_t end) {
      for (int64_t q = span.q_begin + begin; q < span.q_begin + end; ++q)
        for (int h = 0; h < a.heads; ++h)
          tensor::with_float_type(a.dtype,
                                  [&](auto t) { one_query<decltype(t)>(a, span, q, h, whole); });
    });
  }
}

}  // namespace tessera::kernels::reference
