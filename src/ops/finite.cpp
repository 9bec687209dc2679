#include "ops/finite.h"

#include <atomic>

#include "base/fail.h"
#include "tensor/scope.h"

namespace tessera::ops {
namespace {

using tensor::DType;
using tensor::Tensor;

// A float whose exponent is all ones is no number; without a branch in the loop.
template <class Bits>
bool numbers(const Bits* bits, int64_t count, Bits exponent) {
  int odd = 0;
  for (int64_t i = 0; i < count; ++i) odd |= (bits[i] & exponent) == exponent;
  return odd == 0;
}

bool numbers_in(const Tensor& x, int64_t begin, int64_t end) {
  const auto* bytes = static_cast<const unsigned char*>(x.raw()) + begin * size_of(x.dtype());
  const int64_t count = end - begin;
  if (x.dtype() == DType::f32)
    return numbers<uint32_t>(reinterpret_cast<const uint32_t*>(bytes), count, 0x7f800000u);
  return numbers<uint16_t>(reinterpret_cast<const uint16_t*>(bytes), count,
                           x.dtype() == DType::bf16 ? 0x7f80 : 0x7c00);
}

}  // namespace

bool all_finite(const Tensor& x) {
  if (!x.defined() || x.is_meta() || !tensor::is_float(x.dtype())) return true;
  const Tensor here = x.to(tensor::Device::cpu).contiguous();
  std::atomic<bool> finite = true;
  tensor::parallel_for(here.elements(), 1 << 16, [&](int64_t begin, int64_t end) {
    if (!numbers_in(here, begin, end)) finite = false;
  });
  return finite;
}

void require_finite(const Tensor& x, std::string_view part) {
  if (!all_finite(x)) fail_not_finite(part);
}

void fail_not_finite(std::string_view part) {
  fail(ErrorCode::model,
       "{} of the model gives values that are no numbers (NaN or infinity), and nothing before it "
       "does: its weights are damaged; get their file again",
       part);
}

}  // namespace tessera::ops
