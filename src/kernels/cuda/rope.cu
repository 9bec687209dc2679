#include "kernels/cuda/division.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/rope.h"

namespace tessera::kernels::cuda {
namespace {

// Split of a head: `pair_chunks` positions of pairs, then positions of copied channels.
struct RopePlan {
  Divisor places, heads;
  int pair_chunks;
};

__device__ inline void turn(float& first, float& second, float cosine, float sine) {
  const float low = first * cosine - second * sine;
  second = second * cosine + first * sine;
  first = low;
}

// Rotates V neighbouring pairs of a head from pair i on; x and y are offsets of the head.
template <int V>
__device__ inline void turn_pairs(const RopeArgs& a, int64_t x, int64_t y, int64_t table, int i) {
  float first[V], second[V], cosine[V], sine[V];
  load<V>(a.cos, DType::f32, table + i, cosine);
  load<V>(a.sin, DType::f32, table + i, sine);
  if (a.interleaved && V == 1) {
    load<V>(a.x, a.dtype, x + 2 * i, first);
    load<V>(a.x, a.dtype, x + 2 * i + 1, second);
  } else {  // two words, with interleaved elements exchanged if needed
    load<V>(a.x, a.dtype, x + (a.interleaved ? 2 * i : i), first);
    load<V>(a.x, a.dtype, x + (a.interleaved ? 2 * i + V : i + a.pairs), second);
  }
  if (a.interleaved && V > 1) {
    TESSERA_UNROLL
    for (int j = 0; j < V; j += 2) {
      turn(first[j], first[j + 1], cosine[j / 2], sine[j / 2]);
      turn(second[j], second[j + 1], cosine[V / 2 + j / 2], sine[V / 2 + j / 2]);
    }
  } else {
    TESSERA_UNROLL
    for (int j = 0; j < V; ++j) turn(first[j], second[j], cosine[j], sine[j]);
  }
  store<V>(a.y, a.dtype, y + (a.interleaved ? 2 * i : i), first);
  store<V>(a.y, a.dtype, y + (a.interleaved ? 2 * i + V : i + a.pairs), second);
}

// Each thread rotates V pairs, or copies V channels after the pairs.
template <int V>
__global__ void __launch_bounds__(kSpreadThreads)
    rope_kernel(RopeArgs a, RopePlan plan, int64_t begin, uint32_t pieces) {
  after_those_before();
  for (uint32_t n = first_small_piece(); n < pieces; n += small_piece_step()) {
    const RowPlace head_at(n, plan.places), token_at(head_at.row, plan.heads);
    const int64_t token = begin + token_at.row;
    const int64_t head = int64_t{token_at.chunk} * a.head_dim;
    const int64_t x = token * a.x_stride + head, y = token * a.y_stride + head;
    const int place = static_cast<int>(head_at.chunk);
    if (place < plan.pair_chunks) {
      turn_pairs<V>(a, x, y, token * a.pairs, place * V);
      continue;
    }
    float behind[V];
    const int64_t at = 2 * a.pairs + int64_t{place - plan.pair_chunks} * V;
    load<V>(a.x, a.dtype, x + at, behind);
    store<V>(a.y, a.dtype, y + at, behind);
  }
}

template <int V>
void run(const RopeArgs& args) {
  const int64_t pair_chunks = args.pairs / V, places = (args.head_dim - args.pairs) / V;
  if (args.heads == 0 || places == 0) return;
  const RopePlan plan{Divisor(places), Divisor(args.heads), static_cast<int>(pair_chunks)};
  each_run_of_rows(args.tokens, args.heads * places, [&](int64_t first, int64_t count) {
    const int64_t pieces = count * args.heads * places;
    launch("rope", rope_kernel<V>, early(spread(pieces)), args, plan, first,
           static_cast<uint32_t>(pieces));
  });
}

}  // namespace

void rope(const RopeArgs& args) {
  const bool words =
      args.pairs % 8 == 0 && args.head_dim % 8 == 0 &&
      in_words(args.x, args.dtype, args.x_stride) && in_words(args.y, args.dtype, args.y_stride) &&
      in_words(args.cos, DType::f32, args.pairs) && in_words(args.sin, DType::f32, args.pairs);
  words ? run<8>(args) : run<1>(args);
}

}  // namespace tessera::kernels::cuda
