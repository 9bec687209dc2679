#include "tensor/tensor.h"

#include <cstring>
#include <utility>

#include "base/fail.h"
#include "tensor/shape_format.h"

namespace tessera::tensor {
namespace {

std::array<int64_t, Shape::kMaxRank> dense_strides(const Shape& shape) {
  std::array<int64_t, Shape::kMaxRank> strides{};
  int64_t step = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[static_cast<size_t>(axis)] = step;
    step *= shape[axis];
  }
  return strides;
}

// Calls f(first element, count) for each innermost run, in dense order.
template <class F>
void each_run(const Tensor& x, F f) {
  if (x.elements() == 0) return;
  const int rank = x.rank();
  const int64_t run = rank == 0 ? 1 : x.size(-1), width = size_of(x.dtype());
  std::array<int64_t, Shape::kMaxRank> index{};
  for (int64_t r = 0; r < x.elements() / run; ++r) {
    int64_t at = 0;
    for (int axis = 0; axis + 1 < rank; ++axis)
      at += index[static_cast<size_t>(axis)] * x.stride(axis);
    f(static_cast<const std::byte*>(x.raw()) + at * width, run);
    for (int axis = rank - 2; axis >= 0; --axis) {
      if (++index[static_cast<size_t>(axis)] < x.size(axis)) break;
      index[static_cast<size_t>(axis)] = 0;
    }
  }
}

template <class To, class T>
void append(std::vector<To>& out, const std::byte* from, int64_t count) {
  const T* p = reinterpret_cast<const T*>(from);
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_integral_v<T>) {
      out.push_back(static_cast<To>(p[i]));
    } else {
      out.push_back(static_cast<To>(to_float(p[i])));
    }
  }
}

template <class To>
std::vector<To> values(const Tensor& x) {
  require(!x.is_meta(), ErrorCode::usage, "a meta tensor {} has no elements to read", x.shape());
  std::vector<To> out;
  out.reserve(static_cast<size_t>(x.elements()));
  each_run(x, [&](const std::byte* p, int64_t n) {
    switch (x.dtype()) {
      case DType::f32: return append<To, float>(out, p, n);
      case DType::bf16: return append<To, BFloat16>(out, p, n);
      case DType::f16: return append<To, Float16>(out, p, n);
      case DType::i32: return append<To, int32_t>(out, p, n);
      case DType::i64: return append<To, int64_t>(out, p, n);
      case DType::u8: return append<To, uint8_t>(out, p, n);
      case DType::i8: return append<To, int8_t>(out, p, n);
    }
  });
  return out;
}

template <class T>
Tensor copy_of(std::span<const T> values, const Shape& shape, DType dtype) {
  require(static_cast<int64_t>(values.size()) == shape.elements(), ErrorCode::usage,
          "{} values do not fill the shape {}", values.size(), shape);
  Tensor x = Tensor::empty(shape, dtype);
  if (!values.empty()) std::memcpy(x.raw(), values.data(), values.size_bytes());
  return x;
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device, MemoryClass memory_class) {
  int64_t bytes = 0;
  require(!__builtin_mul_overflow(shape.elements(), size_of(dtype), &bytes), ErrorCode::memory,
          "a tensor {} of {} is too large", shape, name_of(dtype));
  return over(Storage::allocate(bytes, device, memory_class), 0, shape, dtype);
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device, MemoryClass memory_class) {
  Tensor x = empty(shape, dtype, device, memory_class);
  if (device == Device::cpu) std::memset(x.raw(), 0, static_cast<size_t>(x.bytes()));
  return x;
}

Tensor Tensor::from(std::span<const float> values, const Shape& shape) {
  return copy_of(values, shape, DType::f32);
}

Tensor Tensor::from(std::span<const int32_t> values, const Shape& shape) {
  return copy_of(values, shape, DType::i32);
}

Tensor Tensor::over(std::shared_ptr<Storage> storage, int64_t offset, const Shape& shape,
                    DType dtype) {
  int64_t end = 0;
  const bool fits = offset >= 0 &&
                    !__builtin_mul_overflow(shape.elements(), size_of(dtype), &end) &&
                    !__builtin_add_overflow(end, offset, &end) && end <= storage->bytes();
  require(fits, ErrorCode::model, "a tensor {} of {} at byte {} does not fit in {} bytes", shape,
          name_of(dtype), offset, storage->bytes());
  Tensor x;
  x.storage_ = std::move(storage);
  x.offset_ = offset;
  x.shape_ = shape;
  x.strides_ = dense_strides(shape);
  x.dtype_ = dtype;
  return x;
}

int64_t Tensor::stride(int axis) const {
  const int index = axis < 0 ? axis + rank() : axis;
  require(index >= 0 && index < rank(), ErrorCode::usage, "axis {} is outside the shape {}", axis,
          shape_);
  return strides_[static_cast<size_t>(index)];
}

bool Tensor::dense() const {
  const auto expected = dense_strides(shape_);
  for (int axis = 0; axis < rank(); ++axis) {
    const size_t i = static_cast<size_t>(axis);
    if (shape_[axis] > 1 && strides_[i] != expected[i]) return false;
  }
  return true;
}

void* Tensor::raw() const {
  return storage_ && storage_->data() ? storage_->data() + offset_ : nullptr;
}

Tensor Tensor::slice(int axis, int64_t begin, int64_t end) const {
  require(begin >= 0 && begin <= end && end <= size(axis), ErrorCode::usage,
          "the slice [{}, {}) is outside axis {} of {}", begin, end, axis, shape_);
  Tensor part = *this;
  part.offset_ += begin * stride(axis) * size_of(dtype_);
  part.shape_ = shape_.with(axis, end - begin);
  return part;
}

Tensor Tensor::reshape(const Shape& shape) const {
  require(shape.elements() == elements() && dense(), ErrorCode::usage,
          "a tensor {}{} cannot take the shape {}", shape_, dense() ? "" : " (a view)", shape);
  Tensor other = *this;
  other.shape_ = shape;
  other.strides_ = dense_strides(shape);
  return other;
}

Tensor Tensor::contiguous() const {
  if (dense()) return *this;
  Tensor copy = empty(shape_, dtype_, device());
  if (is_meta()) return copy;
  std::byte* to = copy.data<std::byte>();
  each_run(*this, [&](const std::byte* p, int64_t n) {
    std::memcpy(to, p, static_cast<size_t>(n * size_of(dtype_)));
    to += n * size_of(dtype_);
  });
  return copy;
}

std::vector<float> Tensor::to_floats() const { return values<float>(*this); }

std::vector<int64_t> Tensor::to_ints() const {
  require(dtype_ == DType::i32 || dtype_ == DType::i64, ErrorCode::usage,
          "integers were expected, the tensor {} holds {}", shape_, name_of(dtype_));
  return values<int64_t>(*this);
}

}  // namespace tessera::tensor
