#include "comm/nccl/parcel.h"

#include <algorithm>
#include <limits>
#include <span>

#include "base/fail.h"

namespace tessera::comm::nccl {
namespace {

using tensor::DType;
using tensor::Tensor;

// Sites of communicators begin at -1; sites below belong to this transport. An involution.
int mirrored(int site) { return -3 - site; }
constexpr int kFarewell = std::numeric_limits<int>::min();
constexpr int64_t kMost = int64_t{1} << 48;

}  // namespace

Message describe(const Message& message) {
  const tensor::Shape& shape = message.data.shape();
  const Tensor head = Tensor::empty({1 + shape.rank()}, DType::i64);
  auto* out = head.data<int64_t>();
  *out = static_cast<int64_t>(message.data.dtype());
  for (int axis = 0; axis < shape.rank(); ++axis) out[1 + axis] = shape[axis];
  Message announcement{{message.tag.operation, mirrored(message.tag.site)}, head};
  announcement.order = message.order;
  return announcement;
}

Message farewell(int number) {
  Message word{{"end", kFarewell}, Tensor::empty({0}, DType::i64)};
  word.order = static_cast<uint64_t>(number);
  return word;
}

bool ours(const Message& message) { return message.tag.site < -1; }

bool is_farewell(const Message& message) { return message.tag.site == kFarewell; }

Parcel read_parcel(const Message& message) {
  const Tensor& head = message.data;
  bool good = head.defined() && head.dtype() == DType::i64 && head.rank() == 1 &&
              head.elements() >= 1 && head.elements() <= 1 + tensor::Shape::kMaxRank;
  Parcel parcel;
  if (good) {
    const std::span<const int64_t> in(head.data<int64_t>(), static_cast<size_t>(head.elements()));
    good = in[0] >= 0 && in[0] <= 255 && tensor::size_of(static_cast<DType>(in[0])) > 0;
    int64_t elements = 1;
    for (int64_t size : in.subspan(1))
      good = good && size >= 0 && size < kMost &&
             !__builtin_mul_overflow(elements, std::max(size, int64_t{1}), &elements) &&
             elements < kMost;
    if (good)
      parcel = {{message.tag.operation, mirrored(message.tag.site)},
                tensor::Shape(in.subspan(1)),
                static_cast<DType>(in[0])};
  }
  require(good, ErrorCode::rank,
          "a tensor was announced for '{}' that cannot be; do all ranks run the same version of "
          "the program?",
          message.tag.operation);
  return parcel;
}

}  // namespace tessera::comm::nccl
