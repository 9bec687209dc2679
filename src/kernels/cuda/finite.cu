#include "kernels/cuda/launch.cuh"
#include "kernels/finite.h"

namespace tessera::kernels::cuda {
namespace {

__global__ void assume_finite_kernel(int32_t* finite) {
  if (threadIdx.x == 0) *finite = 1;
}

// Checks the first `words` 16-byte words, then the remaining elements.
template <class Bits>
__global__ void __launch_bounds__(kSpreadThreads)
    all_finite_kernel(FiniteArgs a, uint32_t exponent, int64_t words) {
  const auto* x = static_cast<const Bits*>(a.x);
  bool odd = false;
  for (int64_t i = first_piece(); i < words; i += piece_step()) {
    const uint4 word = reinterpret_cast<const uint4*>(x)[i];
    const uint32_t parts[4] = {word.x, word.y, word.z, word.w};
    TESSERA_UNROLL
    for (int p = 0; p < 4; ++p) TESSERA_UNROLL
    for (unsigned shift = 0; shift < 32; shift += 8 * sizeof(Bits))
      odd |= (parts[p] >> shift & exponent) == exponent;
  }
  const auto each = static_cast<int64_t>(16 / sizeof(Bits));
  for (int64_t i = words * each + first_piece(); i < a.count; i += piece_step())
    odd |= (x[i] & exponent) == exponent;
  if (odd) *a.finite = 0;
}

template <class Bits>
void look(const FiniteArgs& a, uint32_t exponent) {
  const auto each = static_cast<int64_t>(16 / sizeof(Bits));
  const int64_t words = in_words(a.x, a.dtype, 0) ? a.count / each : 0;
  launch("all_finite", all_finite_kernel<Bits>, spread(words > 0 ? words : a.count), a, exponent,
         words);
}

}  // namespace

void all_finite(const FiniteArgs& args) {
  launch("all_finite", assume_finite_kernel, Launch{.threads = kWarp}, args.finite);
  if (args.dtype == DType::f32)
    look<uint32_t>(args, 0x7f800000u);
  else
    look<uint16_t>(args, args.dtype == DType::bf16 ? 0x7f80 : 0x7c00);
}

}  // namespace tessera::kernels::cuda
