#include "kernels/biased_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tensor/scope.h"
#include "tensor/tensor.h"

namespace tessera::kernels::reference {
namespace {

template <class T>
void one_query(const BiasedAttentionArgs& a, int64_t t, int64_t head, std::vector<float>& scores) {
  const int64_t at = head * a.head_dim;
  const auto row = [&](const void* x, int64_t stride, int64_t i) {
    return static_cast<const T*>(x) + i * stride + at;
  };
  const T* q = row(a.q, a.q_stride, t);
  const float* bias = a.bias + head * a.bias_stride + a.tokens - 1 - t;
  float largest = -std::numeric_limits<float>::infinity(), sum = 0;
  for (int64_t j = 0; j < a.visible; ++j) {
    const T* k = row(a.k, a.k_stride, j);
    double product = 0;
    for (int64_t c = 0; c < a.head_dim; ++c)
      product += double{tensor::to_float(q[c])} * double{tensor::to_float(k[c])};
    float& score = scores[static_cast<size_t>(j)];
    score = static_cast<float>(product) + bias[j];
    largest = std::max(largest, score);
  }
  for (float& score : scores) {
    score = std::exp(score - largest);
    sum += score;
    score = tensor::to_float(tensor::from_float<T>(score));
  }
  T* out = static_cast<T*>(a.out) + t * a.out_stride + at;
  for (int64_t c = 0; c < a.head_dim; ++c) {
    double mixed = 0;
    for (int64_t j = 0; j < a.visible; ++j)
      mixed += double{scores[static_cast<size_t>(j)]} *
               double{tensor::to_float(row(a.v, a.v_stride, j)[c])};
    out[c] = tensor::from_float<T>(static_cast<float>(mixed) / sum);
  }
}

}  // namespace

void biased_attention(const BiasedAttentionArgs& args) {
  tensor::with_float_type(args.dtype, [&](auto type) {
    tensor::parallel_for(args.tokens * args.heads, 4, [&](int64_t begin, int64_t end) {
      std::vector<float> scores(static_cast<size_t>(args.visible));
      for (int64_t i = begin; i < end; ++i)
        one_query<decltype(type)>(args, i / args.heads, i % args.heads, scores);
    });
  });
}

}  // namespace tessera::kernels::reference
