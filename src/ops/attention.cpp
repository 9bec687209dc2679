#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/fail.h"
#include "kernels/attention.h"
#include "kernels/copy.h"
#include "kernels/table.h"
#include "ops/elementwise.h"
#include "ops/upload.h"
#include "tensor/run_watcher.h"
#include "tensor/shape_format.h"

namespace tessera::ops {
namespace {

void check(const Tensor& q, const Tensor& k, const Tensor& v, int heads, int kv_heads,
           std::span<const AttentionSpan> spans) {
  require(heads > 0 && kv_heads > 0 && heads % kv_heads == 0, ErrorCode::usage,
          "attention: {} heads over {} key heads; expected a multiple", heads, kv_heads);
  require(q.rank() == 2 && k.rank() == 2 && v.rank() == 2 && q.size(1) % heads == 0,
          ErrorCode::usage,
          "attention: queries {}, keys {}, values {}; expected [tokens, heads * head_dim]",
          q.shape(), k.shape(), v.shape());
  const int64_t dim = q.size(1) / heads;
  require(dim >= 1 && dim <= 512, ErrorCode::usage, "attention: head_dim {}; expected 1 to 512",
          dim);
  require(k.size(1) == kv_heads * dim && v.shape() == k.shape(), ErrorCode::usage,
          "attention: keys {} and values {}; expected [tokens, {}] both", k.shape(), v.shape(),
          kv_heads * dim);
  const bool one_type = q.dtype() == k.dtype() && q.dtype() == v.dtype();
  require(one_type && (q.dtype() == DType::f32 || q.dtype() == DType::bf16), ErrorCode::usage,
          "attention: {}, {} and {}; expected f32 or bf16 all three", tensor::name_of(q.dtype()),
          tensor::name_of(k.dtype()), tensor::name_of(v.dtype()));
  require_beside("attention", "k", k, q.device());
  require_beside("attention", "v", v, q.device());
  for (const AttentionSpan& s : spans)
    require(s.q_begin >= 0 && s.q_begin <= s.q_end && s.q_end <= q.size(0) && s.k_begin >= 0 &&
                s.k_begin <= s.k_end && s.k_end <= k.size(0),
            ErrorCode::usage,
            "attention: the span [{}, {}) over [{}, {}) leaves {} queries, {} keys", s.q_begin,
            s.q_end, s.k_begin, s.k_end, q.size(0), k.size(0));
}

// Copies each head's channels to the front of a wider head; the added zeros do not change results.
Tensor resized_heads(const Tensor& x, int64_t dim, int64_t to) {
  const int64_t heads = x.size(1) / dim, keep = std::min(dim, to),
                width = tensor::size_of(x.dtype());
  Tensor y = Tensor::zeros({x.size(0), heads * to}, x.dtype(), x.device());
  if (x.is_meta() || x.elements() == 0) return y;
  kernels::table_of(x.device())
      .copy({.x = x.raw(),
             .y = y.raw(),
             .element = width,
             .axes = 3,
             .size = {x.size(0), heads, keep},
             .x_stride = {x.stride(0), dim, 1},
             .y_stride = {y.stride(0), to, 1}});
  return y;
}

// Fills queries without keys: zeros, and a log-sum-exp of -inf.
void fill_unanswered(const Tensor& out, const Tensor* lse, std::span<const AttentionSpan> spans) {
  std::vector<bool> has_keys(static_cast<size_t>(out.size(0)));
  for (const AttentionSpan& s : spans)
    if (s.k_end > s.k_begin)
      for (int64_t q = s.q_begin; q < s.q_end; ++q) has_keys[static_cast<size_t>(q)] = true;
  std::vector<int32_t> rows;
  for (size_t q = 0; q < has_keys.size(); ++q)
    if (!has_keys[q]) rows.push_back(static_cast<int32_t>(q));
  if (rows.empty()) return;
  move_rows(out, std::vector<int32_t>(rows.size(), -1), out, rows);
  if (!lse) return;
  const std::vector<float> minus_infinity(static_cast<size_t>(lse->size(1)),
                                          -std::numeric_limits<float>::infinity());
  const Tensor row = Tensor::from(std::span<const float>(minus_infinity), {1, lse->size(1)});
  move_rows(row.to(out.device()), std::vector<int32_t>(rows.size(), 0), *lse, rows);
}

// Number of keys seen by any query.
int64_t keys_of(std::span<const AttentionSpan> spans) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const AttentionSpan& s : spans) ranges.emplace_back(s.k_begin, s.k_end);
  std::sort(ranges.begin(), ranges.end());
  int64_t count = 0, end = 0;
  for (const auto& [first, last] : ranges) {
    count += std::max<int64_t>(0, last - std::max(first, end));
    end = std::max(end, last);
  }
  return count;
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, int heads, int kv_heads,
                 std::span<const AttentionSpan> spans, const AttentionOptions& options) {
  check(q, k, v, heads, kv_heads, spans);
  require(!options.int8_scores ||
              (q.dtype() == DType::bf16 && (q.is_meta() || q.device() == tensor::Device::cpu)),
          ErrorCode::usage, "attention: int8 scores of {} on {}; expected bf16 on a CPU",
          tensor::name_of(q.dtype()), tensor::name_of(q.device()));
  const int64_t dim = q.size(1) / heads, wide = (dim + 7) / 8 * 8;
  if (wide != dim) {  // kernels need heads of whole vectors
    AttentionOptions same = options;
    if (!(same.scale > 0)) same.scale = 1 / std::sqrt(static_cast<float>(dim));
    const Tensor out = attention(resized_heads(q, dim, wide), resized_heads(k, dim, wide),
                                 resized_heads(v, dim, wide), heads, kv_heads, spans, same);
    return resized_heads(out, wide, dim);
  }
  Tensor out = Tensor::empty(q.shape(), options.wide ? DType::f32 : q.dtype(), q.device());
  if (options.lse) *options.lse = Tensor::empty({q.size(0), heads}, DType::f32, q.device());
  if (tensor::counts_ops()) {
    double pairs = 0;
    for (const AttentionSpan& s : spans)
      pairs += double(s.q_end - s.q_begin) * double(s.k_end - s.k_begin);
    const int64_t key_bytes = (k.size(1) + v.size(1)) * tensor::size_of(k.dtype());
    tensor::count_op("attention", 4 * pairs * double(q.size(1)),
                     double(q.bytes() + out.bytes()) + double(keys_of(spans) * key_bytes),
                     {q.size(0), q.size(1), dim, q.dtype()});
  }
  if (q.is_meta() || q.size(0) == 0) return out;
  fill_unanswered(out, options.lse, spans);
  std::vector<kernels::AttentionRange> ranges;
  for (const AttentionSpan& s : spans)
    if (s.q_end > s.q_begin && s.k_end > s.k_begin)
      ranges.push_back({s.q_begin, s.q_end, s.k_begin, s.k_end});
  const float scale = options.scale > 0 ? options.scale : 1 / std::sqrt(static_cast<float>(dim));
  const Uploaded<kernels::AttentionRange> here(ranges, q.device());
  kernels::table_of(q.device())
      .attention({.q = q.raw(),
                  .k = k.raw(),
                  .v = v.raw(),
                  .q_stride = q.stride(0),
                  .k_stride = k.stride(0),
                  .v_stride = v.stride(0),
                  .q_tokens = q.size(0),
                  .k_tokens = k.size(0),
                  .out = out.raw(),
                  .out_stride = out.stride(0),
                  .dtype = q.dtype(),
                  .wide = options.wide,
                  .int8_scores = options.int8_scores,
                  .heads = heads,
                  .kv_heads = kv_heads,
                  .head_dim = static_cast<int>(dim),
                  .scale = scale,
                  .spans = here.data(),
                  .span_count = static_cast<int64_t>(ranges.size()),
                  .lse = options.lse ? options.lse->data<float>() : nullptr});
  return out;
}

}  // namespace tessera::ops
