#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace tessera::kernels {

/// y[i...] = x[i...] over up to eight axes with any strides (0 repeats x): permutes, widens or
/// repeats. Elements are opaque bytes; strides are in elements.
struct CopyArgs {
  static constexpr size_t kMostAxes = 8;
  const void* x = nullptr;
  void* y = nullptr;
  int64_t element = 0;  ///< bytes: 1, 2, 4 or 8
  size_t axes = 0;
  std::array<int64_t, kMostAxes> size{}, x_stride{}, y_stride{};  ///< outermost first
};

/// y[to[i], :] = x[from[i], :], cast; zeros where from[i] < 0. The rows in `to` are distinct.
struct MoveRowsArgs {
  const void* x = nullptr;
  tensor::DType x_dtype = tensor::DType::f32;  ///< f32, bf16 or f16
  int64_t x_stride = 0;                        ///< elements
  const int32_t* from = nullptr;               ///< [rows]; null: row i
  void* y = nullptr;
  tensor::DType y_dtype = tensor::DType::f32;
  int64_t y_stride = 0;
  const int32_t* to = nullptr;  ///< [rows]; null: row i
  int64_t rows = 0, columns = 0;
};

namespace reference {
/// Plain loops: the definition of correct results.
void copy(const CopyArgs& args);
void move_rows(const MoveRowsArgs& args);
}  // namespace reference
namespace simd {
/// Merges axes with the same layout; then copies whole runs, or transposes squares in the cache.
void copy(const CopyArgs& args);
/// Copies rows of the same dtype as bytes; casts others with the CPU's conversion.
void move_rows(const MoveRowsArgs& args);
}  // namespace simd
namespace cuda {
/// Each thread copies an element.
void copy(const CopyArgs& args);
void move_rows(const MoveRowsArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels
