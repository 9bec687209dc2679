#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/storage.h"

namespace tessera::tensor {

/// A value: shape, strides, element type, and a share of a storage. Copies are cheap and share the
/// elements. The innermost axis is always dense; other axes may have any stride (column slices of a
/// fused projection are views).
class Tensor {
 public:
  /// No tensor at all; defined() is false.
  Tensor() = default;
  /// Uninitialised elements (shape only on meta).
  static Tensor empty(const Shape& shape, DType dtype, Device device = Device::cpu,
                      MemoryClass memory_class = MemoryClass::activations);
  /// All elements zero (all bits zero).
  static Tensor zeros(const Shape& shape, DType dtype, Device device = Device::cpu,
                      MemoryClass memory_class = MemoryClass::activations);
  /// A copy of `values`; their count must be shape.elements().
  static Tensor from(std::span<const float> values, const Shape& shape);
  static Tensor from(std::span<const int32_t> values, const Shape& shape);
  /// A dense tensor over `storage` from byte `offset`. Throws Error(model) if the tensor exceeds
  /// the storage.
  static Tensor over(std::shared_ptr<Storage> storage, int64_t offset, const Shape& shape,
                     DType dtype);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  int64_t size(int axis) const { return shape_[axis]; }
  int64_t elements() const { return shape_.elements(); }
  int64_t bytes() const { return elements() * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_->device(); }
  bool is_meta() const { return device() == Device::meta; }
  /// Elements between two indices of `axis`.
  int64_t stride(int axis) const;
  /// Whether the elements form a single run, row major.
  bool dense() const;

  /// First element; null on meta; on cuda not for the host to read. T must have the size of the
  /// dtype (checked in debug builds).
  template <class T>
  T* data() const {
    return static_cast<T*>(raw());
  }
  /// First element of row `r` of axis 0.
  template <class T>
  T* row(int64_t r) const {
    return static_cast<T*>(raw()) + r * stride(0);
  }
  void* raw() const;

  /// Views: [begin, end) of an axis; the same elements in another shape (must be dense); a dense
  /// tensor without axis `axis` of size 1.
  Tensor slice(int axis, int64_t begin, int64_t end) const;
  Tensor reshape(const Shape& shape) const;
  /// A view of the same bytes as elements of another type. The tensor must be dense and of rank 1,
  /// with a whole number of aligned elements.
  Tensor bits_as(DType dtype) const;

  /// The same elements, dense, in new memory unless they are dense already.
  Tensor contiguous() const;
  /// The same elements on a device: the tensor itself if already there, else a dense copy. A copy
  /// from a GPU waits for pending work. To meta: the shape; from meta: Error(usage).
  Tensor to(Device device, MemoryClass memory_class = MemoryClass::activations) const;
  /// The same elements, which must be dense, counted as memory of the class in the caller's scope,
  /// independent of their creator; without a class counted nowhere, such as elements on the way to
  /// another rank.
  Tensor held_as(std::optional<MemoryClass> memory_class) const;
  /// Elements as floats in dense order, of any dtype and device. Not on meta.
  std::vector<float> to_floats() const;
  /// Elements of an i32 or i64 tensor. Throws Error(usage) for other dtypes.
  std::vector<int64_t> to_ints() const;

 private:
  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;  // bytes
  Shape shape_;
  std::array<int64_t, Shape::kMaxRank> strides_{};  // elements
  DType dtype_ = DType::f32;
};

/// Copies the elements of `from` into `to`, of the same shape and dtype; both may be views, on any
/// devices. A copy to the cpu waits. On meta nothing happens.
void copy_into(const Tensor& to, const Tensor& from);

/// Copies tensors of one device, with elements of four bytes, to the host. Tensors on the host are
/// returned as they are; from a GPU a single transfer waits for pending work.
std::vector<Tensor> to_host(const std::vector<Tensor>& tensors);

/// Calls f with a value of the element type (float, BFloat16, Float16); f32, bf16 and f16 only.
template <class F>
decltype(auto) with_float_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::bf16: return f(BFloat16{});
    case DType::f16: return f(Float16{});
    default: return f(float{});
  }
}

}  // namespace tessera::tensor
