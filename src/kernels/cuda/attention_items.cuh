#pragma once

#include "kernels/attention.h"
#include "kernels/cuda/device.cuh"

namespace tessera::kernels::cuda {

/// True if every row of a head can be read and written 16 bytes at a time.
inline bool reads_words(const AttentionArgs& a) {
  return a.head_dim % 8 == 0 && in_words(a.q, a.dtype, a.q_stride) &&
         in_words(a.k, a.dtype, a.k_stride) && in_words(a.v, a.dtype, a.v_stride) &&
         in_words(a.out, a.wide ? DType::f32 : a.dtype, a.out_stride);
}

/// A work item of attention: queries [first, last) of a head over keys [k_begin, k_end).
struct AttentionItem {
  int64_t first, last, k_begin, k_end;
  int head;
};

/// Item `index` of all spans, cut into tiles of `queries`: heads outside, tiles inside, so that
/// neighbours share keys. False after the last item. The spans are in device memory, so the host
/// cannot count; blocks walk over the items in steps of the grid.
__device__ inline bool find_item(const AttentionArgs& a, int64_t queries, int64_t index,
                                 AttentionItem& item) {
  for (int64_t s = 0; s < a.span_count; ++s) {
    const AttentionRange span = a.spans[s];
    const int64_t tiles = ceil_div(span.q_end - span.q_begin, queries), items = tiles * a.heads;
    if (index < items) {
      const int64_t first = span.q_begin + index % tiles * queries;
      item = {first, first + queries < span.q_end ? first + queries : span.q_end, span.k_begin,
              span.k_end, static_cast<int>(index / tiles)};
      return true;
    }
    index -= items;
  }
  return false;
}

}  // namespace tessera::kernels::cuda
