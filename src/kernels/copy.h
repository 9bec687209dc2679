#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace tessera::kernels {

/// y[i...] = x[i...] over up to eight axes with any strides (0 repeats x): what permutes, widens or
/// repeats. Elements are bytes without meaning; strides are in elements.
struct CopyArgs {
  static constexpr size_t kMostAxes = 8;
  const void* x = nullptr;
  void* y = nullptr;
  int64_t element = 0;  ///< bytes: 1, 2, 4 or 8
  size_t axes = 0;
  std::array<int64_t, kMostAxes> size{}, x_stride{}, y_stride{};  ///< outermost first
};

/// y[to[i], :] = x[from[i], :], cast; zeros where from[i] < 0. No row of y is named twice.
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
/// Plain loops: defines correct.
void copy(const CopyArgs& args);
void move_rows(const MoveRowsArgs& args);
}  // namespace reference
namespace simd {
/// Axes that lie alike merged; then whole runs, or squares that are turned in the cache.
void copy(const CopyArgs& args);
/// Rows of one dtype as bytes, others by the cast of the CPU.
void move_rows(const MoveRowsArgs& args);
}  // namespace simd
namespace cuda {
/// An element a thread.
void copy(const CopyArgs& args);
void move_rows(const MoveRowsArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels
