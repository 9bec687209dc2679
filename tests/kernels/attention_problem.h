#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/attention.h"
#include "kernels/random_values.h"
#include "kernels/where.h"

namespace tessera::kernels {

using tensor::DType;
using tensor::Tensor;
using Ranges = std::vector<AttentionRange>;

// q, k and v are column slices of a fused projection; key heads may be fewer than query heads.
struct Problem {
  int heads, kv_heads;
  int64_t dim, tokens;
  DType dtype;
  float spread = 1;    // scale of the queries: large values make the running maxima grow
  int64_t broken = 0;  // number of last tokens with NaN
  bool wide = false;   // the result is f32
  bool int8_scores = false;
  float offset = 0;  // added to all keys

  static void add(Tensor& x, int64_t at, float value) {
    tensor::with_float_type(x.dtype(), [&](auto t) {
      auto* const element = x.row<decltype(t)>(0) + at;
      *element = tensor::from_float<decltype(t)>(tensor::to_float(*element) + value);
    });
  }
  Tensor fused() const {
    Tensor all = random_tensor({tokens, (heads + 2 * kv_heads) * dim}, dtype, 1);
    const Tensor queries = random_tensor({tokens, heads * dim}, dtype, 2, spread);
    for (int64_t t = 0; t < tokens; ++t)
      std::memcpy(all.row<std::byte>(0) + t * all.size(1) * size_of(dtype),
                  queries.data<std::byte>() + t * queries.size(1) * size_of(dtype),
                  static_cast<size_t>(heads * dim * size_of(dtype)));
    for (int64_t t = 0; offset != 0 && t < tokens; ++t)
      for (int64_t c = heads * dim; c < (heads + kv_heads) * dim; ++c)
        add(all, t * all.size(1) + c, offset * static_cast<float>(c % 5));
    std::memset(all.row<std::byte>(0) + (tokens - broken) * all.size(1) * size_of(dtype), 0xff,
                static_cast<size_t>(broken * all.size(1) * size_of(dtype)));
    return all;
  }
};

struct Answer {
  Tensor out, lse;
  bool operator==(const Answer& o) const {
    return std::memcmp(out.raw(), o.out.raw(), static_cast<size_t>(out.bytes())) == 0 &&
           std::memcmp(lse.raw(), o.lse.raw(), static_cast<size_t>(lse.bytes())) == 0;
  }
};

inline Answer run(const Where& at, void (*kernel)(const AttentionArgs&), const Problem& p,
                  const Ranges& spans) {
  const Tensor all = at(p.fused());
  const int64_t q = p.heads * p.dim, kv = p.kv_heads * p.dim;
  const Tensor k = all.slice(1, q, q + kv), v = all.slice(1, q + kv, q + 2 * kv);
  const Answer a{Tensor::zeros({p.tokens, q}, p.wide ? DType::f32 : p.dtype, at.device),
                 Tensor::zeros({p.tokens, p.heads}, DType::f32, at.device)};
  const Tensor ranges = at(spans);
  kernel({.q = all.raw(),
          .k = k.raw(),
          .v = v.raw(),
          .q_stride = all.stride(0),
          .k_stride = k.stride(0),
          .v_stride = v.stride(0),
          .q_tokens = p.tokens,
          .k_tokens = p.tokens,
          .out = a.out.raw(),
          .out_stride = q,
          .dtype = p.dtype,
          .wide = p.wide,
          .int8_scores = p.int8_scores,
          .heads = p.heads,
          .kv_heads = p.kv_heads,
          .head_dim = static_cast<int>(p.dim),
          .scale = 1 / std::sqrt(static_cast<float>(p.dim)),
          .spans = static_cast<const AttentionRange*>(ranges.raw()),
          .span_count = static_cast<int64_t>(spans.size()),
          .lse = a.lse.data<float>()});
  return {here(a.out), here(a.lse)};
}

inline Answer run(void (*kernel)(const AttentionArgs&), const Problem& p, const Ranges& spans) {
  return run(kHost, kernel, p, spans);
}

}  // namespace tessera::kernels
