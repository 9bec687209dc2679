#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tessera {

/// Element types of tensors for the library's inputs and results.
enum class ElementType { f32, bf16, f16, i32, i64, u8, i8 };

/// Numbers in the caller's memory: dense, last axis fastest, aligned to their elements.
struct TensorView {
  ElementType type = ElementType::f32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
};

/// Owned numbers.
struct TensorData {
  ElementType type = ElementType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
  /// The same as a view, valid during the lifetime of this object.
  TensorView view() const { return {type, shape, bytes.data()}; }
};

/// Tensors by name, as in a safetensors file.
using TensorViews = std::map<std::string, TensorView>;
using NamedTensors = std::map<std::string, TensorData>;

}  // namespace tessera
