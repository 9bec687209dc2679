#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tessera {

/// Element types of tensors that the library takes and gives.
enum class ElementType { f32, bf16, f16, i32, i64, u8, i8 };

/// Numbers in memory of the caller: dense, the last axis fastest, aligned to their elements.
struct TensorView {
  ElementType type = ElementType::f32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
};

/// Numbers of its own.
struct TensorData {
  ElementType type = ElementType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
  /// The same as a view, as long as this lives.
  TensorView view() const { return {type, shape, bytes.data()}; }
};

/// Tensors by name, as a safetensors file holds them.
using TensorViews = std::map<std::string, TensorView>;
using NamedTensors = std::map<std::string, TensorData>;

}  // namespace tessera
