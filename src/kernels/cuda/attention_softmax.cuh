#pragma once

#include "kernels/cuda/attention_items.cuh"

// Online softmax of a tile of sixteen queries for each warp, in the register layout of the
// products' sums; shared by all attention kernels on tensor cores.
namespace tessera::kernels::cuda {

/// State of a warp's sixteen queries: a lane holds rows g and g + 8 with g = lane / 4.
template <int Width>
struct WarpState {
  float out[Width / 8][4];
  float top[2], sum[2];  ///< in units of log2; the sum is partial for each lane
};

template <int Width>
__device__ inline void begin(WarpState<Width>& state) {
  TESSERA_UNROLL
  for (int c = 0; c < Width / 8; ++c) TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) state.out[c][i] = 0;
  TESSERA_UNROLL
  for (int half = 0; half < 2; ++half) {
    state.top[half] = -INFINITY;
    state.sum[half] = 0;
  }
}

/// Masks keys from `valid` on; only an item's last block has masked keys.
template <int Keys>
__device__ inline void close_keys(float (&scores)[Keys / 8][4], int64_t valid) {
  if (valid >= Keys) return;
  const int open = static_cast<int>(valid), lane = static_cast<int>(threadIdx.x) % kWarp;
  TESSERA_UNROLL
  for (int j = 0; j < Keys / 8; ++j) TESSERA_UNROLL
  for (int i = 0; i < 4; ++i)
    if (j * 8 + lane % 4 * 2 + i % 2 >= open) scores[j][i] = -INFINITY;
}

/// 2^x within 7.5e-5, for x up to 0: a polynomial of the distance to the nearest integer, with the
/// integer added to the exponent. Values below -125 are clamped; NaN stays NaN.
__device__ inline float exp2_by_polynomial(float x) {
  constexpr float kWhole = 0x1.8p23f;  // numbers this large are integers
  const float least = fmaxf(x, -125);
  const float biased = least + kWhole, rest = least - (biased - kWhole);
  const float power =
      fmaf(fmaf(fmaf(0.05517167f, rest, 0.24261112f), rest, 0.69326099f), rest, 0.99992807f);
  return x == x ? __uint_as_float(__float_as_uint(power) + (__float_as_uint(biased) << 23)) : x;
}

/// Converts scores to probabilities under the running maximum. `scale`, above 0, converts scores to
/// units of log2; `shrink`: factor for the sums of earlier blocks under the new maximum. One in
/// every `Polynomials` pairs of exponentials is a polynomial; 0: none.
template <int Keys, int Polynomials = 0>
__device__ inline void soften(float (&scores)[Keys / 8][4], float scale, float (&tops)[2],
                              float (&sums)[2], float (&shrink)[2]) {
  TESSERA_UNROLL
  for (int half = 0; half < 2; ++half) {
    float top = -INFINITY;
    TESSERA_UNROLL
    for (int j = 0; j < Keys / 8; ++j)
      top = fmaxf(top, fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
    top = fmaxf(tops[half], fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2)) * scale);
    shrink[half] = exp2_of(tops[half] - top);
    tops[half] = top;
    float sum = sums[half] * shrink[half];
    TESSERA_UNROLL
    for (int j = 0; j < Keys / 8; ++j) TESSERA_UNROLL
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      const float power = fmaf(scores[j][i], scale, -top);
      if constexpr (Polynomials > 0)
        scores[j][i] = j % Polynomials == 0 ? exp2_by_polynomial(power) : exp2_of(power);
      else
        scores[j][i] = exp2_of(power);
      sum += scores[j][i];
    }
    sums[half] = sum;
  }
}

template <int Width>
__device__ inline void scale_rows(float (&out)[Width / 8][4], const float (&shrink)[2]) {
  TESSERA_UNROLL
  for (int c = 0; c < Width / 8; ++c) TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) out[c][i] *= shrink[i / 2];
}

/// Writes the tile's rows; warp w has the queries from item.first + 16 w on.
template <int Width>
__device__ inline void finish(const AttentionArgs& a, const AttentionItem& item,
                              WarpState<Width>& state) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = threadIdx.x / kWarp;
  TESSERA_UNROLL
  for (int half = 0; half < 2; ++half) {
    float sum = state.sum[half];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    const int64_t query = item.first + warp * 16 + half * 8 + lane / 4;
    if (query >= item.last) continue;
    const float inverse = sum > 0 ? 1 / sum : 0;
    const int64_t at = query * a.out_stride + int64_t{item.head} * a.head_dim + lane % 4 * 2;
    TESSERA_UNROLL
    for (int c = 0; c < Width / 8; ++c) {
      if (c * 8 >= a.head_dim) continue;
      const float first = state.out[c][2 * half] * inverse,
                  second = state.out[c][2 * half + 1] * inverse;
      if (a.wide) {
        float* const out = static_cast<float*>(a.out) + at + c * 8;
        out[0] = first, out[1] = second;
      } else {
        auto* const out = static_cast<BFloat16*>(a.out) + at + c * 8;
        *reinterpret_cast<uint32_t*>(out) = pack_bf16(first, second);
      }
    }
    if (a.lse && lane % 4 == 0)
      a.lse[query * a.heads + item.head] =
          sum > 0 ? (state.top[half] + log2f(sum)) * 0.6931471805599453f : -INFINITY;
  }
}

}  // namespace tessera::kernels::cuda
