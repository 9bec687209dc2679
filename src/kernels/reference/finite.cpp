#include "kernels/finite.h"

#include <atomic>

#include "tensor/scope.h"

namespace tessera::kernels::reference {
namespace {

template <class Bits>
bool numbers(const void* x, int64_t begin, int64_t end, Bits exponent) {
  const auto* bits = static_cast<const Bits*>(x);
  int odd = 0;
  for (int64_t i = begin; i < end; ++i) odd |= (bits[i] & exponent) == exponent;
  return odd == 0;
}

}  // namespace

void all_finite(const FiniteArgs& a) {
  std::atomic<bool> finite = true;
  tensor::parallel_for(a.count, 1 << 16, [&](int64_t begin, int64_t end) {
    const bool part_finite =
        a.dtype == tensor::DType::f32
            ? numbers<uint32_t>(a.x, begin, end, 0x7f800000u)
            : numbers<uint16_t>(a.x, begin, end, a.dtype == tensor::DType::bf16 ? 0x7f80 : 0x7c00);
    if (!part_finite) finite = false;
  });
  *a.finite = finite;
}

}  // namespace tessera::kernels::reference
