#include "load/tensor_entry.h"

#include <algorithm>

#include "base/fail.h"
#include "tensor/dtype.h"

namespace tessera::load {

int64_t TensorEntry::elements() const {
  int64_t total = 1;
  for (const int64_t size : sizes) total *= size;
  return total;
}

bool TensorEntry::has_sizes(std::span<const int64_t> expected) const {
  std::span<const int64_t> own = sizes;
  if (drops_ones)
    while (expected.size() > own.size() && expected.front() == 1) expected = expected.subspan(1);
  return std::ranges::equal(own, expected);
}

int64_t TensorEntry::bytes() const {
  if (!format) return stored_bytes();
  return elements() * (dtype == "BF16" ? tensor::size_of(tensor::DType::bf16)
                                       : tensor::size_of(tensor::DType::f32));
}

TensorEntry rows_of(const TensorEntry& whole, int64_t from, int64_t until) {
  const bool plain = !whole.halves_swapped && !whole.sizes.empty() && whole.sizes.size() <= 2;
  require(plain && from >= 0 && from < until && until <= whole.sizes[0], ErrorCode::usage,
          "a tensor [{}] has no rows {} to {}", fmt::join(whole.sizes, ", "), from, until);
  TensorEntry part = whole;
  const int64_t row = whole.stored_bytes() / whole.sizes[0];
  part.sizes[0] = until - from;
  part.begin = whole.begin + from * row;
  part.end = whole.begin + until * row;
  if (whole.scales && whole.scales->size() > 1)
    part.scales = std::make_shared<const std::vector<float>>(whole.scales->begin() + from,
                                                             whole.scales->begin() + until);
  return part;
}

}  // namespace tessera::load
