#include "tensor/tensor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fail.h"
#include "tensor/device_pool.h"
#include "tensor/recording.h"
#include "tensor/scope.h"
#include "tensor/shape_format.h"

namespace tessera::tensor {
namespace {

constexpr int64_t kCopyPiece = int64_t{4} << 20;

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
std::vector<To> values(const Tensor& any) {
  require(!any.is_meta(), ErrorCode::usage, "a meta tensor {} has no elements to read",
          any.shape());
  const Tensor x = any.to(Device::cpu);
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

// Axes of two tensors of the same shape, as few as their strides allow; the innermost axis is dense
// in both.
struct Axes {
  int count = 0;
  std::array<int64_t, Shape::kMaxRank + 1> size{}, to{}, from{};  // outermost first, in bytes
};

Axes merged_axes(const Tensor& to, const Tensor& from) {
  const int64_t width = size_of(to.dtype());
  Axes reversed;
  reversed.size[0] = width, reversed.to[0] = reversed.from[0] = 1, reversed.count = 1;
  for (int axis = to.rank() - 1; axis >= 0; --axis) {
    if (to.size(axis) == 1) continue;
    const size_t last = static_cast<size_t>(reversed.count - 1);
    const int64_t a = to.stride(axis) * width, b = from.stride(axis) * width;
    if (a == reversed.to[last] * reversed.size[last] &&
        b == reversed.from[last] * reversed.size[last]) {
      reversed.size[last] *= to.size(axis);
      continue;
    }
    reversed.size[last + 1] = to.size(axis);
    reversed.to[last + 1] = a, reversed.from[last + 1] = b;
    ++reversed.count;
  }
  Axes axes = reversed;
  for (int i = 0; i < axes.count; ++i) {
    const auto here = static_cast<size_t>(i), there = static_cast<size_t>(axes.count - 1 - i);
    axes.size[here] = reversed.size[there];
    axes.to[here] = reversed.to[there], axes.from[here] = reversed.from[there];
  }
  return axes;
}

// Copies boxes of runs, each in a single call, in a loop over the outer axes.
template <class F>
void each_box(const Axes& axes, size_t axis, std::byte* to, const std::byte* from, const F& f) {
  const auto inner = static_cast<size_t>(axes.count - 1);
  if (axis + 1 < inner) {
    for (int64_t i = 0; i < axes.size[axis]; ++i)
      each_box(axes, axis + 1, to + i * axes.to[axis], from + i * axes.from[axis], f);
    return;
  }
  CopyBox box{to, axes.size[inner], from, axes.size[inner], axes.size[inner], 1};
  if (axis < inner)
    box.to_pitch = axes.to[axis], box.from_pitch = axes.from[axis], box.rows = axes.size[axis];
  f(box);
}

// In pieces: fresh pages cost more than the bytes, and a stop need not wait for the whole copy.
void copy_on_host(const CopyBox& box) {
  const int64_t rows = std::max<int64_t>(kCopyPiece / box.width, 1);
  const int64_t bytes = std::min(box.width, kCopyPiece);
  const int64_t across = (box.width + bytes - 1) / bytes;
  const auto piece = [&](int64_t i) {
    const int64_t first = i / across * rows, at = i % across * bytes;
    for (int64_t row = first; row < std::min(first + rows, box.rows); ++row)
      std::memcpy(static_cast<std::byte*>(box.to) + row * box.to_pitch + at,
                  static_cast<const std::byte*>(box.from) + row * box.from_pitch + at,
                  static_cast<size_t>(std::min(bytes, box.width - at)));
  };
  const int64_t pieces = (box.rows + rows - 1) / rows * across;
  if (pieces == 1) return piece(0);
  parallel_tasks(pieces, piece);
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
  if (is_gpu(device) && x.bytes() > 0)
    device_pool()->runtime().zero(x.raw(), x.bytes(), current_scope().stream);
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

Tensor Tensor::bits_as(DType dtype) const {
  const int64_t size = size_of(dtype);
  require(rank() == 1 && dense() && bytes() % size == 0 && offset_ % size == 0, ErrorCode::usage,
          "a tensor {} of {} at byte {} cannot be read as {}", shape_, name_of(dtype_), offset_,
          name_of(dtype));
  return over(storage_, offset_, {bytes() / size}, dtype);
}

Tensor Tensor::contiguous() const {
  if (dense()) return *this;
  Tensor copy = empty(shape_, dtype_, device());
  copy_into(copy, *this);
  return copy;
}

Tensor Tensor::to(Device device, MemoryClass memory_class) const {
  if (!defined() || device == this->device()) return *this;
  require(!is_meta(), ErrorCode::usage, "a meta tensor {} has no elements to copy", shape_);
  Tensor copy = empty(shape_, dtype_, device, memory_class);
  copy_into(copy, *this);
  return copy;
}

Tensor Tensor::held_as(std::optional<MemoryClass> memory_class) const {
  require(dense(), ErrorCode::usage, "a view {} is held by who made it", shape_);
  Tensor copy = *this;
  copy.storage_ = Storage::part(*storage_, offset_, bytes(), memory_class);
  copy.offset_ = 0;
  return copy;
}

void copy_into(const Tensor& to, const Tensor& from) {
  require(to.shape() == from.shape() && to.dtype() == from.dtype(), ErrorCode::usage,
          "a tensor {} of {} cannot be copied into {} of {}", from.shape(), name_of(from.dtype()),
          to.shape(), name_of(to.dtype()));
  if (to.is_meta() || from.elements() == 0) return;
  require(!from.is_meta(), ErrorCode::usage, "a meta tensor {} has no elements to copy",
          from.shape());
  const bool here = to.device() == Device::cpu, there = from.device() == Device::cpu;
  if (here != there && current_scope().recording) throw NeedsHost();
  const Axes axes = merged_axes(to, from);
  auto* target = static_cast<std::byte*>(to.raw());
  const auto* source = static_cast<const std::byte*>(from.raw());
  if (here && there) return each_box(axes, 0, target, source, copy_on_host);
  const auto pool = device_pool();
  void* const stream = current_scope().stream;
  const CopyWay way = here ? CopyWay::download : there ? CopyWay::upload : CopyWay::within;
  pool->runtime().enter();
  each_box(axes, 0, target, source,
           [&](const CopyBox& box) { pool->runtime().copy(box, way, stream); });
  if (here) pool->runtime().synchronise(stream);
}

std::vector<Tensor> to_host(const std::vector<Tensor>& tensors) {
  if (tensors.empty() || !is_gpu(tensors.front().device())) return tensors;
  int64_t elements = 0;
  for (const Tensor& tensor : tensors) elements += tensor.elements();
  std::vector<Tensor> here = tensors;
  const auto each_part = [&](const Tensor& all, const auto& f) {
    int64_t at = 0;
    for (Tensor& tensor : here) {
      const Tensor place = all.slice(0, at, at + tensor.elements());
      f(tensor, place.bits_as(tensor.dtype()).reshape(tensor.shape()));
      at += tensor.elements();
    }
  };
  const Tensor there = Tensor::empty({elements}, DType::i32, tensors.front().device());
  each_part(there, [](const Tensor& tensor, const Tensor& place) { copy_into(place, tensor); });
  each_part(there.to(Device::cpu), [](Tensor& tensor, const Tensor& place) { tensor = place; });
  return here;
}

std::vector<float> Tensor::to_floats() const { return values<float>(*this); }

std::vector<int64_t> Tensor::to_ints() const {
  require(dtype_ == DType::i32 || dtype_ == DType::i64, ErrorCode::usage,
          "integers were expected, the tensor {} holds {}", shape_, name_of(dtype_));
  return values<int64_t>(*this);
}

}  // namespace tessera::tensor
